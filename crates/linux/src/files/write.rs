//! Writing one file. A full write goes to a hidden neighbour that takes the file's place at `commit`: readers see the
//! old content or the new one, and a writer that fails leaves nothing behind. Appending changes the file in place.

use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};

use cofferdam_protocol::files::{FileKind, FileStat};
use rustix::fs::{AtFlags, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT};
use rustix::io::Errno;

use super::error::FileError;
use super::path::RelativePath;
use super::resolve::{self, PERMISSION_BITS, WITHOUT_EFFECTS, Workspace};

/// A new file without a mode of its own.
const DEFAULT_MODE: u32 = 0o644;
/// Names of unfinished files; watchers leave them out.
const TEMPORARY_PREFIX: &str = ".cofferdam-";
const TEMPORARY_SUFFIX: &str = ".tmp";
/// Names are random: meeting one that exists even once is a neighbour's work.
const TEMPORARY_ATTEMPTS: usize = 16;

#[derive(Debug, Clone, Copy, Default)]
pub struct WriteOptions {
    /// Permission bits; set-uid, set-gid and sticky are masked off. Without it, a replaced file's mode is kept.
    pub mode: Option<u32>,
    /// Add to the end of the file, in place, instead of replacing it whole.
    pub append: bool,
    /// Create the directories above that are missing.
    pub parents: bool,
}

/// Unless committed, a full write never happened.
#[derive(Debug)]
pub struct FileWriter {
    file: File,
    mode: Option<u32>,
    path: RelativePath,
    /// None when appending.
    temporary: Option<Temporary>,
}

/// A name in a directory that is removed on drop.
#[derive(Debug)]
struct Temporary {
    directory: OwnedFd,
    name: String,
}

impl Workspace {
    pub fn write(&self, path: &RelativePath, options: WriteOptions) -> Result<FileWriter, FileError> {
        let (parent, name) = path.split().ok_or(FileError::IsRoot)?;
        let directory = if options.parents { self.create_directories(&parent)? } else { self.open_parent(path)?.0 };
        let existing = match resolve::stat_entry(&directory, name) {
            Ok(stat) => Some(stat),
            Err(Errno::NOENT) => None,
            Err(errno) => return Err(FileError::from_errno(path, errno)),
        };
        let mode = options.mode.map(|mode| mode & PERMISSION_BITS);
        if options.append {
            if let Some(stat) = &existing {
                resolve::require_regular(path, stat)?;
            }
            let file = open_for_append(path, &directory, name, mode.unwrap_or(DEFAULT_MODE))?;
            return Ok(FileWriter { file, mode, path: path.clone(), temporary: None });
        }
        // Said before the content is sent, and not after; the rename would refuse it too.
        let kept = match existing.map(|stat| (resolve::kind_of(&stat), stat.st_mode & PERMISSION_BITS)) {
            Some((FileKind::Directory, _)) => return Err(FileError::IsDirectory { path: path.to_string() }),
            Some((FileKind::File, mode)) => mode,
            _ => DEFAULT_MODE,
        };
        let (file, temporary) = Temporary::create(path, directory)?;
        Ok(FileWriter { file, mode: Some(mode.unwrap_or(kept)), path: path.clone(), temporary: Some(temporary) })
    }
}

impl FileWriter {
    /// Puts the file in its place. A link or a pipe of that name is replaced, not written through.
    pub fn commit(self) -> Result<FileStat, FileError> {
        let fail = |errno| FileError::from_errno(&self.path, errno);
        if let Some(mode) = self.mode {
            rustix::fs::fchmod(&self.file, Mode::from_raw_mode(mode)).map_err(fail)?;
        }
        if let (Some(temporary), Some((_, name))) = (&self.temporary, self.path.split()) {
            rustix::fs::renameat(&temporary.directory, &temporary.name, &temporary.directory, name).map_err(fail)?;
        }
        // The temporary name is gone now; removing it on drop finds nothing.
        Ok(resolve::file_stat(&rustix::fs::fstat(&self.file).map_err(fail)?))
    }

    /// For archives: after the last byte, before `commit`.
    pub(super) fn set_modified(&self, seconds: i64) -> Result<(), FileError> {
        let times = Timestamps {
            last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT as _ },
            last_modification: Timespec { tv_sec: seconds, tv_nsec: 0 },
        };
        rustix::fs::futimens(&self.file, &times).map_err(|errno| FileError::from_errno(&self.path, errno))
    }
}

impl Write for FileWriter {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.file.write(buffer)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Temporary {
    fn create(path: &RelativePath, directory: OwnedFd) -> Result<(File, Self), FileError> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | WITHOUT_EFFECTS;
        for _ in 0..TEMPORARY_ATTEMPTS {
            // The hasher's keys are random; the standard library has no other source of it in safe code.
            let random = RandomState::new().build_hasher().finish();
            let name = format!("{TEMPORARY_PREFIX}{random:016x}{TEMPORARY_SUFFIX}");
            match rustix::fs::openat(&directory, &name, flags, Mode::from_raw_mode(0o600)) {
                Ok(descriptor) => return Ok((File::from(descriptor), Self { directory, name })),
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(FileError::from_errno(path, errno)),
            }
        }
        Err(FileError::Busy { path: path.to_string() })
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // After a commit, or when a neighbour was faster, there is nothing to remove.
        let _ = rustix::fs::unlinkat(&self.directory, &self.name, AtFlags::empty());
    }
}

pub(super) fn is_temporary(name: &[u8]) -> bool {
    name.starts_with(TEMPORARY_PREFIX.as_bytes()) && name.ends_with(TEMPORARY_SUFFIX.as_bytes())
}

fn open_for_append(path: &RelativePath, directory: impl AsFd, name: &[u8], mode: u32) -> Result<File, FileError> {
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::NOFOLLOW | WITHOUT_EFFECTS;
    let fail = |errno| match errno {
        Errno::LOOP => FileError::IsSymlink { path: path.to_string() },
        errno => FileError::from_errno(path, errno),
    };
    let descriptor = rustix::fs::openat(directory, name, flags, Mode::from_raw_mode(mode)).map_err(fail)?;
    resolve::require_regular(path, &rustix::fs::fstat(&descriptor).map_err(fail)?)?;
    Ok(File::from(descriptor))
}
