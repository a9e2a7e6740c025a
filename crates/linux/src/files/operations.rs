//! Operations on one path: read, stat, mkdir, rename. Writing, removing, trees and archives have their own files.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Take};
use std::ops::Range;
use std::os::fd::OwnedFd;

use cofferdam_protocol::files::FileStat;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::error::FileError;
use super::path::RelativePath;
use super::resolve::{self, WITHOUT_EFFECTS, Workspace};

impl Workspace {
    /// A regular file, positioned at the range's start and limited to its end and to the size it has now, whichever
    /// comes first: what is announced to a client is at most what follows. A range past the end reads as empty.
    pub fn read(&self, path: &RelativePath, range: Option<Range<u64>>) -> Result<(Take<File>, FileStat), FileError> {
        // Looked at before it is opened, since opening a pipe wakes up whoever waits at its other end; and looked at
        // again, since it may have been swapped in between.
        let before = self.open_beneath(path, OFlags::PATH)?;
        let stat = rustix::fs::fstat(&before).map_err(|errno| FileError::from_errno(path, errno))?;
        resolve::require_regular(path, &stat)?;
        let descriptor = self.open_beneath(path, OFlags::RDONLY | WITHOUT_EFFECTS)?;
        let stat = rustix::fs::fstat(&descriptor).map_err(|errno| FileError::from_errno(path, errno))?;
        resolve::require_regular(path, &stat)?;

        let stat = resolve::file_stat(&stat);
        let mut file = File::from(descriptor);
        let range = range.unwrap_or(0..u64::MAX);
        let start = range.start.min(stat.size_bytes);
        if start > 0 {
            file.seek(SeekFrom::Start(start)).map_err(|source| FileError::Io { path: path.to_string(), source })?;
        }
        let length = range.end.min(stat.size_bytes).saturating_sub(start);
        Ok((file.take(length), stat))
    }

    /// What is at `path`; with `follow`, what a link there points to.
    pub fn stat(&self, path: &RelativePath, follow: bool) -> Result<FileStat, FileError> {
        let stat = if follow || path.is_root() {
            rustix::fs::fstat(self.open_beneath(path, OFlags::PATH)?)
        } else {
            let (directory, name) = self.open_parent(path)?;
            resolve::stat_entry(directory, name)
        };
        Ok(resolve::file_stat(&stat.map_err(|errno| FileError::from_errno(path, errno))?))
    }

    /// With `parents`, the directories above are made too, and a directory that exists is no mistake.
    pub fn mkdir(&self, path: &RelativePath, parents: bool) -> Result<(), FileError> {
        if parents {
            return self.create_directories(path).map(drop);
        }
        let (directory, name) = self.open_parent(path)?;
        rustix::fs::mkdirat(directory, name, Mode::from_raw_mode(0o755))
            .map_err(|errno| FileError::from_errno(path, errno))
    }

    /// Replaces a file at `to`, as rename(2) does. A link is renamed, not what it points to.
    pub fn rename(&self, from: &RelativePath, to: &RelativePath) -> Result<(), FileError> {
        let (from_directory, from_name) = self.open_parent(from)?;
        let (to_directory, to_name) = self.open_parent(to)?;
        rename_entry(&from_directory, from_name, &to_directory, to_name).map_err(|errno| match errno {
            Errno::NOENT => FileError::from_errno(from, errno),
            Errno::INVAL => FileError::InvalidPath {
                path: to.to_string(),
                reason: "a directory cannot be moved into itself; choose a place outside of it",
            },
            errno => FileError::from_errno(to, errno),
        })
    }
}

fn rename_entry(from: &OwnedFd, from_name: &[u8], to: &OwnedFd, to_name: &[u8]) -> Result<(), Errno> {
    match rustix::fs::renameat(from, from_name, to, to_name) {
        // Here EXDEV speaks of two file systems, and not of an escape.
        Err(Errno::XDEV) => Err(Errno::OPNOTSUPP),
        answer => answer,
    }
}
