//! Archives, unpacked by Info-ZIP and by Python.

use std::ffi::OsStr;
use std::fs::File;
use std::path::Path;
use std::process::Command;

use cofferdam_artifacts::ArtifactError;
use cofferdam_artifacts::zip::{ZipOptions, Zipped, write_zip};
use cofferdam_linux::files::ArchiveLimits;

use crate::{Entry, Tree, run};

fn zip(tree: &Tree) -> (Vec<u8>, Zipped) {
    let mut archive = Vec::new();
    let zipped = write_zip(&tree.workspace(), &mut archive, ZipOptions::default()).unwrap();
    assert_eq!(zipped.archive_bytes, archive.len() as u64);
    (archive, zipped)
}

pub(crate) fn unzip(archive: &[u8]) -> Tree {
    let unpacked = Tree::new();
    let holder = tempfile::tempdir().unwrap();
    let path = holder.path().join("archive.zip");
    std::fs::write(&path, archive).unwrap();
    // Without -^, it leaves out control characters of names.
    run(Command::new("unzip").arg("-q^").arg(&path).arg("-d").arg(unpacked.path()));
    unpacked
}

fn python(script: &str, argument: &Path) -> String {
    let output = run(Command::new("python3").arg("-c").arg(script).arg(argument));
    String::from_utf8(output.stdout).unwrap()
}

/// Several blocks, and not a whole number of them.
fn large_content() -> Vec<u8> {
    (0..3_500_000u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 27) as u8).collect()
}

/// Nothing that compresses.
fn random_content(length: usize) -> Vec<u8> {
    let mut state = 1u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        Some((state >> 32) as u8)
    };
    std::iter::from_fn(next).take(length).collect()
}

#[test]
fn an_archive_unpacks_to_the_same_tree() {
    let tree = Tree::new();
    tree.file("empty", "", 0o644)
        .file("script", "#!/bin/sh\n".repeat(100), 0o755)
        .file("private/key", "incompressible", 0o600)
        .file("large", large_content(), 0o640)
        .file("random and large", random_content(2_500_000), 0o644)
        .file("random and one block", random_content(1 << 20), 0o644)
        .file("random, then not", [random_content(1 << 20), large_content()].concat(), 0o644)
        .file("exactly two blocks", vec![7; 2 << 20], 0o644)
        .file("exactly one block", vec![7; 1 << 20], 0o644)
        .file("ünïcode/☃", "snow", 0o644)
        .file("new\nline", "odd", 0o644)
        .file("..odd/...", "dots", 0o644)
        .file(b"latin-1 \xe4\xf6", "raw", 0o644)
        .symlink("link", "private/key")
        .symlink("dangling", "/nowhere");
    std::fs::create_dir(tree.at("empty directory")).unwrap();

    let (archive, zipped) = zip(&tree);
    assert_eq!(unzip(&archive).entries(), tree.entries());
    assert_eq!(zipped.entries, 19);
    assert_eq!(zipped.skipped, 0);
    assert_eq!(zip(&tree).0, archive, "the same tree gives the same bytes");
}

#[test]
fn python_reads_names_content_and_sizes() {
    let tree = Tree::new();
    tree.file("a", "one", 0o644).file("large", large_content(), 0o644).file("ü", "", 0o644);
    let holder = tempfile::tempdir().unwrap();
    let path = holder.path().join("archive.zip");
    std::fs::write(&path, zip(&tree).0).unwrap();
    let script = "import sys, zipfile; z = zipfile.ZipFile(sys.argv[1]); print(z.testzip(), [(i.filename, i.file_size) for i in z.infolist()])";
    assert_eq!(python(script, &path), "None [('a', 3), ('large', 3500000), ('ü', 0)]\n");
}

#[test]
fn times_are_kept_to_the_second_and_set_uid_bits_are_not() {
    let tree = Tree::new();
    tree.file("program", "x", 0o6755);
    tree.set_modified("program", 1_234_567_891);
    let unpacked = unzip(&zip(&tree).0);
    assert_eq!(unpacked.entries()[OsStr::new("program")], Entry::File { mode: 0o755, content: b"x".to_vec() });
    let modified = std::fs::metadata(unpacked.at("program")).unwrap().modified().unwrap();
    assert_eq!(modified.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs(), 1_234_567_891);
}

#[test]
fn more_entries_than_the_old_format_can_count() {
    const FILES: usize = 65_600;
    let tree = Tree::new();
    for index in 0..FILES {
        File::create(tree.at(format!("{index}"))).unwrap();
    }
    let (archive, zipped) = zip(&tree);
    assert_eq!(zipped.entries, FILES as u64);
    assert_eq!(unzip(&archive).entries().len(), FILES);
}

#[test]
fn limits_are_named() {
    let tree = Tree::new();
    tree.file("a", "12345", 0o644).file("b", "12345", 0o644);
    for (limits, message) in [
        (ArchiveLimits { bytes: 9, entries: 9 }, "the workspace holds more than 9 bytes"),
        (ArchiveLimits { bytes: 99, entries: 1 }, "the workspace holds more than 1 entries"),
    ] {
        let options = ZipOptions { limits, ..ZipOptions::default() };
        let error = write_zip(&tree.workspace(), std::io::sink(), options).unwrap_err();
        assert_eq!(error.to_string(), format!("{message}; remove what is not needed, or raise the limit"));
    }
}

#[test]
fn a_reader_that_goes_away_ends_the_work() {
    let tree = Tree::new();
    tree.file("large", large_content(), 0o644);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let error = write_zip(&tree.workspace(), writer, ZipOptions::default()).unwrap_err();
    assert!(matches!(error, ArtifactError::Output(_)), "{error}");
}

/// Five gigabytes are written and read.
#[test]
#[ignore = "takes minutes in a debug build"]
fn files_and_archives_above_four_gigabytes() {
    const SIZE: u64 = (4 << 30) + 12_345;
    let tree = Tree::new();
    File::create(tree.at("sparse")).unwrap().set_len(SIZE).unwrap();
    tree.file("z after", "still found", 0o644);
    let holder = tempfile::tempdir().unwrap();
    let path = holder.path().join("archive.zip");
    for level in [0, 6] {
        let limits = ArchiveLimits { bytes: 1 << 40, entries: 10 };
        write_zip(&tree.workspace(), File::create(&path).unwrap(), ZipOptions { level, limits }).unwrap();
        run(Command::new("unzip").arg("-tq").arg(&path));
        let script = "import sys, zipfile; z = zipfile.ZipFile(sys.argv[1]); print([i.file_size for i in z.infolist()], z.read('z after'))";
        assert_eq!(python(script, &path), format!("[{SIZE}, 11] b'still found'\n"));
    }
}
