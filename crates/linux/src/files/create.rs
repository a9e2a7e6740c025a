//! Filling a directory with a new tree, entry by entry, in the order of a [`super::SortedWalk`]. Nothing that exists
//! is replaced or followed, so that a copy cannot be led elsewhere. Replacing files is in `write`.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, Timespec, Timestamps, UTIME_OMIT};

use super::error::FileError;
use super::path::RelativePath;
use super::resolve::{self, PERMISSION_BITS, WITHOUT_EFFECTS, Workspace};

/// Until they are finished, files and directories are their owner's alone, and a directory can be filled whatever
/// mode it ends with.
const UNFINISHED_DIRECTORY_MODE: u32 = 0o700;
const UNFINISHED_FILE_MODE: u32 = 0o600;

/// Keeps the directory that the last entry went to, since the next one mostly goes there too.
#[derive(Debug)]
pub struct Creator {
    root: OwnedFd,
    parent: Option<(RelativePath, OwnedFd)>,
}

impl Workspace {
    /// The workspace is filled through what is returned; directories may exist already, nothing else.
    pub fn creator(&self) -> Result<Creator, FileError> {
        Ok(Creator { root: self.open_directory(&RelativePath::root())?, parent: None })
    }
}

impl Creator {
    /// Its mode and time are set by [`Self::finish_directory`], after its last entry.
    pub fn directory(&mut self, path: &RelativePath) -> Result<(), FileError> {
        let (parent, name) = self.parent_of(path)?;
        match rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(UNFINISHED_DIRECTORY_MODE)) {
            // What has this name is looked at when the first entry goes into it, or when it is finished.
            Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
            Err(errno) => Err(FileError::from_errno(path, errno)),
        }
    }

    pub fn finish_directory(&mut self, path: &RelativePath, mode: u32, modified: (i64, u32)) -> Result<(), FileError> {
        let directory = self.open(path)?;
        finish(path, &directory, mode, modified)
    }

    /// Empty and open for writing; [`Self::finish_file`] gives it its mode and time.
    pub fn file(&mut self, path: &RelativePath) -> Result<File, FileError> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | WITHOUT_EFFECTS;
        let (parent, name) = self.parent_of(path)?;
        rustix::fs::openat(parent, name, flags, Mode::from_raw_mode(UNFINISHED_FILE_MODE))
            .map(File::from)
            .map_err(|errno| FileError::from_errno(path, errno))
    }

    pub fn finish_file(
        &self,
        path: &RelativePath,
        file: &File,
        mode: u32,
        modified: (i64, u32),
    ) -> Result<(), FileError> {
        finish(path, file, mode, modified)
    }

    pub fn symlink(&mut self, path: &RelativePath, target: &[u8], modified: (i64, u32)) -> Result<(), FileError> {
        let (parent, name) = self.parent_of(path)?;
        rustix::fs::symlinkat(target, parent, name)
            .and_then(|()| rustix::fs::utimensat(parent, name, &times(modified), AtFlags::SYMLINK_NOFOLLOW))
            .map_err(|errno| FileError::from_errno(path, errno))
    }

    fn parent_of<'path>(&mut self, path: &'path RelativePath) -> Result<(&OwnedFd, &'path [u8]), FileError> {
        let (parent, name) = path.split().ok_or(FileError::IsRoot)?;
        if self.parent.as_ref().is_none_or(|(kept, _)| *kept != parent) {
            let directory = self.open(&parent)?;
            self.parent = Some((parent, directory));
        }
        let (_, directory) = self.parent.as_ref().ok_or(FileError::IsRoot)?;
        Ok((directory, name))
    }

    fn open(&self, path: &RelativePath) -> Result<OwnedFd, FileError> {
        resolve::open_beneath(self.root.as_fd(), path, resolve::DIRECTORY, ResolveFlags::NO_SYMLINKS)
            .map_err(|errno| FileError::from_errno(path, errno))
    }
}

fn finish(path: &RelativePath, descriptor: impl AsFd, mode: u32, modified: (i64, u32)) -> Result<(), FileError> {
    rustix::fs::fchmod(&descriptor, Mode::from_raw_mode(mode & PERMISSION_BITS))
        .and_then(|()| rustix::fs::futimens(&descriptor, &times(modified)))
        .map_err(|errno| FileError::from_errno(path, errno))
}

fn times((seconds, nanoseconds): (i64, u32)) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT as _ },
        last_modification: Timespec { tv_sec: seconds, tv_nsec: nanoseconds as _ },
    }
}
