//! What a job changed, as a patch that `git apply` turns the base into the workspace with (`patch -p1` too, where
//! there is only text). Without a base everything is new. Both trees are walked side by side and every file is read:
//! equal sizes and times prove nothing about what hostile code has written.
//!
//! A patch holds what git knows: content, links, and whether a file can be executed. Empty directories and other mode
//! bits are not in it. `.git` is left out at every level, since git takes no such path from a patch. Files that are
//! too large or cannot be read are left out as well, with a line that says so between the files of the patch: a mark
//! in the patch itself, such as "Binary files differ", would make git refuse all of it.
//!
//! One change git cannot make: a link that points to itself or to a directory, with a directory in its place
//! afterwards. It looks for the new files through the old link, and refuses the patch.

mod binary;
mod name;
mod section;
mod text;

use std::cmp::Ordering;
use std::fs::File;
use std::io::{self, Read, Write};

use cofferdam_linux::files::{
    ARCHIVE_DEFAULT_LIMITS, Content, Found, RelativePath, SortedWalk, Unavailable, Workspace, compare_paths,
};

use crate::ArtifactError;
use section::{Blob, GitMode, write_change, write_mode_change};

/// Neither reviewed by a person nor wanted in a repository beyond this. Two of them, and what is written of them, are
/// in memory at a time.
const FILE_MAX_BYTES: u64 = 8 << 20;
/// As much as one wants to download, or to have applied.
const PATCH_MAX_BYTES: u64 = 256 << 20;
/// Both sides together. Sparse files are as long as they claim when they are read, so that without it a workspace
/// of a few kilobytes could be read for days.
const READ_MAX_BYTES: u64 = 32 << 30;
/// Lines about files that were left out; the others are only counted.
const LEFT_OUT_NAMED_MAX: u64 = 1_000;
const COMPARE_BUFFER_BYTES: usize = 128 << 10;

#[derive(Debug, Clone, Copy)]
pub struct PatchOptions {
    /// Of one file, on either side.
    pub file_bytes: u64,
    /// Of the patch. What does not fit is left out; what comes later and is smaller may fit again.
    pub patch_bytes: u64,
    pub read_bytes: u64,
    /// In each of the two trees; more are an error.
    pub entries: u64,
}

impl Default for PatchOptions {
    fn default() -> Self {
        Self {
            file_bytes: FILE_MAX_BYTES,
            patch_bytes: PATCH_MAX_BYTES,
            read_bytes: READ_MAX_BYTES,
            entries: ARCHIVE_DEFAULT_LIMITS.entries,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Patched {
    pub files_changed: u64,
    pub insertions: u64,
    pub deletions: u64,
    pub patch_bytes: u64,
    /// Changed or perhaps changed, but not in the patch.
    pub left_out: u64,
}

pub fn write_patch(
    base: Option<&Workspace>,
    workspace: &Workspace,
    out: impl Write,
    options: PatchOptions,
) -> Result<Patched, ArtifactError> {
    let mut patch = Patch { out, options, read_bytes: 0, budget: text::Budget::default(), patched: Patched::default() };
    let mut old = Side::new(base, options.entries)?;
    let mut new = Side::new(Some(workspace), options.entries)?;
    // What is beneath a directory that cannot be read any more was not removed.
    let mut unknown: Option<RelativePath> = None;
    loop {
        let order = match (&old.next, &new.next) {
            (Some(old), Some(new)) => compare_paths(&old.path, &new.path),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => break,
        };
        let before = if order.is_le() { old.take()? } else { None };
        let after = if order.is_ge() { new.take()? } else { None };
        if let Some(after) = &after
            && matches!(after.content, Content::Unavailable(_))
        {
            unknown = Some(after.path.clone());
        }
        let is_unknown = |found: &Found| unknown.as_ref().is_some_and(|path| is_beneath(&found.path, path));
        if after.is_none() && before.as_ref().is_some_and(is_unknown) {
            continue;
        }
        patch.add(before, after)?;
    }
    patch.finish()
}

/// One of the two trees, and its next entry that is not a directory whose content follows.
struct Side {
    walk: Option<SortedWalk>,
    next: Option<Found>,
}

impl Side {
    fn new(workspace: Option<&Workspace>, entries_max: u64) -> Result<Self, ArtifactError> {
        let walk = workspace.map(|workspace| workspace.sorted_walk(entries_max)).transpose()?;
        let mut side = Self { walk, next: None };
        side.take()?;
        Ok(side)
    }

    fn take(&mut self) -> Result<Option<Found>, ArtifactError> {
        let taken = self.next.take();
        let Some(walk) = &mut self.walk else { return Ok(taken) };
        while let Some(found) = walk.next_entry()? {
            let is_directory = matches!(found.content, Content::Directory);
            let is_refused = is_refused(&found);
            if is_directory && is_refused {
                walk.skip_directory();
            }
            if last_name(&found.path) == b".git" || (is_directory && !is_refused) {
                continue;
            }
            self.next = Some(found);
            break;
        }
        Ok(taken)
    }
}

enum Loaded {
    Blob(Blob),
    /// Not read: it is longer than what is taken into memory.
    Large {
        mode: GitMode,
        file: File,
        size_bytes: u64,
    },
    LeftOut(String),
}

struct Patch<W: Write> {
    out: W,
    options: PatchOptions,
    read_bytes: u64,
    budget: text::Budget,
    patched: Patched,
}

impl<W: Write> Patch<W> {
    fn add(&mut self, before: Option<Found>, after: Option<Found>) -> Result<(), ArtifactError> {
        let Some(path) = after.as_ref().or(before.as_ref()).map(|found| found.path.clone()) else { return Ok(()) };
        let is_special = |found: &Option<Found>| {
            matches!(found, Some(Found { content: Content::Unavailable(Unavailable::Special), .. }))
        };
        // A pipe that was there before and still is has not changed.
        if is_special(&before) && (is_special(&after) || after.is_none()) {
            return Ok(());
        }
        let before = before.map(|found| self.load(found)).transpose()?;
        let after = after.map(|found| self.load(found)).transpose()?;
        match (before, after) {
            (_, Some(Loaded::LeftOut(reason))) | (Some(Loaded::LeftOut(reason)), _) => self.leave_out(&path, &reason),
            (
                Some(Loaded::Large { mode, mut file, size_bytes }),
                Some(Loaded::Large { mode: new_mode, file: mut new_file, size_bytes: new_size_bytes }),
            ) => {
                let same = size_bytes == new_size_bytes && {
                    self.read_bytes = self.read_bytes.saturating_add(size_bytes.saturating_mul(2));
                    if self.read_bytes > self.options.read_bytes {
                        return self.leave_out(&path, READ_LIMIT_REASON);
                    }
                    same_content(&mut file, &mut new_file, size_bytes).map_err(|source| content_error(&path, source))?
                };
                match (same, mode == new_mode) {
                    (true, true) => Ok(()),
                    (true, false) => {
                        let mut section = Vec::new();
                        write_mode_change(&mut section, &path, mode, new_mode);
                        self.write_section(&path, &section, text::Counts::default())
                    }
                    (false, _) => self.leave_out(&path, &self.too_large()),
                }
            }
            (Some(Loaded::Large { .. }), _) | (_, Some(Loaded::Large { .. })) => {
                self.leave_out(&path, &self.too_large())
            }
            (before, after) => {
                let blob = |loaded| match loaded {
                    Some(Loaded::Blob(blob)) => Some(blob),
                    _ => None,
                };
                self.add_blobs(&path, blob(before), blob(after))
            }
        }
    }

    fn add_blobs(&mut self, path: &RelativePath, old: Option<Blob>, new: Option<Blob>) -> Result<(), ArtifactError> {
        let mut section = Vec::new();
        let budget = &mut self.budget;
        let counts = match (&old, &new) {
            (Some(old), Some(new)) if old.mode == new.mode && old.content == new.content => return Ok(()),
            // A file that became a link, or a link a file, is removed and made again.
            (Some(old), Some(new)) if (old.mode == GitMode::Symlink) != (new.mode == GitMode::Symlink) => {
                let removed = write_change(&mut section, path, Some(old), None, budget);
                let added = write_change(&mut section, path, None, Some(new), budget);
                removed.and_then(|removed| {
                    Ok(text::Counts { insertions: added?.insertions, deletions: removed.deletions })
                })
            }
            (old, new) => write_change(&mut section, path, old.as_ref(), new.as_ref(), budget),
        };
        let counts = counts.map_err(|source| content_error(path, source))?;
        self.write_section(path, &section, counts)
    }

    fn load(&mut self, found: Found) -> Result<Loaded, ArtifactError> {
        let mode = if found.mode & 0o100 == 0 { GitMode::Regular } else { GitMode::Executable };
        if is_refused(&found) {
            return Ok(Loaded::LeftOut("git takes nothing of this name from a patch".to_owned()));
        }
        Ok(match found.content {
            Content::Symlink(content) => Loaded::Blob(Blob { mode: GitMode::Symlink, content }),
            Content::Unavailable(reason) => Loaded::LeftOut(reason.to_string()),
            Content::Directory => Loaded::LeftOut("it is a directory".to_owned()),
            Content::File { file, size_bytes, .. } if size_bytes > self.options.file_bytes => {
                Loaded::Large { mode, file, size_bytes }
            }
            Content::File { file, size_bytes, .. } => {
                self.read_bytes = self.read_bytes.saturating_add(size_bytes);
                if self.read_bytes > self.options.read_bytes {
                    return Ok(Loaded::LeftOut(READ_LIMIT_REASON.to_owned()));
                }
                let mut content = Vec::with_capacity(size_bytes as usize);
                file.take(size_bytes).read_to_end(&mut content).map_err(|source| content_error(&found.path, source))?;
                Loaded::Blob(Blob { mode, content })
            }
        })
    }

    fn write_section(
        &mut self,
        path: &RelativePath,
        section: &[u8],
        counts: text::Counts,
    ) -> Result<(), ArtifactError> {
        if self.patched.patch_bytes + section.len() as u64 > self.options.patch_bytes {
            return self.leave_out(path, &format!("the patch would be larger than {} bytes", self.options.patch_bytes));
        }
        self.patched.files_changed += 1;
        self.patched.insertions += counts.insertions;
        self.patched.deletions += counts.deletions;
        self.write(section)
    }

    fn too_large(&self) -> String {
        format!("it is larger than {} bytes", self.options.file_bytes)
    }

    fn leave_out(&mut self, path: &RelativePath, reason: &str) -> Result<(), ArtifactError> {
        self.patched.left_out += 1;
        if self.patched.left_out > LEFT_OUT_NAMED_MAX {
            return Ok(());
        }
        let mut line = b"# Left out: ".to_vec();
        line.extend_from_slice(&name::quote(b"", path.as_bytes()));
        line.extend_from_slice(format!(": {reason}\n").as_bytes());
        self.write(&line)
    }

    fn finish(mut self) -> Result<Patched, ArtifactError> {
        let unnamed = self.patched.left_out.saturating_sub(LEFT_OUT_NAMED_MAX);
        if unnamed > 0 {
            self.write(format!("# Left out: {unnamed} more\n").as_bytes())?;
        }
        self.out.flush().map_err(ArtifactError::Output)?;
        Ok(self.patched)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), ArtifactError> {
        self.patched.patch_bytes += bytes.len() as u64;
        self.out.write_all(bytes).map_err(ArtifactError::Output)
    }
}

const READ_LIMIT_REASON: &str = "too much was read already to compare it";

fn last_name(path: &RelativePath) -> &[u8] {
    path.as_bytes().rsplit(|byte| *byte == b'/').next().unwrap_or_default()
}

fn is_refused(found: &Found) -> bool {
    name::is_refused_by_git(last_name(&found.path), matches!(found.content, Content::Symlink(_)))
}

fn is_beneath(path: &RelativePath, directory: &RelativePath) -> bool {
    path.as_bytes().strip_prefix(directory.as_bytes()).is_some_and(|rest| rest.starts_with(b"/"))
}

fn same_content(old: &mut File, new: &mut File, size_bytes: u64) -> io::Result<bool> {
    let (mut old, mut new) = (old.take(size_bytes), new.take(size_bytes));
    let (mut left, mut right) = (Vec::new(), Vec::new());
    loop {
        for (file, buffer) in [(&mut old, &mut left), (&mut new, &mut right)] {
            buffer.clear();
            file.take(COMPARE_BUFFER_BYTES as u64).read_to_end(buffer)?;
        }
        if left != right {
            return Ok(false);
        }
        if left.is_empty() {
            return Ok(true);
        }
    }
}

fn content_error(path: &RelativePath, source: io::Error) -> ArtifactError {
    ArtifactError::Content { path: path.to_string(), source }
}
