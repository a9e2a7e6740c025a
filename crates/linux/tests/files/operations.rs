//! Each operation on its own, without anybody else in the workspace.

use std::io::{Read, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::Duration;

use cofferdam_linux::files::{FileError, LIST_ENTRIES_MAX, RelativePath, WriteOptions};
use cofferdam_protocol::files::FileKind;

use crate::{Fixture, mode_of, path, paths};

#[test]
fn a_file_is_written_whole_and_read_in_ranges() {
    let fixture = Fixture::new();
    fixture.write("a/b/file", "0123456789").unwrap();
    let length = u64::MAX;
    for (range, expected) in
        [(None, "0123456789"), (Some(2..5), "234"), (Some(8..length), "89"), (Some(20..30), ""), (Some(5..5), "")]
    {
        let (mut file, stat) = fixture.workspace.read(&path("/workspace/a/b/file"), range).unwrap();
        let mut content = String::new();
        file.read_to_string(&mut content).unwrap();
        assert_eq!((content.as_str(), stat.size_bytes), (expected, 10));
    }
}

#[test]
fn a_write_that_is_not_committed_never_happened() {
    let fixture = Fixture::new();
    fixture.write("file", "old").unwrap();
    let mut writer = fixture.workspace.write(&path("file"), WriteOptions::default()).unwrap();
    writer.write_all(b"new").unwrap();
    assert_eq!(fixture.read("file").unwrap(), "old");
    drop(writer);
    assert_eq!(fixture.read("file").unwrap(), "old");
    assert_eq!(fixture.tree("."), ["file"]);
}

#[test]
fn appending_adds_to_the_end_and_creates_the_file() {
    let fixture = Fixture::new();
    let append = WriteOptions { append: true, ..Default::default() };
    for line in ["one ", "two"] {
        let mut writer = fixture.workspace.write(&path("log"), append).unwrap();
        writer.write_all(line.as_bytes()).unwrap();
        writer.commit().unwrap();
    }
    assert_eq!(fixture.read("log").unwrap(), "one two");
    symlink("log", fixture.inside.join("link")).unwrap();
    assert!(matches!(fixture.workspace.write(&path("link"), append), Err(FileError::IsSymlink { .. })));
}

#[test]
fn modes_are_kept_or_set_without_set_uid() {
    let fixture = Fixture::new();
    let write = |mode| {
        let options = WriteOptions { mode, ..Default::default() };
        fixture.workspace.write(&path("file"), options).unwrap().commit().unwrap().mode
    };
    assert_eq!([write(None), write(Some(0o6755)), write(None)], [0o644, 0o755, 0o755]);
    assert_eq!(mode_of(&fixture.inside.join("file")), 0o755);
}

#[test]
fn stat_tells_links_from_what_they_point_to() {
    let fixture = Fixture::new();
    fixture.write("file", "12345").unwrap();
    symlink("file", fixture.inside.join("link")).unwrap();
    let kind = |name: &str, follow| fixture.workspace.stat(&path(name), follow).unwrap().kind;
    assert_eq!(kind("link", false), FileKind::Symlink);
    assert_eq!(kind("link", true), FileKind::File);
    assert_eq!(kind(".", false), FileKind::Directory);
    assert_eq!(fixture.workspace.stat(&path("link"), true).unwrap().size_bytes, 5);
    assert_eq!(fixture.read("link").unwrap(), "12345");
}

#[test]
fn lists_and_trees_are_sorted_and_links_are_shown_not_followed() {
    let fixture = Fixture::new();
    for name in ["b/two", "b/c/three", "a one", "b-"] {
        fixture.write(name, "").unwrap();
    }
    symlink("b", fixture.inside.join("link")).unwrap();
    assert_eq!(paths(fixture.workspace.list(&path("")).unwrap()), ["a one", "b", "b-", "link"]);
    assert_eq!(paths(fixture.workspace.tree(&path(""), 2).unwrap()), ["a one", "b", "b/c", "b/two", "b-", "link"]);
    assert_eq!(fixture.tree("b"), ["c", "c/three", "two"]);
    let list = fixture.workspace.list(&path("")).unwrap();
    assert_eq!((list.entries[0].raw.as_str(), list.entries[3].target.as_deref()), ("a%20one", Some("b")));
}

#[test]
fn a_list_stops_at_its_bound_and_says_so() {
    let fixture = Fixture::new();
    for number in 0..=LIST_ENTRIES_MAX {
        std::fs::File::create(fixture.inside.join(number.to_string())).unwrap();
    }
    let list = fixture.workspace.list(&RelativePath::root()).unwrap();
    assert_eq!((list.entries.len(), list.truncated), (LIST_ENTRIES_MAX, true));
}

#[test]
fn directories_are_made_and_renamed_and_removed() {
    let fixture = Fixture::new();
    let workspace = &fixture.workspace;
    workspace.mkdir(&path("a"), false).unwrap();
    workspace.mkdir(&path("a/b/c"), true).unwrap();
    workspace.mkdir(&path("a/b/c"), true).unwrap();
    fixture.write("a/b/file", "content").unwrap();
    workspace.rename(&path("a/b"), &path("moved")).unwrap();
    assert_eq!(fixture.tree(""), ["a", "moved", "moved/c", "moved/file"]);
    workspace.remove(&path("a"), false).unwrap();
    workspace.remove(&path("moved"), true).unwrap();
    assert!(fixture.tree("").is_empty());
}

#[test]
fn mistakes_are_named_with_their_path() {
    let fixture = Fixture::new();
    let workspace = &fixture.workspace;
    fixture.write("directory/file", "").unwrap();
    let plain = WriteOptions::default();
    let mistakes = [
        (workspace.read(&path("none"), None).unwrap_err(), "\"none\" does not exist"),
        (workspace.read(&path("directory"), None).unwrap_err(), "\"directory\" is a directory"),
        (workspace.write(&path("directory"), plain).unwrap_err(), "\"directory\" is a directory"),
        (workspace.write(&path("none/file"), plain).unwrap_err(), "\"none\" does not exist"),
        (workspace.mkdir(&path("directory"), false).unwrap_err(), "\"directory\" exists already"),
        (
            workspace.remove(&path("directory"), false).unwrap_err(),
            "\"directory\" is a directory that is not empty; remove it recursively",
        ),
        (
            workspace.list(&path("directory/file")).unwrap_err(),
            "\"directory/file\" is not a directory, or something on the way to it is not",
        ),
        (
            workspace.remove(&RelativePath::root(), true).unwrap_err(),
            "the workspace itself cannot be removed, renamed or overwritten; name something inside it",
        ),
    ];
    for (error, message) in mistakes {
        assert_eq!(error.to_string(), message);
    }
}

#[test]
fn usage_counts_blocks_and_several_names_of_a_file_once() {
    let fixture = Fixture::new();
    fixture.write("directory/large", &"x".repeat(100_000)).unwrap();
    fixture.write("empty", "").unwrap();
    let once = fixture.workspace.usage(Duration::from_secs(60)).unwrap();
    assert_eq!((once.entries, once.complete), (3, true));
    assert!((100_000 + 2 * 4096..200_000).contains(&once.bytes), "{once:?}");
    std::fs::hard_link(fixture.inside.join("directory/large"), fixture.inside.join("again")).unwrap();
    assert_eq!(fixture.workspace.usage(Duration::from_secs(60)).unwrap().bytes, once.bytes);
    assert!(!fixture.workspace.usage(Duration::ZERO).unwrap().complete);
}

#[test]
fn a_tree_of_thousands_of_levels_is_shown_counted_and_removed() {
    let fixture = Fixture::new();
    const LEVELS: usize = 3_000;
    const MODE: rustix::fs::Mode = rustix::fs::Mode::from_raw_mode(0o755);
    let mut directory = rustix::fs::open(&fixture.inside, rustix::fs::OFlags::PATH, MODE).unwrap();
    for _ in 0..LEVELS {
        rustix::fs::mkdirat(&directory, "d", MODE).unwrap();
        rustix::fs::mkdirat(&directory, "e", MODE).unwrap();
        directory = rustix::fs::openat(&directory, "d", rustix::fs::OFlags::PATH, MODE).unwrap();
    }
    let tree = fixture.workspace.tree(&RelativePath::root(), 1_000).unwrap();
    assert_eq!((tree.entries.len(), tree.truncated), (2 * 1_000, false));
    // The paths of all levels together are larger than an answer may be.
    assert!(fixture.workspace.tree(&RelativePath::root(), usize::MAX).unwrap().truncated);
    assert_eq!(fixture.workspace.usage(Duration::from_secs(60)).unwrap().entries, 2 * LEVELS as u64);
    fixture.workspace.remove(&path("d"), true).unwrap();
    assert_eq!(fixture.tree(""), ["e"]);
}

#[test]
fn a_directory_that_cannot_be_read_is_an_error_for_itself_only() {
    let fixture = Fixture::new();
    fixture.write("locked/file", "").unwrap();
    std::fs::set_permissions(fixture.inside.join("locked"), std::fs::Permissions::from_mode(0o000)).unwrap();
    let as_root = std::fs::read_dir(fixture.inside.join("locked")).is_ok();
    let expected: &[&str] = if as_root { &["locked", "locked/file"] } else { &["locked"] };
    assert_eq!(fixture.tree(""), expected);
    std::fs::set_permissions(fixture.inside.join("locked"), std::fs::Permissions::from_mode(0o755)).unwrap();
}
