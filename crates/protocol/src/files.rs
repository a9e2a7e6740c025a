//! What the guest says about files in the workspace. Names on Linux are bytes: `name` is for people (lossy where it
//! is not UTF-8), `raw` is the exact name, percent-encoded, ready to be put back into a request's path.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum FileKind {
    File,
    Directory,
    Symlink,
    /// Sockets, pipes and devices: listed, never opened.
    Other,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FileStat {
    pub kind: FileKind,
    pub size_bytes: u64,
    /// Permission bits, without set-uid, set-gid and sticky.
    pub mode: u32,
    pub modified_ms: i64,
    pub links: u64,
}

/// One entry of a listing or of a tree. `path` is relative to what was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FileEntry {
    pub path: String,
    pub raw: String,
    #[serde(flatten)]
    pub stat: FileStat,
    /// Where a symlink points, as written in it; it is never followed out of the workspace.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub target: Option<String>,
}

/// A listing stops at a bound; `truncated` says that it did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FileList {
    pub entries: Vec<FileEntry>,
    pub truncated: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    Created,
    Modified,
    Removed,
    /// Events were lost (too many at once): list again.
    Overflow,
}

/// One line of a watch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileChange {
    pub kind: ChangeKind,
    pub path: String,
    pub raw: String,
}
