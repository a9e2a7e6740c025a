//! Archives out and in again, and archives made by an enemy.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;

use cofferdam_linux::files::{ARCHIVE_DEFAULT_LIMITS, ArchiveLimits, FileError, RelativePath, WriteOptions};
use tar::{Builder, EntryType, Header};

use crate::{Fixture, mode_of, path};

fn archive_of(fixture: &Fixture, name: &str) -> Vec<u8> {
    let mut archive = Vec::new();
    fixture.workspace.tar_out(&path(name), &mut archive, ARCHIVE_DEFAULT_LIMITS).unwrap();
    archive
}

/// One entry of a hand-made archive: its kind, name, target and content.
fn archive(entries: &[(EntryType, &str, &str, &str)]) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    for (kind, name, target, content) in entries {
        let mut header = Header::new_gnu();
        // As bytes: the library refuses to write what an enemy would.
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.as_old_mut().linkname[..target.len()].copy_from_slice(target.as_bytes());
        header.set_entry_type(*kind);
        header.set_mode(0o6755);
        header.set_mtime(1_000_000_000);
        header.set_size(content.len() as u64);
        header.set_cksum();
        builder.append(&header, content.as_bytes()).unwrap();
    }
    builder.into_inner().unwrap()
}

fn extract(fixture: &Fixture, archive: &[u8]) -> Result<cofferdam_linux::files::Extracted, FileError> {
    fixture.workspace.tar_in(&path("in"), archive, ARCHIVE_DEFAULT_LIMITS)
}

#[test]
fn names_links_modes_and_times_survive_the_round_trip() {
    let fixture = Fixture::new();
    let odd = OsStr::from_bytes(b"\xff\xfe odd\n%");
    let long_odd = OsStr::from_bytes(&[0xfe; 200]).to_owned();
    let long = format!("out/{}/{}", "d".repeat(150), "f".repeat(250));
    fixture.write(&long, "long").unwrap();
    fixture.write("out/empty", "").unwrap();
    std::fs::write(fixture.inside.join("out").join(odd), "odd").unwrap();
    std::fs::write(fixture.inside.join("out").join(&long_odd), "long and odd").unwrap();
    symlink("../anywhere", fixture.inside.join("out/link")).unwrap();
    symlink("t".repeat(300), fixture.inside.join("out/long link")).unwrap();
    std::fs::hard_link(fixture.inside.join("out/empty"), fixture.inside.join("out/second name")).unwrap();
    let script = WriteOptions { mode: Some(0o751), ..Default::default() };
    fixture.workspace.write(&path("out/script"), script).unwrap().commit().unwrap();
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_234_567_890);
    std::fs::File::options().write(true).open(fixture.inside.join("out/script")).unwrap().set_modified(time).unwrap();

    let extracted = extract(&fixture, &archive_of(&fixture, "out")).unwrap();
    assert_eq!((extracted.entries, extracted.bytes, extracted.skipped), (9, 19, 0));
    let describe = |top: &str| {
        let tree = fixture.workspace.tree(&path(top), 9).unwrap();
        tree.entries.into_iter().map(|e| (e.raw, e.stat.kind, e.stat.mode, e.target)).collect::<Vec<_>>()
    };
    assert_eq!(describe("in"), describe("out"));
    assert_eq!(std::fs::read(fixture.inside.join("in").join(odd)).unwrap(), b"odd");
    assert_eq!(std::fs::read(fixture.inside.join("in").join(long_odd)).unwrap(), b"long and odd");
    assert_eq!(std::fs::metadata(fixture.inside.join("in/script")).unwrap().modified().unwrap(), time);
}

#[test]
fn a_single_file_is_an_archive_of_one_entry() {
    let fixture = Fixture::new();
    fixture.write("a/file", "content").unwrap();
    extract(&fixture, &archive_of(&fixture, "a/file")).unwrap();
    assert_eq!(fixture.read("in/file").unwrap(), "content");
}

#[test]
fn a_file_that_changes_while_it_is_archived_keeps_the_archive_readable() {
    /// Truncates the file as soon as its header is written.
    struct Shrinking<'a>(&'a Fixture, Vec<u8>);
    impl std::io::Write for Shrinking<'_> {
        fn write(&mut self, buffer: &[u8]) -> std::io::Result<usize> {
            std::fs::write(self.0.inside.join("out/file"), "short")?;
            self.1.extend_from_slice(buffer);
            Ok(buffer.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let fixture = Fixture::new();
    fixture.write("out/file", &"x".repeat(10_000)).unwrap();
    let mut shrinking = Shrinking(&fixture, Vec::new());
    fixture.workspace.tar_out(&path("out"), &mut shrinking, ARCHIVE_DEFAULT_LIMITS).unwrap();
    extract(&fixture, &shrinking.1).unwrap();
    assert_eq!(fixture.read("in/file").unwrap().len(), 10_000);
}

#[test]
fn entries_that_point_out_of_the_destination_are_refused() {
    let fixture = Fixture::new();
    fixture.write("neighbour/file", "inside, but not in the destination").unwrap();
    let outside = fixture.outside.to_str().unwrap();
    let absolute = format!("{outside}/file");
    use EntryType::{Link, Regular, Symlink};
    let refused: &[&[(EntryType, &str, &str, &str)]] = &[
        &[(Regular, "../file", "", "x")],
        &[(Regular, "a/../../file", "", "x")],
        &[(Regular, &absolute, "", "x")],
        &[(Regular, "/workspace/file", "", "x")],
        &[(Symlink, "l1", outside, ""), (Regular, "l1/file", "", "x")],
        &[(Symlink, "l2", "../../outside", ""), (Regular, "l2/file", "", "x")],
        &[(Symlink, "l3", "../neighbour", ""), (Regular, "l3/file", "", "x")],
        &[(Symlink, "l4", outside, ""), (Link, "stolen", "l4/file", "")],
        &[(Link, "stolen", "/etc/passwd", "")],
        &[(Link, "stolen", "../neighbour/file", "")],
        &[(Link, "stolen", &absolute, "")],
        &[(Symlink, "l5", "/etc/passwd", ""), (Link, "stolen", "l5", "")],
        &[(Regular, ".", "", "x")],
        &[(Symlink, "l6", "", "")],
    ];
    for entries in refused {
        assert!(extract(&fixture, &archive(entries)).is_err(), "{entries:?}");
    }
    assert!(!fixture.inside.join("in/stolen").exists());
    assert_eq!(fixture.read("neighbour/file").unwrap(), "inside, but not in the destination");
    fixture.assert_outside_unchanged();
}

#[test]
fn a_link_in_the_place_of_an_entry_is_replaced_and_not_written_through() {
    let fixture = Fixture::new();
    let outside = fixture.outside.to_str().unwrap();
    let absolute = format!("{outside}/file");
    use EntryType::{Directory, Link, Regular, Symlink};
    extract(
        &fixture,
        &archive(&[
            (Symlink, "file", &absolute, ""),
            (Regular, "file", "", "replaced"),
            (Symlink, "directory", outside, ""),
            (Directory, "directory/", "", ""),
            (Regular, "directory/file", "", "in the new directory"),
            (Symlink, "hard", &absolute, ""),
            (Link, "hard", "file", ""),
        ]),
    )
    .unwrap();
    assert_eq!(fixture.read("in/file").unwrap(), "replaced");
    assert_eq!(fixture.read("in/hard").unwrap(), "replaced");
    assert_eq!(fixture.read("in/directory/file").unwrap(), "in the new directory");
    fixture.assert_outside_unchanged();
}

#[test]
fn set_uid_is_stripped_and_devices_are_left_out() {
    let fixture = Fixture::new();
    let entries = [
        (EntryType::Regular, "program", "", "x"),
        (EntryType::Directory, "directory", "", ""),
        (EntryType::Char, "device", "", ""),
        (EntryType::Block, "disk", "", ""),
        (EntryType::Fifo, "pipe", "", ""),
    ];
    assert_eq!(extract(&fixture, &archive(&entries)).unwrap().skipped, 3);
    assert_eq!(fixture.tree("in"), ["directory", "program"]);
    assert_eq!(mode_of(&fixture.inside.join("in/program")), 0o755);
    assert_eq!(mode_of(&fixture.inside.join("in/directory")), 0o755);
}

#[test]
fn archives_are_bounded_in_bytes_entries_and_headers() {
    let fixture = Fixture::new();
    let three = archive(&[("a", "12345"), ("b", "12345"), ("c", "")].map(|(n, c)| (EntryType::Regular, n, "", c)));
    let with = |bytes, entries| {
        let limits = ArchiveLimits { bytes, entries };
        fixture.workspace.tar_in(&path("in"), three.as_slice(), limits).map_err(|error| error.to_string())
    };
    assert!(with(10, 3).is_ok());
    assert_eq!(with(9, 3).unwrap_err(), "the archive holds more than 9 bytes; make a smaller one, or several");
    assert_eq!(with(10, 2).unwrap_err(), "the archive holds more than 2 entries; make a smaller one, or several");

    let huge_name = "n".repeat(2 << 20);
    let error = extract(&fixture, &archive(&[(EntryType::GNULongName, "x", "", &huge_name)])).unwrap_err();
    assert!(error.to_string().contains("headers of one entry"), "{error}");
    // Large content that is left out does not count as a header.
    let left_out = archive(&[(EntryType::Fifo, "pipe", "", &huge_name), (EntryType::Regular, "d", "", "x")]);
    assert_eq!(extract(&fixture, &left_out).unwrap().skipped, 1);

    let sparse = std::fs::File::create(fixture.inside.join("sparse")).unwrap();
    sparse.set_len(1 << 40).unwrap();
    let error = fixture.workspace.tar_out(&RelativePath::root(), std::io::sink(), ARCHIVE_DEFAULT_LIMITS).unwrap_err();
    assert!(matches!(error, FileError::ArchiveTooLarge { .. }), "{error}");
}

#[test]
fn an_archive_that_ends_early_is_an_error_and_leaves_no_half_file() {
    let fixture = Fixture::new();
    let whole = archive(&[(EntryType::Regular, "file", "", &"x".repeat(5_000))]);
    assert!(extract(&fixture, &whole[..2_000]).is_err());
    assert!(fixture.tree("in").is_empty());
}
