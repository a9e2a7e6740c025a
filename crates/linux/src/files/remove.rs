//! Removing: one entry, or a tree from the inside out. Names are removed in directories that are held open, so that
//! a directory swapped for a link costs the link, never what it points to.

use std::os::fd::OwnedFd;

use cofferdam_protocol::files::FileKind;
use rustix::fs::AtFlags;
use rustix::io::Errno;

use super::error::FileError;
use super::path::RelativePath;
use super::resolve::{self, Workspace};
use super::walk::Walk;

/// One call ends even if another process creates files faster than they are removed. No workspace is meant to hold
/// more; a second call goes on where this one stopped.
const REMOVED_ENTRIES_MAX: u64 = 10_000_000;
/// How often a directory that was emptied may turn out not to be empty.
const REFILLS_MAX: usize = 1_000;

impl Workspace {
    /// Links are removed, not what they point to. A directory with content needs `recursive`.
    pub fn remove(&self, path: &RelativePath, recursive: bool) -> Result<(), FileError> {
        let (directory, name) = self.open_parent(path)?;
        let fail = |errno| FileError::from_errno(path, errno);
        let stat = resolve::stat_entry(&directory, name).map_err(fail)?;
        if resolve::kind_of(&stat) != FileKind::Directory {
            return rustix::fs::unlinkat(&directory, name, AtFlags::empty()).map_err(fail);
        }
        for _ in 0..REFILLS_MAX {
            match rustix::fs::unlinkat(&directory, name, AtFlags::REMOVEDIR) {
                Err(Errno::NOTEMPTY | Errno::EXIST) if recursive => {}
                answer => return answer.map_err(fail),
            }
            empty(resolve::open_subdirectory(&directory, name).map_err(fail)?).map_err(fail)?;
        }
        Err(FileError::Busy { path: path.to_string() })
    }
}

/// Removes everything in a directory.
fn empty(directory: OwnedFd) -> Result<(), Errno> {
    let mut walk = Walk::new(directory)?;
    let mut refills = 0;
    for _ in 0..REMOVED_ENTRIES_MAX {
        if let Some(name) = walk.next_name()? {
            match rustix::fs::unlinkat(walk.directory()?, &name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(refused @ (Errno::ISDIR | Errno::PERM)) => match walk.descend(&name) {
                    Ok(()) | Err(Errno::NOENT) => {}
                    // No directory. Where we were told that it is one it was swapped, and is met again below.
                    Err(Errno::NOTDIR | Errno::LOOP) if refused == Errno::ISDIR => {}
                    Err(Errno::NOTDIR | Errno::LOOP) => return Err(refused),
                    // An empty directory goes without being read.
                    Err(Errno::ACCESS) => {
                        rustix::fs::unlinkat(walk.directory()?, &name, AtFlags::REMOVEDIR).map_err(|_| Errno::ACCESS)?
                    }
                    Err(errno) => return Err(errno),
                },
                Err(errno) => return Err(errno),
            }
            continue;
        }
        let Some(name) = walk.ascend()? else { return Ok(()) };
        match rustix::fs::unlinkat(walk.directory()?, &name, AtFlags::REMOVEDIR) {
            // Swapped for something else: the directory above will not be empty, and is read again.
            Ok(()) | Err(Errno::NOENT | Errno::NOTDIR) => {}
            Err(Errno::NOTEMPTY | Errno::EXIST) if refills < REFILLS_MAX => {
                refills += 1;
                walk.try_descend(&name)?;
            }
            Err(Errno::NOTEMPTY | Errno::EXIST) => return Err(Errno::BUSY),
            Err(errno) => return Err(errno),
        }
    }
    Err(Errno::BUSY)
}
