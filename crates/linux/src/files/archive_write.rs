//! A directory or a file as a tar stream. Links are stored as links, several names of one file as several files,
//! sockets, pipes and devices not at all. Owners are left out. Reading archives is in `archive_read`.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};

use cofferdam_protocol::files::FileKind;
use rustix::fs::{Mode, OFlags, Stat};
use rustix::io::Errno;
use tar::{Builder, EntryType, Header};

use super::error::FileError;
use super::path::{PATH_MAX_BYTES, RelativePath};
use super::resolve::{self, PERMISSION_BITS, WITHOUT_EFFECTS, Workspace};
use super::walk::Walk;

/// Bounds of one archive, in either direction. A sparse file of a few blocks is as long as it claims when it is read,
/// so the bound on bytes is needed for writing too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArchiveLimits {
    /// Content of all files together.
    pub bytes: u64,
    pub entries: u64,
}

/// As much as a workspace may hold by default, and as many files as the largest trees of dependencies have.
pub const ARCHIVE_DEFAULT_LIMITS: ArchiveLimits = ArchiveLimits { bytes: 4 << 30, entries: 1_000_000 };

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Archived {
    pub entries: u64,
    pub bytes: u64,
    /// Sockets, pipes, devices, files we may not read, and what is deeper than a path can be long.
    pub skipped: u64,
}

impl Workspace {
    /// A directory's entries are named relative to it; a file is the one entry of its archive.
    pub fn tar_out(
        &self,
        path: &RelativePath,
        writer: impl Write,
        limits: ArchiveLimits,
    ) -> Result<Archived, FileError> {
        let mut archive = ArchiveWriter { builder: Builder::new(writer), written: Archived::default(), limits };
        if self.stat(path, true).is_ok_and(|stat| stat.kind == FileKind::Directory) {
            archive.append_tree(path, self.open_directory(path)?)?;
        } else {
            let (directory, name) = self.open_parent(path)?;
            let stat = resolve::stat_entry(&directory, name).map_err(|errno| FileError::from_errno(path, errno))?;
            archive.append(&directory, name, name, &stat)?;
        }
        archive.builder.finish().and_then(|()| archive.builder.get_mut().flush()).map_err(stream_error)?;
        Ok(archive.written)
    }
}

struct ArchiveWriter<W: Write> {
    builder: Builder<W>,
    written: Archived,
    limits: ArchiveLimits,
}

impl<W: Write> ArchiveWriter<W> {
    fn append_tree(&mut self, path: &RelativePath, directory: OwnedFd) -> Result<(), FileError> {
        let fail = |errno| FileError::from_errno(path, errno);
        let mut walk = Walk::new(directory).map_err(fail)?;
        loop {
            let Some(name) = walk.next_name().map_err(fail)? else {
                match walk.ascend().map_err(fail)? {
                    Some(_) => continue,
                    None => return Ok(()),
                }
            };
            let entry_path = walk.path_of(&name);
            if entry_path.len() >= PATH_MAX_BYTES {
                self.written.skipped += 1;
                continue;
            }
            let directory = walk.directory().map_err(fail)?;
            let stat = match resolve::stat_entry(directory, &name) {
                Ok(stat) => stat,
                // Removed since its name was read: it is not part of the archive.
                Err(Errno::NOENT) => continue,
                Err(errno) => return Err(fail(errno)),
            };
            self.append(directory, name.to_bytes(), &entry_path, &stat)?;
            if resolve::kind_of(&stat) == FileKind::Directory && !walk.try_descend(&name).map_err(fail)? {
                self.written.skipped += 1;
            }
        }
    }

    fn append(&mut self, directory: impl AsFd, name: &[u8], path: &[u8], stat: &Stat) -> Result<(), FileError> {
        let fail = |errno| FileError::from_errno(String::from_utf8_lossy(path), errno);
        let gone = |errno| matches!(errno, Errno::NOENT | Errno::ACCESS | Errno::LOOP | Errno::NXIO | Errno::INVAL);
        match resolve::kind_of(stat) {
            FileKind::Directory => {
                let path = [path, b"/"].concat();
                self.append_entry(&path, EntryType::Directory, stat, &[], 0, io::empty())
            }
            FileKind::Symlink => match rustix::fs::readlinkat(directory, name, Vec::new()) {
                Ok(target) => self.append_entry(path, EntryType::Symlink, stat, target.to_bytes(), 0, io::empty()),
                Err(errno) if gone(errno) => self.skip(),
                Err(errno) => Err(fail(errno)),
            },
            FileKind::File => {
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | WITHOUT_EFFECTS;
                let descriptor = match rustix::fs::openat(directory, name, flags, Mode::empty()) {
                    Ok(descriptor) => descriptor,
                    Err(errno) if gone(errno) => return self.skip(),
                    Err(errno) => return Err(fail(errno)),
                };
                // What was opened counts, not what was seen before.
                let stat = rustix::fs::fstat(&descriptor).map_err(fail)?;
                if resolve::kind_of(&stat) != FileKind::File {
                    return self.skip();
                }
                let size = u64::try_from(stat.st_size).unwrap_or(0);
                // The header has promised `size` bytes: what grows meanwhile is cut, what shrinks is filled up.
                let content = File::from(descriptor).take(size).chain(io::repeat(0)).take(size);
                self.append_entry(path, EntryType::Regular, &stat, &[], size, content)
            }
            FileKind::Other => self.skip(),
        }
    }

    fn append_entry(
        &mut self,
        path: &[u8],
        kind: EntryType,
        stat: &Stat,
        target: &[u8],
        size: u64,
        content: impl Read,
    ) -> Result<(), FileError> {
        self.written.entries += 1;
        self.written.bytes = self.written.bytes.saturating_add(size);
        check_limits(self.limits, self.written.entries, self.written.bytes)?;
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(stat.st_mode & PERMISSION_BITS);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(u64::try_from(stat.st_mtime).unwrap_or(0));
        header.set_size(size);
        // Written as bytes, and not by the library's functions for paths: these lose names that are not UTF-8.
        self.set_name(&mut header, path, EntryType::GNULongName, |header| &mut header.as_old_mut().name)?;
        self.set_name(&mut header, target, EntryType::GNULongLink, |header| &mut header.as_old_mut().linkname)?;
        header.set_cksum();
        self.builder.append(&header, content).map_err(stream_error)
    }

    /// A name that does not fit into the header goes before it, in an entry of GNU's making.
    fn set_name(
        &mut self,
        header: &mut Header,
        name: &[u8],
        long: EntryType,
        field: fn(&mut Header) -> &mut [u8; 100],
    ) -> Result<(), FileError> {
        let field = field(header);
        let fitting = name.len().min(field.len());
        field[..fitting].copy_from_slice(&name[..fitting]);
        if name.len() == fitting {
            return Ok(());
        }
        let mut before = Header::new_gnu();
        before.as_old_mut().name[..13].copy_from_slice(b"././@LongLink");
        before.set_entry_type(long);
        before.set_mode(0o644);
        before.set_uid(0);
        before.set_gid(0);
        before.set_mtime(0);
        // GNU tar counts a terminating NUL.
        before.set_size(name.len() as u64 + 1);
        before.set_cksum();
        self.builder.append(&before, name.chain(&[0u8][..])).map_err(stream_error)
    }

    fn skip(&mut self) -> Result<(), FileError> {
        self.written.skipped += 1;
        Ok(())
    }
}

pub(super) fn check_limits(limits: ArchiveLimits, entries: u64, bytes: u64) -> Result<(), FileError> {
    if entries > limits.entries {
        return Err(FileError::ArchiveTooLarge { limit: limits.entries, what: "entries" });
    }
    if bytes > limits.bytes {
        return Err(FileError::ArchiveTooLarge { limit: limits.bytes, what: "bytes" });
    }
    Ok(())
}

pub(super) fn stream_error(source: io::Error) -> FileError {
    FileError::ArchiveStream { source }
}
