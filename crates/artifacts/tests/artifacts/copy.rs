//! Copies, compared with what they were made from.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};

use cofferdam_artifacts::copy::{Copied, CopyLimits, copy_tree};

use crate::{Entry, Tree};

#[test]
fn a_copy_is_the_same_tree_with_the_same_times() {
    let tree = Tree::new();
    tree.file("a/b/file", "content", 0o640)
        .file("program", "x", 0o755)
        .file("empty", "", 0o444)
        .file(b"odd \xff\n", "odd", 0o600)
        .symlink("link", "/etc/passwd")
        .symlink("a/loop", "loop");
    std::fs::create_dir(tree.at("hollow")).unwrap();
    // Its content must get in before it is closed.
    std::fs::set_permissions(tree.at("a/b"), PermissionsExt::from_mode(0o555)).unwrap();
    for name in ["a/b/file", "a/b", "a", "hollow"] {
        tree.set_modified(name, 1_000_000_000);
    }
    let copy = Tree::new();
    let copied = copy_tree(&tree.workspace(), &copy.workspace(), CopyLimits::default()).unwrap();
    assert_eq!(copied, Copied { files: 4, directories: 3, symlinks: 2, bytes: 11, skipped: 0 });
    assert_eq!(copy.entries(), tree.entries());
    for name in ["a/b/file", "a/b", "a", "hollow", "program"] {
        let times = [&tree, &copy].map(|tree| {
            let metadata = std::fs::metadata(tree.at(name)).unwrap();
            (metadata.mtime(), metadata.mtime_nsec())
        });
        assert_eq!(times[0], times[1], "{name}");
    }
}

#[test]
fn set_uid_bits_stay_behind() {
    let tree = Tree::new();
    tree.file("program", "x", 0o6755);
    let copy = Tree::new();
    copy_tree(&tree.workspace(), &copy.workspace(), CopyLimits::default()).unwrap();
    assert_eq!(copy.entries()[OsStr::new("program")], Entry::File { mode: 0o755, content: b"x".to_vec() });
}

#[test]
fn holes_are_copied_as_holes() {
    const TERABYTE: u64 = 1 << 40;
    let tree = Tree::new();
    let file = File::create(tree.at("sparse")).unwrap();
    file.set_len(TERABYTE).unwrap();
    file.write_all_at(b"island", 1 << 30).unwrap();
    let copy = Tree::new();
    let copied = copy_tree(&tree.workspace(), &copy.workspace(), CopyLimits::default()).unwrap();
    assert!(copied.bytes < 1 << 20, "{copied:?}");
    let file = File::open(copy.at("sparse")).unwrap();
    let mut island = [0; 8];
    file.read_exact_at(&mut island, (1 << 30) - 1).unwrap();
    assert_eq!(&island, b"\0island\0");
    let metadata = file.metadata().unwrap();
    assert_eq!(metadata.len(), TERABYTE);
    assert!(metadata.blocks() < 2048, "{} blocks", metadata.blocks());
}

#[test]
fn limits_are_named() {
    let tree = Tree::new();
    tree.file("a", "12345", 0o644).file("b", "12345", 0o644);
    for (limits, message) in [
        (CopyLimits { bytes: 9, entries: 9 }, "the workspace holds more than 9 bytes"),
        (CopyLimits { bytes: 99, entries: 1 }, "the workspace holds more than 1 entries"),
    ] {
        let error = copy_tree(&tree.workspace(), &Tree::new().workspace(), limits).unwrap_err();
        assert_eq!(error.to_string(), format!("{message}; remove what is not needed, or raise the limit"));
    }
}

#[test]
fn nothing_is_replaced_and_no_link_of_the_destination_is_followed() {
    let outside = Tree::new();
    let tree = Tree::new();
    tree.file("directory/file", "new", 0o644);
    for (name, message) in
        [("directory/file", "exists already"), ("directory", "passes through too many symbolic links")]
    {
        let copy = Tree::new();
        match name {
            "directory" => copy.symlink("directory", outside.path().to_str().unwrap()),
            name => copy.file(name, "old", 0o644),
        };
        let error = copy_tree(&tree.workspace(), &copy.workspace(), CopyLimits::default()).unwrap_err();
        assert!(error.to_string().contains(message), "{error}");
    }
    assert_eq!(outside.entries().len(), 0);
}
