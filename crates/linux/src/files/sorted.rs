//! A whole tree in one fixed order, each entry opened in the moment it is met: for whatever takes a workspace along.
//! Sorting needs the names of the directories on the way down, and these alone, in memory; they are bounded. What is
//! made of the entries is up to the caller.

use std::ffi::{CStr, CString};
use std::fs::File;

use cofferdam_protocol::files::FileKind;
use rustix::fs::{Mode, OFlags, Stat};
use rustix::io::Errno;

use super::error::FileError;
use super::path::{PATH_MAX_BYTES, RelativePath};
use super::resolve::{self, PERMISSION_BITS, WITHOUT_EFFECTS, Workspace};
use super::walk::Walk;

/// st_blocks counts these, whatever the file system's own block size.
const BLOCK_BYTES: u64 = 512;

/// What was met on the way.
#[derive(Debug)]
pub struct Found {
    pub path: RelativePath,
    /// Permission bits, without set-uid, set-gid and sticky.
    pub mode: u32,
    pub modified_seconds: i64,
    pub modified_nanoseconds: u32,
    pub content: Content,
}

#[derive(Debug)]
pub enum Content {
    /// Its entries follow.
    Directory,
    /// The bytes that it points to, whatever they are.
    Symlink(Vec<u8>),
    /// Open for reading, and a regular file. It may grow and shrink meanwhile.
    File { file: File, size_bytes: u64, allocated_bytes: u64 },
    /// There is something that cannot be taken along.
    Unavailable(Unavailable),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    #[error("it is a socket, a pipe or a device")]
    Special,
    #[error("its permissions do not let it be read")]
    Unreadable,
    #[error("its path is longer than 4095 bytes")]
    TooDeep,
}

/// Directories come before their content, and names in the order of their bytes: two walks over equal trees meet the
/// same paths in the same order, which is that of [`compare_paths`].
pub struct SortedWalk {
    walk: Walk,
    /// For each directory on the way down, the names still to come, last first.
    levels: Vec<Vec<CString>>,
    entries_left: u64,
    entries_max: u64,
}

impl std::fmt::Debug for SortedWalk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SortedWalk").field("depth", &self.levels.len()).finish_non_exhaustive()
    }
}

impl Workspace {
    /// Past `entries_max` names the walk ends with an error.
    pub fn sorted_walk(&self, entries_max: u64) -> Result<SortedWalk, FileError> {
        let root = RelativePath::root();
        let walk = Walk::new(self.open_directory(&root)?).map_err(|errno| FileError::from_errno(&root, errno))?;
        let mut sorted = SortedWalk { walk, levels: Vec::new(), entries_left: entries_max, entries_max };
        sorted.read_level()?;
        Ok(sorted)
    }
}

impl SortedWalk {
    /// None at the end. What vanishes before it can be opened is not part of the tree.
    pub fn next_entry(&mut self) -> Result<Option<Found>, FileError> {
        loop {
            let Some(name) = self.levels.last_mut().and_then(Vec::pop) else {
                if self.walk.ascend().map_err(|errno| self.fail(errno))?.is_none() {
                    return Ok(None);
                }
                // A directory that was moved away may have taken several levels along.
                self.levels.truncate(self.walk.depth() + 1);
                continue;
            };
            let Some(mut found) = self.open(&name)? else { continue };
            if matches!(found.content, Content::Directory) {
                match self.walk.descend(&name) {
                    Ok(()) => self.read_level()?,
                    Err(Errno::ACCESS) => found.content = Content::Unavailable(Unavailable::Unreadable),
                    Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue,
                    Err(errno) => return Err(self.fail(errno)),
                }
            }
            return Ok(Some(found));
        }
    }

    /// Leaves out the content of the directory that was given out last.
    pub fn skip_directory(&mut self) {
        if let Some(names) = self.levels.last_mut() {
            names.clear();
        }
    }

    fn read_level(&mut self) -> Result<(), FileError> {
        let mut names = Vec::new();
        while let Some(name) = self.walk.next_name().map_err(|errno| self.fail(errno))? {
            self.entries_left = self
                .entries_left
                .checked_sub(1)
                .ok_or(FileError::TreeTooLarge { limit: self.entries_max, what: "entries" })?;
            names.push(name);
        }
        names.sort_unstable_by(|left, right| right.cmp(left));
        // A name that is removed and made again while the directory is read can be given twice. Once as a link and
        // once as a directory, it would let an archive be unpacked through the link.
        names.dedup();
        self.levels.push(names);
        Ok(())
    }

    fn open(&self, name: &CStr) -> Result<Option<Found>, FileError> {
        let bytes = self.walk.path_of(name);
        if bytes.len() >= PATH_MAX_BYTES {
            // Named by what of its path fits, since a longer one cannot be asked for.
            let path = RelativePath::walked(bytes[..PATH_MAX_BYTES - 1].to_vec());
            let content = Content::Unavailable(Unavailable::TooDeep);
            return Ok(Some(Found { path, mode: 0, modified_seconds: 0, modified_nanoseconds: 0, content }));
        }
        let path = RelativePath::walked(bytes);
        let fail = |errno| FileError::from_errno(&path, errno);
        let directory = self.walk.directory().map_err(fail)?;
        let found = |stat: &Stat, content| Found {
            path: path.clone(),
            mode: stat.st_mode & PERMISSION_BITS,
            modified_seconds: stat.st_mtime,
            modified_nanoseconds: u32::try_from(stat.st_mtime_nsec).unwrap_or(0),
            content,
        };
        let stat = match resolve::stat_entry(directory, name) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(fail(errno)),
        };
        let content = match resolve::kind_of(&stat) {
            FileKind::Directory => Content::Directory,
            FileKind::Symlink => match rustix::fs::readlinkat(directory, name, Vec::new()) {
                Ok(target) => Content::Symlink(target.into_bytes()),
                // It has become something else.
                Err(Errno::NOENT | Errno::INVAL) => return Ok(None),
                Err(errno) => return Err(fail(errno)),
            },
            FileKind::File => {
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | WITHOUT_EFFECTS;
                match rustix::fs::openat(directory, name, flags, Mode::empty()) {
                    Ok(descriptor) => {
                        // What was opened counts, not what was seen before.
                        let stat = rustix::fs::fstat(&descriptor).map_err(fail)?;
                        let content = match resolve::kind_of(&stat) {
                            FileKind::File => Content::File {
                                file: File::from(descriptor),
                                size_bytes: u64::try_from(stat.st_size).unwrap_or(0),
                                allocated_bytes: u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(BLOCK_BYTES),
                            },
                            FileKind::Directory | FileKind::Symlink => return Ok(None),
                            FileKind::Other => Content::Unavailable(Unavailable::Special),
                        };
                        return Ok(Some(found(&stat, content)));
                    }
                    Err(Errno::NOENT | Errno::LOOP) => return Ok(None),
                    // A lease on the file that its holder does not give up.
                    Err(Errno::ACCESS | Errno::PERM | Errno::AGAIN) => Content::Unavailable(Unavailable::Unreadable),
                    Err(Errno::NXIO) => Content::Unavailable(Unavailable::Special),
                    Err(errno) => return Err(fail(errno)),
                }
            }
            FileKind::Other => Content::Unavailable(Unavailable::Special),
        };
        Ok(Some(found(&stat, content)))
    }

    fn fail(&self, errno: Errno) -> FileError {
        FileError::from_errno(String::from_utf8_lossy(&self.walk.path_of(c".")), errno)
    }
}

/// The order of a [`SortedWalk`]: by components, so that a directory is directly followed by its content.
pub fn compare_paths(left: &RelativePath, right: &RelativePath) -> std::cmp::Ordering {
    left.as_bytes().split(|byte| *byte == b'/').cmp(right.as_bytes().split(|byte| *byte == b'/'))
}
