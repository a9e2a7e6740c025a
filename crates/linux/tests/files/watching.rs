//! Watching: tests wait until the changes that they expect have arrived.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use cofferdam_linux::files::Watcher;
use cofferdam_protocol::files::ChangeKind::{self, Created, Modified, Removed};

use crate::{Fixture, path};

/// Reads until all of `expected` were seen, in any order; gives everything seen.
fn wait_for(watcher: &mut Watcher, expected: &[(ChangeKind, &str)]) -> Vec<(ChangeKind, String)> {
    let deadline = Instant::now() + Duration::from_secs(30);
    let mut seen = Vec::new();
    loop {
        seen.extend(watcher.read_changes().unwrap().into_iter().map(|change| (change.kind, change.path)));
        if expected.iter().all(|(kind, path)| seen.iter().any(|(k, p)| k == kind && p == path)) {
            return seen;
        }
        assert!(Instant::now() < deadline, "expected {expected:?}, saw {seen:?}");
        std::thread::yield_now();
    }
}

#[test]
fn files_are_seen_when_they_are_created_modified_moved_and_removed() {
    let fixture = Fixture::new();
    std::fs::create_dir(fixture.inside.join("directory")).unwrap();
    let mut watcher = fixture.workspace.watch(&path("")).unwrap();
    assert_eq!(watcher.read_changes().unwrap(), []);

    fixture.write("directory/file", "content").unwrap();
    let seen = wait_for(&mut watcher, &[(Created, "directory/file")]);
    assert!(seen.iter().all(|(_, path)| !path.contains(".tmp")), "{seen:?}");
    std::fs::write(fixture.inside.join("directory/file"), "other").unwrap();
    wait_for(&mut watcher, &[(Modified, "directory/file")]);
    fixture.workspace.rename(&path("directory/file"), &path("moved")).unwrap();
    wait_for(&mut watcher, &[(Removed, "directory/file"), (Created, "moved")]);
    fixture.workspace.remove(&path("moved"), false).unwrap();
    wait_for(&mut watcher, &[(Removed, "moved")]);
}

#[test]
fn new_and_moved_directories_are_watched_with_what_they_hold() {
    let fixture = Fixture::new();
    let mut watcher = fixture.workspace.watch(&path("")).unwrap();
    fixture.write("new/sub/file", "").unwrap();
    wait_for(&mut watcher, &[(Created, "new"), (Created, "new/sub"), (Created, "new/sub/file")]);
    fixture.write("new/sub/later", "").unwrap();
    wait_for(&mut watcher, &[(Created, "new/sub/later")]);

    fixture.workspace.rename(&path("new"), &path("moved")).unwrap();
    wait_for(&mut watcher, &[(Removed, "new"), (Created, "moved"), (Created, "moved/sub/file")]);
    fixture.write("moved/sub/last", "").unwrap();
    let seen = wait_for(&mut watcher, &[(Created, "moved/sub/last")]);
    assert!(seen.iter().all(|(_, path)| !path.starts_with("new")), "{seen:?}");
    fixture.workspace.remove(&path("moved"), true).unwrap();
    wait_for(&mut watcher, &[(Removed, "moved/sub/last"), (Removed, "moved")]);
}

#[test]
fn directories_behind_links_are_not_watched() {
    let fixture = Fixture::new();
    let mut watcher = fixture.workspace.watch(&path("")).unwrap();
    std::os::unix::fs::symlink(&fixture.outside, fixture.inside.join("link")).unwrap();
    std::fs::write(fixture.outside.join("unseen"), "").unwrap();
    fixture.write("last", "").unwrap();
    let seen: BTreeSet<String> =
        wait_for(&mut watcher, &[(Created, "last")]).into_iter().map(|(_, path)| path).collect();
    assert_eq!(seen, BTreeSet::from(["last".to_owned(), "link".to_owned()]));
}
