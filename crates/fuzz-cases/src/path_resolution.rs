//! Paths and what is done with them, in a workspace full of ways out. An input is lines of `letter path [path]`, with
//! paths percent-encoded as in a request; [`act`] has the letters. `Wpath` in the first line watches that directory.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use cofferdam_linux::files::{
    ArchiveLimits, FileError, NAME_MAX_BYTES, PATH_MAX_BYTES, RelativePath, WriteOptions, percent_decode,
    percent_encode,
};

use crate::scratch::{OUTSIDE_MODIFIED_MS, Scratch};

/// Lines of an input that are acted upon: enough for any interplay, and few enough to be fast.
const LINES_MAX: usize = 32;
const ARCHIVE_LIMITS: ArchiveLimits = ArchiveLimits { bytes: 1 << 20, entries: 1_000 };

pub fn path_resolution(data: &[u8]) {
    let scratch = Scratch::new();
    // Only where the first line asks for it: the kernel takes milliseconds to give up a watch.
    let watched = data.strip_prefix(b"W").and_then(|rest| check_path(rest.split(|byte| *byte <= b' ').next()?));
    let mut watcher = watched.and_then(|path| scratch.workspace.watch(&path).map_err(|error| check_error(&error)).ok());
    for line in data.split(|byte| *byte == b'\n').take(LINES_MAX) {
        let [letter, rest @ ..] = line else { continue };
        let mut words = rest.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
        let (first, second) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let Some(path) = check_path(first) else { continue };
        if let Err(error) = act(&scratch, *letter, &path, second) {
            check_error(&error);
        }
    }
    for change in watcher.iter_mut().flat_map(|watcher| watcher.read_changes().expect("changes can be read")) {
        assert!(percent_decode(&change.raw).is_ok_and(|path| RelativePath::parse(&path).is_ok()), "{change:?}");
    }
    scratch.assert_outside_untouched();
}

fn act(scratch: &Scratch, letter: u8, path: &RelativePath, second: &[u8]) -> Result<(), FileError> {
    let workspace = &scratch.workspace;
    let write = |options| -> Result<(), FileError> {
        let mut writer = workspace.write(path, options)?;
        writer.write_all(second).expect("a little content fits");
        writer.commit().map(drop)
    };
    match letter {
        b'r' => {
            let start = second.first().copied().map(u64::from);
            let (mut content, stat) = workspace.read(path, start.map(|start| start..start + 100))?;
            assert_ne!(stat.modified_ms, OUTSIDE_MODIFIED_MS);
            let mut bytes = Vec::new();
            content.read_to_end(&mut bytes).expect("what is open can be read");
            scratch.assert_not_secret(&bytes);
        }
        b'w' => write(WriteOptions::default())?,
        b'p' => write(WriteOptions { parents: true, mode: Some(0o7777), append: false })?,
        b'a' => write(WriteOptions { append: true, ..Default::default() })?,
        b'm' => workspace.mkdir(path, false)?,
        b'M' => workspace.mkdir(path, true)?,
        b'v' => {
            if let Some(to) = check_path(second) {
                workspace.rename(path, &to)?;
            }
        }
        b'd' => workspace.remove(path, false)?,
        b'D' => workspace.remove(path, true)?,
        b's' => assert_ne!(workspace.stat(path, false)?.modified_ms, OUTSIDE_MODIFIED_MS, "{path}"),
        b'S' => assert_ne!(workspace.stat(path, true)?.modified_ms, OUTSIDE_MODIFIED_MS, "{path}"),
        b'l' => check_entries(workspace.list(path)?),
        b't' => check_entries(workspace.tree(path, second.len())?),
        b'T' => {
            let mut archive = Vec::new();
            workspace.tar_out(path, &mut archive, ARCHIVE_LIMITS)?;
            scratch.assert_not_secret(&archive);
        }
        b'u' => assert!(workspace.usage(Duration::from_secs(5))?.complete, "a small workspace takes long to count"),
        // The neighbour, who is bound by nothing, except that what he names by links is in our table. Through a link
        // that leads out, it would be us who change what is outside.
        b'L' if workspace.stat(&parent_of(path), true).is_ok() => {
            let target = second.first().map_or(0, |byte| usize::from(byte.wrapping_sub(b'a')));
            scratch.link(Path::new(OsStr::from_bytes(path.as_bytes())), target);
        }
        _ => {}
    }
    Ok(())
}

fn parent_of(path: &RelativePath) -> RelativePath {
    let bytes = path.as_bytes();
    let slash = bytes.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    RelativePath::parse(&bytes[..slash]).expect("a part of a path is a path")
}

/// A path as a request has it: encoded. Whatever is accepted has the shape that everything behind relies on.
pub fn check_path(encoded: &[u8]) -> Option<RelativePath> {
    assert_eq!(percent_decode(&percent_encode(encoded)).expect("our own encoding"), encoded);
    check_plain(encoded);
    let text = std::str::from_utf8(encoded).ok()?;
    match percent_decode(text) {
        Ok(bytes) => check_plain(&bytes),
        Err(error) => {
            check_error(&error);
            None
        }
    }
}

fn check_plain(bytes: &[u8]) -> Option<RelativePath> {
    let path = match RelativePath::parse(bytes) {
        Ok(path) => path,
        Err(error) => {
            check_error(&error);
            return None;
        }
    };
    let accepted = path.as_bytes();
    assert!(accepted.len() < PATH_MAX_BYTES && !accepted.contains(&0), "{path:?}");
    if !path.is_root() {
        for name in accepted.split(|byte| *byte == b'/') {
            assert!(!name.is_empty() && name != b"." && name != b".." && name.len() <= NAME_MAX_BYTES, "{path:?}");
        }
    }
    assert_eq!(RelativePath::parse(accepted).expect("what was accepted is accepted again"), path);
    let mounted = [b"/workspace/".as_slice(), accepted].concat();
    assert_eq!(RelativePath::parse(&mounted).expect("also where it is mounted"), path);
    if std::str::from_utf8(accepted).is_ok() {
        assert_eq!(RelativePath::parse(path.to_string().as_bytes()).expect("what is shown can be written"), path);
    }
    Some(path)
}

fn check_entries(list: cofferdam_protocol::files::FileList) {
    for entry in list.entries {
        let raw = percent_decode(&entry.raw).expect("an entry's raw name is encoded");
        assert_eq!(RelativePath::parse(&raw).expect("and can be asked for").as_bytes(), raw);
        assert_ne!(entry.stat.modified_ms, OUTSIDE_MODIFIED_MS, "{}", entry.path);
    }
}

/// Nothing that a request does may look like a fault of ours: those errors become a status 500.
pub fn check_error(error: &FileError) {
    assert!(!matches!(error, FileError::Io { .. } | FileError::KernelTooOld), "{error}");
    assert!(error.to_string().len() < 4 * PATH_MAX_BYTES, "a message of {} bytes", error.to_string().len());
}
