//! The way from a path to a descriptor, and the only one: `openat2` with RESOLVE_BENEATH, so that no symbolic link,
//! however it is swapped while we look, leads out of the workspace. What is done with the descriptor is not decided
//! here.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use cofferdam_protocol::files::{FileKind, FileStat};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use super::error::FileError;
use super::path::RelativePath;

/// Set-uid, set-gid and sticky are never taken over, in either direction.
pub(super) const PERMISSION_BITS: u32 = 0o777;
/// `openat2` answers EAGAIN when directories are renamed while it passes a `..` in a link, or when a lease is held on
/// the file. Neighbours that only do their work lose such a race rarely; one that never stops gets an error.
const RACES_MAX: usize = 128;
/// A pipe without a writer, a terminal or a lease must not stop or change us.
pub(super) const WITHOUT_EFFECTS: OFlags =
    OFlags::from_bits_retain(OFlags::NONBLOCK.bits() | OFlags::NOCTTY.bits() | OFlags::CLOEXEC.bits());
pub(super) const DIRECTORY: OFlags =
    OFlags::from_bits_retain(OFlags::RDONLY.bits() | OFlags::DIRECTORY.bits() | WITHOUT_EFFECTS.bits());

/// A directory that hostile code changes while we use it. Nothing outside of it is ever reached through it.
#[derive(Debug)]
pub struct Workspace {
    root: OwnedFd,
}

impl Workspace {
    /// `path` is trusted: it comes from the configuration, not from a request.
    pub fn open(path: &Path) -> Result<Self, FileError> {
        let root = rustix::fs::open(path, DIRECTORY, Mode::empty())
            .map_err(|errno| FileError::from_errno(path.display(), errno))?;
        Ok(Self { root })
    }

    /// The descriptor must be a directory opened for reading (not `O_PATH`).
    pub fn from_fd(root: OwnedFd) -> Self {
        Self { root }
    }

    pub fn try_clone(&self) -> Result<Self, FileError> {
        let root = self.root.try_clone().map_err(|source| FileError::Io { path: ".".to_owned(), source })?;
        Ok(Self { root })
    }

    /// Links that stay beneath are followed, also the last one unless `flags` has NOFOLLOW.
    pub(super) fn open_beneath(&self, path: &RelativePath, flags: OFlags) -> Result<OwnedFd, FileError> {
        open_beneath(self.root.as_fd(), path, flags, ResolveFlags::empty())
            .map_err(|errno| FileError::from_errno(path, errno))
    }

    pub(super) fn open_directory(&self, path: &RelativePath) -> Result<OwnedFd, FileError> {
        self.open_beneath(path, DIRECTORY)
    }

    /// The parent as a descriptor and the last name, for calls that must act on the name itself and not on what a
    /// link of that name points to.
    pub(super) fn open_parent<'path>(&self, path: &'path RelativePath) -> Result<(OwnedFd, &'path [u8]), FileError> {
        let (parent, name) = path.split().ok_or(FileError::IsRoot)?;
        let directory = self.open_directory(&parent).map_err(|error| match error {
            // Name what was asked for: "a/b does not exist" reads wrong when the request said a/b/c.
            FileError::NotDirectory { .. } => FileError::NotDirectory { path: path.to_string() },
            error => error,
        })?;
        Ok((directory, name))
    }

    /// Opens a directory, creating it and those above it where they are missing.
    pub(super) fn create_directories(&self, path: &RelativePath) -> Result<OwnedFd, FileError> {
        match self.open_directory(path) {
            Err(FileError::NotFound { .. }) => {}
            answer => return answer,
        }
        let mut directory = self.open_directory(&RelativePath::root())?;
        for prefix in path.prefixes() {
            let (_, name) = prefix.split().ok_or(FileError::IsRoot)?;
            // Does not follow a link in the last place; the open below does, beneath the workspace.
            match rustix::fs::mkdirat(&directory, name, Mode::from_raw_mode(0o755)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(FileError::from_errno(&prefix, errno)),
            }
            directory = self.open_directory(&prefix)?;
        }
        Ok(directory)
    }
}

/// With `ResolveFlags::NO_SYMLINKS`, a link anywhere in the path is an ELOOP.
pub(super) fn open_beneath(
    root: BorrowedFd<'_>,
    path: &RelativePath,
    flags: OFlags,
    further: ResolveFlags,
) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | further;
    let bytes = if path.is_root() { b"." } else { path.as_bytes() };
    for _ in 0..RACES_MAX {
        match rustix::fs::openat2(root, bytes, flags | OFlags::CLOEXEC, Mode::empty(), resolve) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            answer => return answer,
        }
    }
    Err(Errno::AGAIN)
}

/// Opens a subdirectory by its name, never through a link.
pub(super) fn open_subdirectory(directory: impl AsFd, name: impl rustix::path::Arg) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(directory, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())
}

/// The entry itself, not what it points to.
pub(super) fn stat_entry(directory: impl AsFd, name: impl rustix::path::Arg) -> Result<Stat, Errno> {
    rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
}

pub(super) fn kind_of(stat: &Stat) -> FileKind {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => FileKind::File,
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        _ => FileKind::Other,
    }
}

pub(super) fn require_regular(path: &RelativePath, stat: &Stat) -> Result<(), FileError> {
    let path = || path.to_string();
    match kind_of(stat) {
        FileKind::File => Ok(()),
        FileKind::Directory => Err(FileError::IsDirectory { path: path() }),
        FileKind::Symlink => Err(FileError::IsSymlink { path: path() }),
        FileKind::Other => Err(FileError::NotRegular { path: path() }),
    }
}

pub(super) fn file_stat(stat: &Stat) -> FileStat {
    FileStat {
        kind: kind_of(stat),
        size_bytes: u64::try_from(stat.st_size).unwrap_or(0),
        mode: stat.st_mode & PERMISSION_BITS,
        modified_ms: stat.st_mtime.saturating_mul(1_000).saturating_add(stat.st_mtime_nsec as i64 / 1_000_000),
        #[allow(clippy::useless_conversion, reason = "the width of this field depends on the architecture")]
        links: u64::from(stat.st_nlink),
    }
}
