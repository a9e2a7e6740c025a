//! What can go wrong with a sandbox, each with the sentence that a person reads: the thing, and the remedy.

use std::io;
use std::path::PathBuf;

use cofferdam_protocol::launch::LaunchFailure;
use cofferdam_protocol::output::FrameError;

#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    #[error("the workspace {path} does not exist; create it first: mkdir -p {path}")]
    WorkspaceMissing { path: PathBuf },
    #[error("the workspace {path} is not a directory; name the directory that holds it")]
    WorkspaceNotDirectory { path: PathBuf },
    #[error(
        "the workspace {path} belongs to another user (uid {owner}); use a directory that belongs to you (uid {uid})"
    )]
    WorkspaceForeign { path: PathBuf, owner: u32, uid: u32 },
    #[error("the workspace {path} cannot be used: {detail}")]
    WorkspaceUnusable { path: PathBuf, detail: String },
    #[error("the read-only directory {path} cannot be offered: {detail}")]
    ReadOnlyDirectory { path: PathBuf, detail: String },
    #[error("this machine does not let programs make user namespaces ({detail}); run: cofferdam doctor")]
    NoUserNamespaces { detail: String },
    #[error("no space is left on the device ({step}); free some, or point TMPDIR to another disk")]
    NoSpace { step: String },
    #[error("the sandbox could not be started: {0}; run: cofferdam doctor")]
    Launch(LaunchFailure),
    #[error("{0}; set TMPDIR to a directory that exists and that you may write to")]
    SpoolDirectory(LaunchFailure),
    #[error("the sandbox ended while it was starting; run: cofferdam doctor")]
    Vanished,
    #[error("there is no living sandbox with the id {id}")]
    NotFound { id: String },
    #[error("the guest could not be reached: {0}")]
    Connection(String),
    #[error("{message}")]
    Refused { status: u16, message: String },
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error("{step}: {source}")]
    Io { step: String, source: io::Error },
}

impl SandboxError {
    pub(crate) fn io(step: impl Into<String>, source: impl Into<io::Error>) -> Self {
        let (step, source) = (step.into(), source.into());
        if source.kind() == io::ErrorKind::StorageFull { Self::NoSpace { step } } else { Self::Io { step, source } }
    }
}

impl From<LaunchFailure> for SandboxError {
    fn from(failure: LaunchFailure) -> Self {
        match failure.errno {
            libc::ENOSPC if failure.step.contains("namespace") => {
                Self::NoUserNamespaces { detail: "the limit user.max_user_namespaces is reached".to_owned() }
            }
            libc::ENOSPC => Self::NoSpace { step: failure.step },
            libc::EPERM | libc::EACCES if failure.step.contains("user namespace") || failure.step.contains("_map") => {
                Self::NoUserNamespaces { detail: failure.detail }
            }
            _ if failure.step.contains("spool directory") => Self::SpoolDirectory(failure),
            _ => Self::Launch(failure),
        }
    }
}
