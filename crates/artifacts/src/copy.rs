//! A copy of a workspace into an empty one, to start a job from given files or from another job's. Files share their
//! blocks with the original where the file system can (reflink), are copied by the kernel where it can, and keep
//! their holes. Modes (without set-uid), times and links are kept; owners, sockets, pipes and devices are not.

use std::fs::File;

use cofferdam_linux::files::{ARCHIVE_DEFAULT_LIMITS, Content, Creator, Found, RelativePath, Workspace};
use rustix::fs::SeekFrom;
use rustix::io::Errno;

use crate::ArtifactError;

/// One call of the kernel's copying, after which the limit is looked at again.
const STEP_MAX_BYTES: u64 = 64 << 20;
/// Where the kernel does not copy, we do, through this much memory.
const BUFFER_BYTES: usize = 256 << 10;

#[derive(Debug, Clone, Copy)]
pub struct CopyLimits {
    /// Content of all files together, without holes.
    pub bytes: u64,
    pub entries: u64,
}

impl Default for CopyLimits {
    /// As for archives, which carry the same.
    fn default() -> Self {
        Self { bytes: ARCHIVE_DEFAULT_LIMITS.bytes, entries: ARCHIVE_DEFAULT_LIMITS.entries }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Copied {
    pub files: u64,
    pub directories: u64,
    pub symlinks: u64,
    /// Without holes.
    pub bytes: u64,
    /// Sockets, pipes, devices, what we may not read, and what is deeper than a path can be long.
    pub skipped: u64,
}

/// Directories may exist in `to`, nothing else of the same name. After an error, what was copied stays.
pub fn copy_tree(from: &Workspace, to: &Workspace, limits: CopyLimits) -> Result<Copied, ArtifactError> {
    let mut walk = from.sorted_walk(limits.entries)?;
    let mut copy = Copy {
        creator: to.creator()?,
        unfinished: Vec::new(),
        copied: Copied::default(),
        bytes_max: limits.bytes,
        way: Way::Reflink,
    };
    while let Some(found) = walk.next_entry()? {
        copy.add(found)?;
    }
    copy.finish_directories(None)?;
    Ok(copy.copied)
}

struct Copy {
    creator: Creator,
    /// The directories on the way down: their mode may forbid to add entries, and each entry changes their time.
    unfinished: Vec<Directory>,
    copied: Copied,
    bytes_max: u64,
    way: Way,
}

struct Directory {
    path: RelativePath,
    mode: u32,
    modified: (i64, u32),
}

/// How content is copied; each is tried until it turns out not to work between these two file systems.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Reflink,
    Kernel,
    Buffer,
}

impl Copy {
    fn add(&mut self, found: Found) -> Result<(), ArtifactError> {
        let Found { path, mode, content, .. } = found;
        let modified = (found.modified_seconds, found.modified_nanoseconds);
        self.finish_directories(Some(&path))?;
        match content {
            Content::Directory => {
                self.creator.directory(&path)?;
                self.unfinished.push(Directory { path, mode, modified });
                self.copied.directories += 1;
            }
            Content::Symlink(target) => {
                self.creator.symlink(&path, &target, modified)?;
                self.copied.symlinks += 1;
            }
            Content::File { file, size_bytes, allocated_bytes } => {
                let copy = self.creator.file(&path)?;
                self.copy_content(&path, &file, &copy, size_bytes, allocated_bytes)?;
                self.creator.finish_file(&path, &copy, mode, modified)?;
                self.copied.files += 1;
            }
            Content::Unavailable(_) => self.copied.skipped += 1,
        }
        Ok(())
    }

    /// Those that `next` is not in; all, if nothing comes next.
    fn finish_directories(&mut self, next: Option<&RelativePath>) -> Result<(), ArtifactError> {
        let is_open = |directory: &Directory| {
            next.and_then(|next| next.as_bytes().strip_prefix(directory.path.as_bytes()))
                .is_some_and(|rest| rest.starts_with(b"/"))
        };
        while let Some(directory) = self.unfinished.pop_if(|directory| !is_open(directory)) {
            self.creator.finish_directory(&directory.path, directory.mode, directory.modified)?;
        }
        Ok(())
    }

    fn copy_content(
        &mut self,
        path: &RelativePath,
        from: &File,
        to: &File,
        size_bytes: u64,
        allocated_bytes: u64,
    ) -> Result<(), ArtifactError> {
        let fail = |errno: Errno| ArtifactError::Content { path: path.to_string(), source: errno.into() };
        if size_bytes == 0 {
            return Ok(());
        }
        if self.way == Way::Reflink {
            self.allow(allocated_bytes.min(size_bytes))?;
            match rustix::fs::ioctl_ficlone(to, from) {
                Ok(()) => return self.count(allocated_bytes.min(size_bytes)),
                Err(_) => self.way = Way::Kernel,
            }
        }
        let mut position = 0;
        while position < size_bytes {
            let (start, end) = match data(from, position).map_err(fail)? {
                Some((start, end)) if start < size_bytes => (start, end.min(size_bytes)),
                _ => break,
            };
            position = start;
            while position < end {
                let length = (end - position).min(STEP_MAX_BYTES);
                self.allow(length)?;
                let copied = self.copy_range(from, to, position, length).map_err(fail)?;
                if copied == 0 {
                    // It has become shorter; the rest is a hole.
                    break;
                }
                position += copied;
                self.count(copied)?;
            }
            if position < end {
                break;
            }
        }
        // A hole at the end is not written by copying.
        rustix::fs::ftruncate(to, size_bytes).map_err(fail)
    }

    fn copy_range(&mut self, from: &File, to: &File, position: u64, length: u64) -> Result<u64, Errno> {
        if self.way == Way::Kernel {
            let (mut input, mut output) = (position, position);
            match rustix::fs::copy_file_range(from, Some(&mut input), to, Some(&mut output), length as usize) {
                Ok(copied) => return Ok(copied as u64),
                Err(errno @ (Errno::NOSPC | Errno::DQUOT | Errno::IO | Errno::FBIG)) => return Err(errno),
                Err(_) => self.way = Way::Buffer,
            }
        }
        let mut buffer = vec![0; BUFFER_BYTES.min(length as usize)];
        let count = rustix::io::retry_on_intr(|| rustix::io::pread(from, &mut buffer[..], position))?;
        let mut written = 0;
        while written < count {
            written += rustix::io::retry_on_intr(|| {
                rustix::io::pwrite(to, &buffer[written..count], position + written as u64)
            })?;
        }
        Ok(count as u64)
    }

    fn allow(&self, bytes: u64) -> Result<(), ArtifactError> {
        if self.copied.bytes.saturating_add(bytes) > self.bytes_max {
            return Err(ArtifactError::TooLarge { limit: self.bytes_max, what: "bytes" });
        }
        Ok(())
    }

    fn count(&mut self, bytes: u64) -> Result<(), ArtifactError> {
        self.allow(bytes)?;
        self.copied.bytes += bytes;
        Ok(())
    }
}

/// The next stretch at or after `position` that is not a hole. A file system that knows no holes has one stretch.
fn data(file: &File, position: u64) -> Result<Option<(u64, u64)>, Errno> {
    let start = match rustix::fs::seek(file, SeekFrom::Data(position)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return Ok(None),
        Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(Some((position, u64::MAX))),
        Err(errno) => return Err(errno),
    };
    match rustix::fs::seek(file, SeekFrom::Hole(start)) {
        Ok(end) => Ok(Some((start, end))),
        // It was cut meanwhile.
        Err(Errno::NXIO) => Ok(None),
        Err(errno) => Err(errno),
    }
}
