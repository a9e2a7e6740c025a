//! The one error of the file library. Every message names the path as it was asked for, and the remedy where there is
//! one. How an error becomes an HTTP status or an exit code is not decided here.

use std::io;

use rustix::io::Errno;

#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("\"{path}\" is not a path in the workspace: {reason}")]
    InvalidPath { path: String, reason: &'static str },
    #[error("\"{path}\" does not exist")]
    NotFound { path: String },
    #[error("\"{path}\" leads out of the workspace through a symbolic link; only paths that stay inside are opened")]
    Escapes { path: String },
    #[error("\"{path}\" passes through too many symbolic links, or through one of /proc that is never followed")]
    LinkLoop { path: String },
    #[error("\"{path}\" is a symbolic link; name the file that it points to")]
    IsSymlink { path: String },
    #[error("\"{path}\" is a directory")]
    IsDirectory { path: String },
    #[error("\"{path}\" is not a directory, or something on the way to it is not")]
    NotDirectory { path: String },
    #[error("\"{path}\" is a socket, a pipe or a device; only regular files are opened")]
    NotRegular { path: String },
    #[error("\"{path}\" exists already")]
    AlreadyExists { path: String },
    #[error("\"{path}\" is a directory that is not empty; remove it recursively")]
    NotEmpty { path: String },
    #[error("the workspace itself cannot be removed, renamed or overwritten; name something inside it")]
    IsRoot,
    #[error("permission denied for \"{path}\"")]
    PermissionDenied { path: String },
    #[error("no space left in the workspace for \"{path}\"; remove files or raise the limit workspace")]
    NoSpace { path: String },
    #[error("\"{path}\" keeps being changed by another process; try again")]
    Busy { path: String },
    #[error("this kernel has no openat2, which keeps paths inside the workspace; Linux 5.6 or newer is needed")]
    KernelTooOld,
    #[error("the archive entry \"{entry}\" is refused: {reason}")]
    ArchiveEntry { entry: String, reason: &'static str },
    #[error("the archive holds more than {limit} {what}; make a smaller one, or several")]
    ArchiveTooLarge { limit: u64, what: &'static str },
    #[error("the workspace holds more than {limit} {what}; remove what is not needed, or raise the limit")]
    TreeTooLarge { limit: u64, what: &'static str },
    #[error("the archive could not be read or written: {source}")]
    ArchiveStream { source: io::Error },
    #[error("\"{path}\": {source}")]
    Io { path: String, source: io::Error },
}

impl FileError {
    /// What an error number of a call about `path` means here.
    pub(super) fn from_errno(path: impl ToString, errno: Errno) -> Self {
        let path = path.to_string();
        match errno {
            Errno::NOENT => Self::NotFound { path },
            Errno::XDEV => Self::Escapes { path },
            Errno::LOOP => Self::LinkLoop { path },
            Errno::ISDIR => Self::IsDirectory { path },
            Errno::NOTDIR => Self::NotDirectory { path },
            // Opening a socket, or a pipe nobody reads from.
            Errno::NXIO => Self::NotRegular { path },
            Errno::EXIST => Self::AlreadyExists { path },
            Errno::NOTEMPTY => Self::NotEmpty { path },
            Errno::ACCESS | Errno::PERM => Self::PermissionDenied { path },
            Errno::NOSPC | Errno::DQUOT => Self::NoSpace { path },
            Errno::AGAIN | Errno::BUSY => Self::Busy { path },
            Errno::NOSYS => Self::KernelTooOld,
            Errno::NAMETOOLONG => Self::InvalidPath { path, reason: "it is too long" },
            errno => Self::Io { path, source: errno.into() },
        }
    }
}
