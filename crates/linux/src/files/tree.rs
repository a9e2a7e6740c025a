//! What is in a directory: one level, a whole tree, and how much room everything takes. Answers are bounded; a
//! hostile workspace costs a truncated answer, never the caller's memory or time.

use std::collections::HashSet;
use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use cofferdam_protocol::files::{FileEntry, FileKind, FileList};
use rustix::fs::Stat;
use rustix::io::Errno;

use super::error::FileError;
use super::path::{RelativePath, percent_encode};
use super::resolve::{self, Workspace};
use super::walk::Walk;

/// More than a person reads or a model is shown.
pub const LIST_ENTRIES_MAX: usize = 10_000;
/// A large source tree with its dependencies; about 10 MB of answer.
pub const TREE_ENTRIES_MAX: usize = 50_000;
/// All paths of one answer together. Every entry repeats the path that leads to it, so that a deep tree with few
/// entries would fill the memory long before their number does.
const PATH_BYTES_MAX: usize = 32 << 20;
/// The least that a file costs: directories, links and empty files take inodes, which run out as bytes do.
const ENTRY_MIN_BYTES: u64 = 4096;
/// st_blocks counts these, whatever the file system's own block size.
const BLOCK_BYTES: u64 = 512;
/// Files with several links that are remembered in order to count them once (about 4 MB). Past this they count each
/// time, which overstates the use and never hides any.
const LINKED_FILES_MAX: usize = 100_000;
/// How many entries pass between two looks at the clock.
const ENTRIES_PER_CLOCK: u64 = 256;

/// Room taken by the whole workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Blocks on disk, at least 4 KiB per entry; a file with several names counts once.
    pub bytes: u64,
    pub entries: u64,
    /// False when the time ran out: the true numbers are at least these.
    pub complete: bool,
}

impl Workspace {
    /// The entries of one directory, sorted by name.
    pub fn list(&self, path: &RelativePath) -> Result<FileList, FileError> {
        let directory = self.open_directory(path)?;
        collect(directory, 1, LIST_ENTRIES_MAX).map_err(|errno| FileError::from_errno(path, errno))
    }

    /// The entries down to `depth` levels (1 is one directory), sorted by path. Links are listed, not followed.
    pub fn tree(&self, path: &RelativePath, depth: usize) -> Result<FileList, FileError> {
        let directory = self.open_directory(path)?;
        collect(directory, depth, TREE_ENTRIES_MAX).map_err(|errno| FileError::from_errno(path, errno))
    }

    /// Counts the whole workspace, for as long as `budget` allows. Files that are deleted but still open are not seen.
    pub fn usage(&self, budget: Duration) -> Result<Usage, FileError> {
        let root = RelativePath::root();
        count(self.open_directory(&root)?, Instant::now() + budget).map_err(|errno| FileError::from_errno(&root, errno))
    }
}

fn collect(directory: OwnedFd, depth: usize, entries_max: usize) -> Result<FileList, Errno> {
    let mut walk = Walk::new(directory)?;
    let mut entries: Vec<(Vec<u8>, FileEntry)> = Vec::new();
    let mut path_bytes = 0;
    let mut truncated = false;
    loop {
        let Some(name) = walk.next_name()? else {
            match walk.ascend()? {
                Some(_) => continue,
                None => break,
            }
        };
        let stat = match resolve::stat_entry(walk.directory()?, &name) {
            Ok(stat) => stat,
            // Removed since its name was read.
            Err(Errno::NOENT) => continue,
            Err(errno) => return Err(errno),
        };
        let path = walk.path_of(&name);
        let entry = describe(walk.directory()?, &name, &path, &stat);
        path_bytes += path.len() + entry.path.len() + entry.raw.len() + entry.target.as_ref().map_or(0, String::len);
        if entries.len() == entries_max || path_bytes > PATH_BYTES_MAX {
            truncated = true;
            break;
        }
        let descend = entry.stat.kind == FileKind::Directory && walk.depth() + 1 < depth;
        entries.push((sorting_key(path), entry));
        if descend {
            walk.try_descend(&name)?;
        }
    }
    entries.sort_unstable_by(|(left, _), (right, _)| left.cmp(right));
    Ok(FileList { entries: entries.into_iter().map(|(_, entry)| entry).collect(), truncated })
}

/// Sorts by components, so that a directory is directly followed by its content: no name holds a NUL.
fn sorting_key(mut path: Vec<u8>) -> Vec<u8> {
    path.iter_mut().filter(|byte| **byte == b'/').for_each(|byte| *byte = 0);
    path
}

fn describe(directory: impl AsFd, name: &CStr, path: &[u8], stat: &Stat) -> FileEntry {
    let stat = resolve::file_stat(stat);
    let target = match stat.kind {
        // A link that has become something else meanwhile has no target.
        FileKind::Symlink => rustix::fs::readlinkat(directory, name, Vec::new()).ok(),
        _ => None,
    };
    FileEntry {
        path: String::from_utf8_lossy(path).into_owned(),
        raw: percent_encode(path),
        stat,
        target: target.map(|target| String::from_utf8_lossy(target.to_bytes()).into_owned()),
    }
}

fn count(directory: OwnedFd, deadline: Instant) -> Result<Usage, Errno> {
    let mut walk = Walk::new(directory)?;
    let mut usage = Usage::default();
    let mut linked = HashSet::new();
    loop {
        let Some(name) = walk.next_name()? else {
            match walk.ascend()? {
                Some(_) => continue,
                None => return Ok(Usage { complete: true, ..usage }),
            }
        };
        if usage.entries.is_multiple_of(ENTRIES_PER_CLOCK) && Instant::now() >= deadline {
            return Ok(usage);
        }
        usage.entries += 1;
        let stat = match resolve::stat_entry(walk.directory()?, &name) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => continue,
            Err(errno) => return Err(errno),
        };
        let is_directory = resolve::kind_of(&stat) == FileKind::Directory;
        let counted_before = !is_directory
            && stat.st_nlink > 1
            && if linked.len() < LINKED_FILES_MAX {
                !linked.insert((stat.st_dev, stat.st_ino))
            } else {
                linked.contains(&(stat.st_dev, stat.st_ino))
            };
        if !counted_before {
            let blocks = u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(BLOCK_BYTES);
            usage.bytes = usage.bytes.saturating_add(blocks.max(ENTRY_MIN_BYTES));
        }
        if is_directory {
            walk.try_descend(&name)?;
        }
    }
}
