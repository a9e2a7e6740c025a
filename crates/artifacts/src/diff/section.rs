//! The part of a patch that is about one file: its header in git's form, and what changes in its content.

use std::io::{self, Write};

use cofferdam_linux::files::RelativePath;

use super::text::Budget;
use super::{binary, name, text};

/// A file or a link as git sees it.
pub(super) struct Blob {
    pub(super) mode: GitMode,
    pub(super) content: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GitMode {
    Regular,
    Executable,
    Symlink,
}

impl GitMode {
    fn as_str(self) -> &'static str {
        match self {
            Self::Regular => "100644",
            Self::Executable => "100755",
            Self::Symlink => "120000",
        }
    }
}

/// Git's name for content that does not exist.
const NO_BLOB: &str = "0000000000000000000000000000000000000000";

/// A side that is missing does not exist there; one of the two does.
pub(super) fn write_change(
    section: &mut Vec<u8>,
    path: &RelativePath,
    old: Option<&Blob>,
    new: Option<&Blob>,
    budget: &mut Budget,
) -> io::Result<text::Counts> {
    write_head(section, path);
    let mut mode_at_index = String::new();
    match (old, new) {
        (Some(old), Some(new)) if old.mode != new.mode => write_modes(section, old.mode, new.mode),
        (Some(old), Some(_)) => mode_at_index = format!(" {}", old.mode.as_str()),
        (None, Some(new)) => writeln!(section, "new file mode {}", new.mode.as_str())?,
        (Some(old), None) => writeln!(section, "deleted file mode {}", old.mode.as_str())?,
        (None, None) => {}
    }
    let (old_content, new_content) = (content_of(old), content_of(new));
    if old.is_some() && new.is_some() && old_content == new_content {
        return Ok(text::Counts::default());
    }
    let blob_name = |side: Option<&Blob>| side.map_or(NO_BLOB.to_owned(), |blob| binary::blob_name(&blob.content));
    writeln!(section, "index {}..{}{mode_at_index}", blob_name(old), blob_name(new))?;
    if binary::is_binary(old_content) || binary::is_binary(new_content) {
        binary::write_binary(section, old_content, new_content)?;
        return Ok(text::Counts::default());
    }
    if old_content.is_empty() && new_content.is_empty() {
        return Ok(text::Counts::default());
    }
    write_side(section, "--- ", b"a/", path, old.is_some());
    write_side(section, "+++ ", b"b/", path, new.is_some());
    text::write_hunks(section, old_content, new_content, budget)
}

fn write_head(section: &mut Vec<u8>, path: &RelativePath) {
    section.extend_from_slice(b"diff --git ");
    section.extend_from_slice(&name::quote(b"a/", path.as_bytes()));
    section.push(b' ');
    section.extend_from_slice(&name::quote(b"b/", path.as_bytes()));
    section.push(b'\n');
}

fn content_of(side: Option<&Blob>) -> &[u8] {
    side.map_or(&[], |blob| &blob.content)
}

/// For a file whose content stays.
pub(super) fn write_mode_change(section: &mut Vec<u8>, path: &RelativePath, old: GitMode, new: GitMode) {
    write_head(section, path);
    write_modes(section, old, new);
}

fn write_modes(section: &mut Vec<u8>, old: GitMode, new: GitMode) {
    section.extend_from_slice(format!("old mode {}\nnew mode {}\n", old.as_str(), new.as_str()).as_bytes());
}

fn write_side(section: &mut Vec<u8>, mark: &str, prefix: &[u8], path: &RelativePath, exists: bool) {
    section.extend_from_slice(mark.as_bytes());
    if exists {
        section.extend_from_slice(&name::quote(prefix, path.as_bytes()));
        // Without it, what follows a space could be taken for a time.
        if path.as_bytes().contains(&b' ') {
            section.push(b'\t');
        }
    } else {
        section.extend_from_slice(b"/dev/null");
    }
    section.push(b'\n');
}
