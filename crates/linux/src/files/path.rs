//! Paths as callers write them, checked once at the edge: relative to the workspace, no `..`, bounded. Also the
//! percent-encoding of names, which are bytes on Linux. Whether a path leads anywhere is not known here.

use std::fmt;

use super::error::FileError;

/// PATH_MAX: the kernel takes no longer path in one call.
pub const PATH_MAX_BYTES: usize = 4096;
/// NAME_MAX: no file system of Linux stores a longer name.
pub const NAME_MAX_BYTES: usize = 255;
/// Where the workspace appears inside the sandbox; people and tools write both.
const WORKSPACE_MOUNTS: [&[u8]; 2] = [b"workspace", b"app"];

/// A path beneath the workspace: components joined by single slashes. The workspace itself is the empty path.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RelativePath(Vec<u8>);

impl RelativePath {
    /// The workspace itself.
    pub fn root() -> Self {
        Self(Vec::new())
    }

    /// Accepts `a/b`, `./a//b/`, `/workspace/a/b` and `/app/a/b`.
    pub fn parse(bytes: &[u8]) -> Result<Self, FileError> {
        let absolute = bytes.starts_with(b"/");
        let refuse = |reason| refusal(bytes, reason);
        let mut components = components(bytes);
        if absolute && !components.next().is_some_and(|first| WORKSPACE_MOUNTS.contains(&first)) {
            return Err(refuse("it is absolute; write it relative to the workspace, or starting with /workspace/"));
        }
        Self::collect(components).map_err(refuse)
    }

    /// The name of an archive entry: nothing absolute, since the archive comes from anywhere.
    pub(super) fn parse_archived(bytes: &[u8]) -> Result<Self, FileError> {
        let refuse = |reason| FileError::ArchiveEntry { entry: lossy(bytes), reason };
        if bytes.starts_with(b"/") {
            return Err(refuse("its path is absolute"));
        }
        Self::collect(components(bytes)).map_err(refuse)
    }

    /// A path that was put together from names read in directories, and is shorter than a path may be.
    pub(super) fn walked(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    fn collect<'a>(components: impl Iterator<Item = &'a [u8]>) -> Result<Self, &'static str> {
        let mut path = Self::root();
        for component in components {
            if component == b".." {
                return Err("it contains \"..\"; write the path without it");
            }
            if component.contains(&0) {
                return Err("it contains a NUL byte");
            }
            if component.len() > NAME_MAX_BYTES {
                return Err("one of its names is longer than 255 bytes");
            }
            path = path.join(component);
            // The kernel counts the terminating NUL.
            if path.0.len() >= PATH_MAX_BYTES {
                return Err("it is longer than 4095 bytes");
            }
        }
        Ok(path)
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// The directory and the last name; none for the workspace itself.
    pub(super) fn split(&self) -> Option<(Self, &[u8])> {
        match self.0.iter().rposition(|byte| *byte == b'/') {
            Some(slash) => Some((Self(self.0[..slash].to_vec()), &self.0[slash + 1..])),
            None if self.is_root() => None,
            None => Some((Self::root(), &self.0)),
        }
    }

    /// `a`, `a/b`, `a/b/c` for `a/b/c`.
    pub(super) fn prefixes(&self) -> impl Iterator<Item = Self> {
        let ends = self.0.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(index, _)| index);
        let whole = (!self.is_root()).then_some(self.0.len());
        ends.chain(whole).map(|end| Self(self.0[..end].to_vec()))
    }

    fn join(mut self, component: &[u8]) -> Self {
        if !self.0.is_empty() {
            self.0.push(b'/');
        }
        self.0.extend_from_slice(component);
        self
    }
}

impl fmt::Display for RelativePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_root() { "." } else { "" })?;
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

impl fmt::Debug for RelativePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RelativePath({:?})", String::from_utf8_lossy(&self.0))
    }
}

fn components(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split(|byte| *byte == b'/').filter(|component| !component.is_empty() && *component != b".")
}

fn refusal(bytes: &[u8], reason: &'static str) -> FileError {
    FileError::InvalidPath { path: lossy(bytes), reason }
}

/// For messages: readable, and no longer than a path may be.
pub(super) fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(PATH_MAX_BYTES)]).into_owned()
}

/// Everything but letters, digits, `-._~` and the slash becomes `%XX`: safe in a URL's path, and exact for any bytes.
pub fn percent_encode(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(byte) {
            text.push(char::from(*byte));
        } else {
            text.push('%');
            text.push(char::from(DIGITS[usize::from(byte >> 4)]));
            text.push(char::from(DIGITS[usize::from(byte & 15)]));
        }
    }
    text
}

/// The inverse of [`percent_encode`]; other characters stand for themselves.
pub fn percent_decode(text: &str) -> Result<Vec<u8>, FileError> {
    let refuse = || refusal(text.as_bytes(), "a % must be followed by two hexadecimal digits (%25 is a percent sign)");
    let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let high = digit(rest.next()).ok_or_else(refuse)?;
            let low = digit(rest.next()).ok_or_else(refuse)?;
            bytes.push((high * 16 + low) as u8);
        } else {
            bytes.push(byte);
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_normalised_to_stay_relative_to_the_workspace() {
        for (written, meant) in [
            ("a/b", "a/b"),
            ("./a//b/.", "a/b"),
            ("/workspace/a", "a"),
            ("//app//a", "a"),
            ("/workspace", ""),
            ("/app/", ""),
            ("", ""),
            ("..a/b..", "..a/b.."),
        ] {
            assert_eq!(RelativePath::parse(written.as_bytes()).unwrap().as_bytes(), meant.as_bytes(), "{written}");
        }
    }

    #[test]
    fn paths_that_could_leave_or_that_linux_cannot_hold_are_refused() {
        let long_name = "n".repeat(256);
        let long_path = "d/".repeat(2048) + "d";
        for written in
            ["..", "a/../b", "/etc/passwd", "/", "/workspacefoo", "/workspace/../etc", "a\0b", &long_name, &long_path]
        {
            let error = RelativePath::parse(written.as_bytes()).unwrap_err();
            assert!(matches!(error, FileError::InvalidPath { .. }), "{written}: {error}");
        }
        assert!(matches!(RelativePath::parse_archived(b"/workspace/a"), Err(FileError::ArchiveEntry { .. })));
    }

    #[test]
    fn any_name_survives_percent_encoding() {
        let every_byte: Vec<u8> = (0..=255).collect();
        assert_eq!(percent_decode(&percent_encode(&every_byte)).unwrap(), every_byte);
        assert_eq!(percent_encode("a b/ü%".as_bytes()), "a%20b/%C3%BC%25");
        for mistake in ["%", "%4", "%zz", "%é"] {
            assert!(percent_decode(mistake).is_err(), "{mistake}");
        }
    }
}
