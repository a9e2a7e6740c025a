//! Workspaces made to lead the reader elsewhere, to stop it, or to spoil what it writes.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, Ordering};

use cofferdam_artifacts::copy::{Copied, CopyLimits, copy_tree};
use cofferdam_artifacts::diff::{PatchOptions, write_patch};
use cofferdam_artifacts::zip::{ZipOptions, write_zip};
use rustix::fs::{CWD, FileType, Mode, RenameFlags};
use rustix::thread::{CapabilitySet, CapabilitySets};

use crate::zip::unzip;
use crate::{Entry, Tree};

/// The most that is met while names are swapped.
const ROUNDS: usize = 300;

fn make_pipe(tree: &Tree, name: &str) {
    rustix::fs::mknodat(CWD, tree.at(name), FileType::Fifo, Mode::RWXU, 0).unwrap();
}

#[test]
fn links_are_taken_as_links_and_special_files_not_at_all() {
    let tree = Tree::new();
    tree.file("file", "content", 0o644)
        .symlink("passwd", "/etc/passwd")
        .symlink("loop", "loop")
        .symlink("up", "..")
        .symlink("self", ".");
    make_pipe(&tree, "pipe");
    let _socket = std::os::unix::net::UnixListener::bind(tree.at("socket")).unwrap();

    let mut archive = Vec::new();
    let zipped = write_zip(&tree.workspace(), &mut archive, ZipOptions::default()).unwrap();
    assert_eq!((zipped.entries, zipped.skipped), (5, 2));
    assert_eq!(unzip(&archive).entries(), tree.entries());

    let copy = Tree::new();
    let copied = copy_tree(&tree.workspace(), &copy.workspace(), CopyLimits::default()).unwrap();
    assert_eq!(copied, Copied { files: 1, directories: 0, symlinks: 4, bytes: 7, skipped: 2 });
    assert_eq!(copy.entries(), tree.entries());

    let mut patch = Vec::new();
    let patched = write_patch(None, &tree.workspace(), &mut patch, PatchOptions::default()).unwrap();
    assert_eq!((patched.files_changed, patched.left_out), (5, 2));
    let patch = String::from_utf8(patch).unwrap();
    assert!(patch.contains("# Left out: pipe: it is a socket, a pipe or a device\n"), "{patch}");
    assert!(patch.contains("+/etc/passwd\n\\ No newline at end of file\n"), "{patch}");
}

#[test]
fn deep_trees_are_taken_whole() {
    const LEVELS: usize = 300;
    let tree = Tree::new();
    tree.file("d/".repeat(LEVELS) + "file", "deep", 0o644);
    let mut archive = Vec::new();
    write_zip(&tree.workspace(), &mut archive, ZipOptions::default()).unwrap();
    assert_eq!(unzip(&archive).entries(), tree.entries());
    let copy = Tree::new();
    copy_tree(&tree.workspace(), &copy.workspace(), CopyLimits::default()).unwrap();
    assert_eq!(copy.entries(), tree.entries());
    let patched = write_patch(None, &tree.workspace(), std::io::sink(), PatchOptions::default()).unwrap();
    assert_eq!(patched.files_changed, 1);
}

#[test]
fn what_may_not_be_read_is_left_out_and_counted() {
    let (base, tree) = (Tree::new(), Tree::new());
    base.file("locked/file", "was here", 0o644).file("secret", "was here", 0o644);
    tree.file("locked/file", "is here", 0o644).file("secret", "is here", 0o000).file("open", "yes\n", 0o644);
    std::fs::set_permissions(tree.at("locked"), PermissionsExt::from_mode(0o000)).unwrap();
    // Root reads everything; a thread without its privileges does not.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let none = CapabilitySet::empty();
            let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
            rustix::thread::set_capabilities(None, sets).unwrap();
            let mut archive = Vec::new();
            let zipped = write_zip(&tree.workspace(), &mut archive, ZipOptions::default()).unwrap();
            assert_eq!((zipped.entries, zipped.skipped), (1, 2));

            let copy = Tree::new();
            let copied = copy_tree(&tree.workspace(), &copy.workspace(), CopyLimits::default()).unwrap();
            assert_eq!(copied, Copied { files: 1, directories: 0, symlinks: 0, bytes: 4, skipped: 2 });

            let mut patch = Vec::new();
            let patched =
                write_patch(Some(&base.workspace()), &tree.workspace(), &mut patch, PatchOptions::default()).unwrap();
            assert_eq!((patched.files_changed, patched.left_out), (1, 2));
            let patch = String::from_utf8(patch).unwrap();
            assert!(!patch.contains("deleted"), "what cannot be read was not removed: {patch}");
        });
    });
    std::fs::set_permissions(tree.at("locked"), PermissionsExt::from_mode(0o755)).unwrap();
}

/// The file is swapped for a pipe, a directory and a link out, and grows and shrinks, while it is read.
#[test]
fn what_changes_while_it_is_read_spoils_nothing() {
    let (tree, outside) = (Tree::new(), Tree::new());
    outside.file("file", "the secret outside", 0o644);
    tree.file("changing", "x".repeat(5000), 0o644).file("zz", "the last", 0o644).file(
        "pool/directory/file",
        "f",
        0o644,
    );
    make_pipe(&tree, "pool/pipe");
    tree.symlink("pool/link", outside.path().to_str().unwrap());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let resized = std::fs::File::options().write(true).open(tree.at("changing")).unwrap();
            for round in 0usize.. {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                let other = tree.at(["pool/pipe", "pool/directory", "pool/link"][round % 3]);
                for _ in 0..2 {
                    rustix::fs::renameat_with(CWD, tree.at("changing"), CWD, &other, RenameFlags::EXCHANGE).unwrap();
                    resized.set_len((round % 7) as u64 * 400_000).unwrap();
                }
            }
        });
        for _ in 0..ROUNDS {
            let mut archive = Vec::new();
            write_zip(&tree.workspace(), &mut archive, ZipOptions::default()).unwrap();
            let unpacked = unzip(&archive).entries();
            assert_eq!(unpacked[OsStr::new("zz")], Entry::File { mode: 0o644, content: b"the last".to_vec() });
            assert!(!contains_secret(&unpacked));

            let copy = Tree::new();
            copy_tree(&tree.workspace(), &copy.workspace(), CopyLimits::default()).unwrap();
            assert!(!contains_secret(&copy.entries()));

            let mut patch = Vec::new();
            write_patch(Some(&copy.workspace()), &tree.workspace(), &mut patch, PatchOptions::default()).unwrap();
            assert!(!String::from_utf8_lossy(&patch).contains("the secret outside"));
        }
        stop.store(true, Ordering::Relaxed);
    });
}

fn contains_secret(entries: &std::collections::BTreeMap<std::ffi::OsString, Entry>) -> bool {
    entries.values().any(|entry| matches!(entry, Entry::File { content, .. } if content == b"the secret outside"))
}
