//! Everything that the guest reads out of a request: JSON bodies, ids, parameters, ranges, messages on its channels,
//! archives. The first byte of an input says which.

use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;

use cofferdam_linux::files::{ArchiveLimits, FileError, RelativePath, Workspace};
use cofferdam_protocol::exec::{ExecId, ExecRequest, REQUEST_MAX_BYTES, TerminalSize};
use cofferdam_protocol::files::{FileEntry, FileKind};
use cofferdam_protocol::launch::{ToGuest, ToSpawner};
use cofferdam_protocol::request::{self, MoveRequest};

use crate::archive;
use crate::check_json;
use crate::path_resolution::{check_error, check_path};
use crate::scratch::Scratch;

const ARCHIVE_LIMITS: ArchiveLimits = ArchiveLimits { bytes: 256 << 10, entries: 64 };
/// For the way back: several names of one file are several files in an archive.
const COPY_LIMITS: ArchiveLimits = ArchiveLimits { bytes: 64 << 20, entries: 10_000 };

pub fn guest_requests(data: &[u8]) {
    let [letter, rest @ ..] = data else { return };
    let text = || std::str::from_utf8(rest).ok();
    match letter {
        b'j' => check_bodies(rest),
        b'i' => text().into_iter().for_each(check_id),
        b'q' => text().into_iter().for_each(check_query),
        b'r' => text().into_iter().for_each(check_range),
        b't' => {
            let mut bytes = rest.to_vec();
            archive::mend_checksums(&mut bytes);
            check_archive(&bytes);
        }
        b'a' => check_archive(&archive::from_lines(rest)),
        _ => {}
    }
}

fn check_bodies(json: &[u8]) {
    if let Some(request) = check_json::<ExecRequest>(json)
        && request.validate().is_ok()
    {
        assert!(!request.argv[0].is_empty());
        let env = request.env.iter().flat_map(|(name, value)| [name, value]);
        let texts = request.argv.iter().chain(env).chain(&request.cwd);
        let lengths = texts.map(|text| {
            assert!(!text.contains('\0'));
            text.len() + 1
        });
        assert!(lengths.sum::<usize>() <= REQUEST_MAX_BYTES);
        assert!(request.env.keys().all(|name| !name.is_empty() && !name.contains('=')));
    }
    if let Some(both) = check_json::<MoveRequest>(json) {
        check_path(both.from.as_bytes());
        check_path(both.to.as_bytes());
    }
    check_json::<ToGuest>(json);
    check_json::<ToSpawner>(json);
    check_json::<TerminalSize>(json);
    check_json::<i32>(json);
    check_json::<u64>(json);
    if let Some(id) = check_json::<ExecId>(json) {
        check_id(id.as_str());
    }
}

fn check_id(text: &str) {
    let Ok(id) = ExecId::try_from(text.to_owned()) else { return };
    assert_eq!(id.as_str(), text);
    assert!((1..=128).contains(&text.len()));
    assert!(text.bytes().all(|byte| byte.is_ascii_graphic() && !b"/\\?#%&=\"'".contains(&byte)), "{text:?}");
}

fn check_query(query: &str) {
    check_mode(query);
    for name in ["append", "parents", "recursive", "follow", "keep", "mode", "depth", "from", "to"] {
        let value = request::parameter(query, name);
        if let Some(value) = value {
            assert!(query.contains(name) && query.contains(value) && !value.contains('&'));
        }
        match request::number_parameter(query, name) {
            Ok(None) => assert!(value.is_none()),
            Ok(Some(number)) => check_number(value.expect("a number was written"), number),
            Err(error) => assert!(error.to_string().contains(name)),
        }
    }
}

fn check_mode(query: &str) {
    let Ok(Some(mode)) = request::mode_parameter(query) else { return };
    assert_eq!(request::number_parameter(query, "mode"), Ok(Some(u64::from(mode))));
}

fn check_range(text: &str) {
    let Ok(range) = request::range(text) else { return };
    assert!(range.start <= range.end);
    let (first, last) = text.strip_prefix("bytes=").and_then(|range| range.split_once('-')).expect("it was accepted");
    check_number(first, range.start);
    match last {
        "" => assert_eq!(range.end, u64::MAX),
        last => check_number(last, range.end - 1),
    }
}

/// Nothing but digits: a plus in a query is a space to others, and whoever stands before us may read it so.
fn check_number(text: &str, number: u64) {
    assert!(text.bytes().all(|byte| byte.is_ascii_digit()), "{text:?} was read as {number}");
    assert_eq!(text.parse(), Ok(number));
}

fn check_archive(bytes: &[u8]) {
    let scratch = Scratch::new();
    let root = RelativePath::root();
    let result = scratch.workspace.tar_in(&root, bytes, ARCHIVE_LIMITS);
    scratch.assert_outside_untouched();
    check_tree(&scratch.inside);
    match result {
        Ok(extracted) => {
            assert!(extracted.entries <= ARCHIVE_LIMITS.entries && extracted.bytes <= ARCHIVE_LIMITS.bytes);
            assert!(extracted.skipped <= extracted.entries);
            check_way_back(&scratch);
        }
        Err(FileError::ArchiveStream { .. }) => {}
        Err(error) => check_error(&error),
    }
    scratch.assert_outside_untouched();
}

/// Nothing that an archive can bring may be a device, or run as somebody else.
fn check_tree(directory: &Path) {
    for entry in std::fs::read_dir(directory).expect("a directory of ours").map(|entry| entry.expect("an entry")) {
        let metadata = entry.metadata().expect("an entry that is there");
        let kind = metadata.file_type();
        assert!(!kind.is_char_device() && !kind.is_block_device() && !kind.is_socket(), "{:?}", entry.path());
        assert!(kind.is_symlink() || metadata.permissions().mode() & 0o7000 == 0, "{:?}", entry.path());
        assert!(metadata.len() <= ARCHIVE_LIMITS.bytes, "{:?}", entry.path());
        if kind.is_dir() {
            check_tree(&entry.path());
        }
    }
}

/// What was unpacked can be packed, and unpacked elsewhere to the same.
fn check_way_back(scratch: &Scratch) {
    let root = RelativePath::root();
    let mut archive = Vec::new();
    let archived = scratch.workspace.tar_out(&root, &mut archive, COPY_LIMITS).expect("a tree can be packed");
    scratch.assert_not_secret(&archive);
    let copy = tempfile::tempdir().expect("a temporary directory");
    let workspace = Workspace::open(copy.path()).expect("the copy");
    let extracted = workspace.tar_in(&root, archive.as_slice(), COPY_LIMITS).expect("our own archive");
    assert_eq!((extracted.entries, extracted.bytes), (archived.entries, archived.bytes));
    // The pipe of the scratch, and what only its owner's mode hides from us.
    if archived.skipped == 1 {
        assert_eq!(entries(&workspace), entries(&scratch.workspace));
    }
}

fn entries(workspace: &Workspace) -> Vec<(String, FileKind, u64, u32, Option<String>)> {
    let tree = workspace.tree(&RelativePath::root(), usize::MAX).expect("a tree can be listed");
    let comparable = |entry: FileEntry| {
        let size = if entry.stat.kind == FileKind::File { entry.stat.size_bytes } else { 0 };
        (entry.raw, entry.stat.kind, size, entry.stat.mode, entry.target)
    };
    tree.entries.into_iter().filter(|entry| entry.stat.kind != FileKind::Other).map(comparable).collect()
}
