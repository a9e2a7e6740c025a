//! Unpacking a tar stream that may come from anywhere. Each entry is placed by the same resolution as any other
//! request, beneath the directory that was named: links in the archive can be created, but not used to get out.
//! Owners, set-uid bits and devices are not taken over.

use std::cell::Cell;
use std::io::{self, Read};
use std::rc::Rc;

use cofferdam_protocol::files::FileKind;
use rustix::fs::{AtFlags, Mode};
use rustix::io::Errno;
use tar::{Archive, Entry, EntryType};

use super::archive_write::{ArchiveLimits, check_limits, stream_error};
use super::error::FileError;
use super::path::{RelativePath, lossy};
use super::resolve::{self, PERMISSION_BITS, Workspace};
use super::write::WriteOptions;

/// What may stand before one entry: its header, a long name, a long link and extended attributes. The tar library
/// keeps these in memory at whatever size they claim.
const HEADERS_MAX_BYTES: u64 = 1 << 20;
/// A directory without these for its owner could not be filled by the entries that follow.
const DIRECTORY_OWNER_BITS: u32 = 0o700;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Extracted {
    pub entries: u64,
    pub bytes: u64,
    /// Devices, pipes and entries of unknown kinds.
    pub skipped: u64,
}

impl Workspace {
    /// Unpacks into the directory `path`, which is created where it is missing. Files are replaced one by one; after
    /// an error, the entries before it stay. The reader is left directly after the archive's end mark.
    pub fn tar_in(
        &self,
        path: &RelativePath,
        reader: impl Read,
        limits: ArchiveLimits,
    ) -> Result<Extracted, FileError> {
        // Entries are resolved beneath this directory, so that a link in it cannot lead to the rest of the workspace.
        let destination = Self::from_fd(self.create_directories(path)?);
        let headers = Rc::new(Cell::new(None));
        let mut archive = Archive::new(Guarded { reader, allowance: Rc::clone(&headers) });
        let mut extracted = Extracted::default();
        let mut entries = archive.entries().map_err(stream_error)?;
        loop {
            headers.set(Some(HEADERS_MAX_BYTES));
            let Some(entry) = entries.next() else { return Ok(extracted) };
            headers.set(None);
            let mut entry = entry.map_err(stream_error)?;
            extracted.entries += 1;
            let content = if has_content(entry.header().entry_type()) { entry.size() } else { 0 };
            check_limits(limits, extracted.entries, extracted.bytes.saturating_add(content))?;
            extracted.bytes += content;
            if !destination.extract(&mut entry, content)? {
                extracted.skipped += 1;
            }
            // What is left is read here, where it does not count as headers.
            let rest = io::copy(&mut entry, &mut io::sink()).map_err(stream_error)?;
            extracted.bytes = extracted.bytes.saturating_add(rest);
            check_limits(limits, extracted.entries, extracted.bytes)?;
        }
    }

    /// False if it is of a kind that is left out.
    fn extract(&self, entry: &mut Entry<'_, impl Read>, size: u64) -> Result<bool, FileError> {
        let kind = entry.header().entry_type();
        let name = entry.path_bytes().into_owned();
        let refuse = |reason| FileError::ArchiveEntry { entry: lossy(&name), reason };
        if kind.is_pax_global_extensions() {
            return Ok(false);
        }
        let path = RelativePath::parse_archived(&name)?;
        if path.is_root() {
            // "./", the directory itself: it is there, and its mode is not the archive's business.
            return if kind.is_dir() { Ok(true) } else { Err(refuse("it would replace the directory itself")) };
        }
        let mode = entry.header().mode().map_err(stream_error)? & PERMISSION_BITS;
        match kind {
            EntryType::Directory => self.extract_directory(&path, mode)?,
            kind if has_content(kind) => {
                let mut writer = self.write(&path, WriteOptions { mode: Some(mode), append: false, parents: true })?;
                let copied = io::copy(entry, &mut writer).map_err(|source| copy_error(&path, source))?;
                if copied != size {
                    return Err(refuse("the archive ends in the middle of it"));
                }
                let modified = entry.header().mtime().map_err(stream_error)?;
                writer.set_modified(i64::try_from(modified).unwrap_or(0))?;
                writer.commit()?;
            }
            EntryType::Symlink => {
                let target = entry.link_name_bytes().ok_or_else(|| refuse("it is a link without a target"))?;
                let (parent, name) = self.make_room(&path)?;
                rustix::fs::symlinkat(target.as_ref(), parent, name)
                    .map_err(|errno| FileError::from_errno(&path, errno))?;
            }
            EntryType::Link => {
                let target = entry.link_name_bytes().ok_or_else(|| refuse("it is a link without a target"))?;
                let target = RelativePath::parse_archived(&target)
                    .map_err(|_| refuse("it is a hard link to something outside of the archive"))?;
                self.extract_hard_link(&path, &target)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn extract_directory(&self, path: &RelativePath, mode: u32) -> Result<(), FileError> {
        let fail = |errno| FileError::from_errno(path, errno);
        let (parent, name) = match self.make_room(path) {
            Err(FileError::IsDirectory { .. }) => self.open_parent(path)?,
            other => other?,
        };
        match rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(DIRECTORY_OWNER_BITS)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(fail(errno)),
        }
        let directory = resolve::open_subdirectory(&parent, name).map_err(fail)?;
        rustix::fs::fchmod(directory, Mode::from_raw_mode(mode | DIRECTORY_OWNER_BITS)).map_err(fail)
    }

    fn extract_hard_link(&self, path: &RelativePath, target: &RelativePath) -> Result<(), FileError> {
        let (target_parent, target_name) = self.open_parent(target)?;
        let stat =
            resolve::stat_entry(&target_parent, target_name).map_err(|errno| FileError::from_errno(target, errno))?;
        resolve::require_regular(target, &stat)?;
        if path == target {
            return Ok(());
        }
        let (parent, name) = self.make_room(path)?;
        // Without AT_SYMLINK_FOLLOW: should the target have become a link, it is the link that gets a second name.
        rustix::fs::linkat(target_parent, target_name, parent, name, AtFlags::empty())
            .map_err(|errno| FileError::from_errno(path, errno))
    }

    /// The parent (created where it is missing) and the name, which is free afterwards unless it is a directory's.
    fn make_room<'path>(&self, path: &'path RelativePath) -> Result<(std::os::fd::OwnedFd, &'path [u8]), FileError> {
        let (parent, _) = path.split().ok_or(FileError::IsRoot)?;
        self.create_directories(&parent)?;
        let (parent, name) = self.open_parent(path)?;
        match resolve::stat_entry(&parent, name) {
            Err(Errno::NOENT) => return Ok((parent, name)),
            Err(errno) => return Err(FileError::from_errno(path, errno)),
            Ok(stat) if resolve::kind_of(&stat) == FileKind::Directory => {
                return Err(FileError::IsDirectory { path: path.to_string() });
            }
            Ok(_) => {}
        }
        match rustix::fs::unlinkat(&parent, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok((parent, name)),
            Err(errno) => Err(FileError::from_errno(path, errno)),
        }
    }
}

fn has_content(kind: EntryType) -> bool {
    matches!(kind, EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse)
}

fn copy_error(path: &RelativePath, source: io::Error) -> FileError {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => FileError::NoSpace { path: path.to_string() },
        _ => stream_error(source),
    }
}

/// Fails once more is read than the allowance, where there is one.
struct Guarded<R> {
    reader: R,
    allowance: Rc<Cell<Option<u64>>>,
}

impl<R: Read> Read for Guarded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.reader.read(buffer)?;
        if let Some(allowance) = self.allowance.get() {
            let left = allowance.checked_sub(count as u64).ok_or_else(|| {
                io::Error::new(io::ErrorKind::InvalidData, "the headers of one entry are larger than 1 MiB")
            })?;
            self.allowance.set(Some(left));
        }
        Ok(count)
    }
}
