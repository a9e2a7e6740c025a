//! Attempts to get out of the workspace, or to stop the one who looks into it.

use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, Ordering};

use cofferdam_linux::files::{ARCHIVE_DEFAULT_LIMITS, FileError, WriteOptions};
use rustix::fs::{CWD, FileType, Mode, RenameFlags};

use crate::{Fixture, SECRET, path};

/// Enough rounds for a race to be lost many times, were it possible to lose it.
const ROUNDS: usize = 2_000;
/// On a busy machine the swapper may hardly run: go on until both of its states were met, up to this.
const ROUNDS_MAX: usize = 500_000;

#[test]
fn links_that_lead_out_are_refused_by_every_operation() {
    let fixture = Fixture::new();
    let outside = fixture.outside.to_str().unwrap();
    for (target, name) in [
        (outside, "absolute"),
        ("../outside", "relative"),
        ("directory/../../outside", "winding"),
        ("/proc/self/root", "proc"),
        ("absolute", "second"),
    ] {
        symlink(target, fixture.inside.join(name)).unwrap();
        std::fs::create_dir_all(fixture.inside.join("directory")).unwrap();
        let inside = path(&format!("{name}/file"));
        let append = WriteOptions { append: true, ..Default::default() };
        let workspace = &fixture.workspace;
        let refusals = [
            workspace.read(&inside, None).err(),
            workspace.stat(&inside, false).err(),
            workspace.stat(&path(name), true).err(),
            workspace.list(&path(name)).err(),
            workspace.tree(&path(name), 9).err(),
            workspace.write(&inside, WriteOptions::default()).err(),
            workspace.write(&inside, WriteOptions { parents: true, ..Default::default() }).err(),
            workspace.write(&inside, append).err(),
            workspace.mkdir(&path(&format!("{name}/new")), true).err(),
            workspace.rename(&inside, &path("stolen")).err(),
            workspace.remove(&inside, true).err(),
            workspace.tar_out(&inside, std::io::sink(), ARCHIVE_DEFAULT_LIMITS).err(),
            workspace.tar_in(&path(name), std::io::empty(), ARCHIVE_DEFAULT_LIMITS).err(),
            workspace.watch(&path(name)).err(),
        ];
        for (index, refusal) in refusals.into_iter().enumerate() {
            let refused = matches!(refusal, Some(FileError::Escapes { .. } | FileError::LinkLoop { .. }));
            assert!(refused, "{name}, operation {index}: {refusal:?}");
        }
    }
    // The links themselves can be renamed, replaced and removed.
    fixture.workspace.rename(&path("second"), &path("renamed")).unwrap();
    fixture.write("absolute", "a file now").unwrap();
    fixture.workspace.remove(&path("relative"), true).unwrap();
    fixture.assert_outside_unchanged();
}

#[test]
fn magic_links_of_proc_are_not_followed_even_when_they_stay_inside() {
    let fixture = Fixture::new();
    // A link of /proc needs no path to lead out: a workspace that is /proc itself shows it best.
    let processes = cofferdam_linux::files::Workspace::open("/proc".as_ref()).unwrap();
    for name in ["self/root/etc/passwd", "self/cwd/Cargo.toml", "self/exe"] {
        let error = processes.read(&path(name), None).unwrap_err();
        assert!(matches!(error, FileError::LinkLoop { .. }), "{name}: {error}");
    }
    fixture.assert_outside_unchanged();
}

#[test]
fn pipes_and_sockets_are_refused_without_waiting() {
    let fixture = Fixture::new();
    rustix::fs::mknodat(CWD, fixture.inside.join("pipe"), FileType::Fifo, Mode::RWXU, 0).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(fixture.inside.join("socket")).unwrap();
    for name in ["pipe", "socket"] {
        let append = WriteOptions { append: true, ..Default::default() };
        let read = fixture.workspace.read(&path(name), None).unwrap_err();
        let write = fixture.workspace.write(&path(name), append).unwrap_err();
        assert!(matches!(read, FileError::NotRegular { .. }), "{read}");
        assert!(matches!(write, FileError::NotRegular { .. }), "{write}");
    }
    let archived = fixture.workspace.tar_out(&path(""), std::io::sink(), ARCHIVE_DEFAULT_LIMITS).unwrap();
    assert_eq!((archived.entries, archived.skipped), (0, 2));
    fixture.write("pipe", "replaced, not written into").unwrap();
    assert_eq!(fixture.read("pipe").unwrap(), "replaced, not written into");
}

/// Runs `attack` while another thread exchanges two names in the workspace without pause.
fn while_swapping(fixture: &Fixture, names: [&str; 2], attack: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    let [first, second] = names.map(|name| fixture.inside.join(name));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                // Fails while one of them is removed.
                let _ = rustix::fs::renameat_with(CWD, &first, CWD, &second, RenameFlags::EXCHANGE);
            }
        });
        // A failed assertion must end the other thread too.
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(attack));
        stop.store(true, Ordering::Relaxed);
        if let Err(panic) = outcome {
            std::panic::resume_unwind(panic);
        }
    });
}

#[test]
fn a_directory_swapped_for_a_link_never_shows_or_changes_the_outside() {
    let fixture = Fixture::new();
    fixture.write("directory/file", "inside").unwrap();
    symlink(&fixture.outside, fixture.inside.join("link")).unwrap();
    while_swapping(&fixture, ["directory", "link"], || {
        let (mut answered, mut refused) = (0, 0);
        for round in 0..ROUNDS_MAX {
            match fixture.read("directory/file") {
                Ok(content) => {
                    assert_ne!(content, SECRET);
                    answered += 1;
                }
                Err(_) => refused += 1,
            }
            let _ = fixture.write("directory/file", "inside");
            let _ = fixture.write("directory/new", "new");
            let _ = fixture.workspace.remove(&path("directory/new"), false);
            let _ = fixture.workspace.rename(&path("directory/file"), &path("directory/renamed"));
            let _ = fixture.workspace.rename(&path("directory/renamed"), &path("directory/file"));
            for listed in [fixture.workspace.list(&path("directory")), fixture.workspace.tree(&path(""), 9)] {
                let sizes = listed.iter().flat_map(|list| &list.entries).map(|entry| (&entry.path, &entry.stat));
                for (name, stat) in sizes.filter(|(name, _)| name.ends_with("file")) {
                    assert_ne!(stat.size_bytes, SECRET.len() as u64, "{name}");
                }
            }
            if round >= ROUNDS && answered > 0 && refused > 0 {
                return;
            }
        }
        panic!("the two states were never both met: {answered} answers, {refused} refusals");
    });
    fixture.assert_outside_unchanged();
}

#[test]
fn removing_a_tree_that_is_being_swapped_for_links_leaves_the_outside_alone() {
    let fixture = Fixture::new();
    while_swapping(&fixture, ["tree/directory", "tree/link"], || {
        for _ in 0..ROUNDS {
            let _ = fixture.write("tree/directory/file", "inside");
            let _ = symlink(&fixture.outside, fixture.inside.join("tree/link"));
            let _ = fixture.workspace.remove(&path("tree"), true);
        }
    });
    fixture.assert_outside_unchanged();
}

#[test]
fn a_deep_directory_that_is_moved_while_it_is_walked_is_left_behind() {
    let fixture = Fixture::new();
    // Deeper than the directories that are kept open, so that the way back leads through "..".
    let deep = |top: &str| format!("{top}{}", "/d".repeat(40));
    fixture.write(&format!("{}/file", deep("a")), "inside").unwrap();
    fixture.workspace.mkdir(&path("b/d/d"), true).unwrap();
    while_swapping(&fixture, ["a/d/d", "b/d/d"], || {
        for _ in 0..ROUNDS {
            let tree = fixture.workspace.tree(&path(""), usize::MAX).unwrap();
            assert!(tree.entries.len() >= 4, "{tree:?}");
        }
        for top in ["a", "b"] {
            fixture.workspace.remove(&path(top), true).unwrap();
        }
    });
    assert!(fixture.tree("").is_empty());
    fixture.assert_outside_unchanged();
}
