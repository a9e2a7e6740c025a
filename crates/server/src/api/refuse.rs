//! What the errors of the other crates are in HTTP: the one place that decides.

use cofferdam_artifacts::ArtifactError;
use cofferdam_linux::files::FileError;
use cofferdam_sandbox::SandboxError;
use cofferdam_store::StoreError;

use super::request::Invalid;
use crate::http::problem::Problem;

/// When to try again what a full queue or a full disk has refused.
const RETRY_AFTER_S: u32 = 5;

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        let detail = error.to_string();
        match error {
            StoreError::NotFound(_) => Self::not_found(format!("{detail}; GET /jobs lists those that there are")),
            StoreError::State { .. } | StoreError::Fenced(_) | StoreError::KeyReused { .. } => Self::conflict(detail),
            StoreError::QueueFull { .. } => {
                Self::too_many(format!("{detail}; try again later, or raise --queue-max"), RETRY_AFTER_S)
            }
            StoreError::NoSpace => Self::no_space(detail),
            StoreError::ReadOnly(_) | StoreError::Closed => Self::unavailable(detail, RETRY_AFTER_S),
            StoreError::Newer { .. } | StoreError::Damaged(_) | StoreError::Other(_) => Self::internal(detail),
        }
    }
}

impl From<FileError> for Problem {
    fn from(error: FileError) -> Self {
        let detail = error.to_string();
        match error {
            FileError::NotFound { .. } => Self::not_found(format!("{detail}; a GET of its directory lists what does")),
            FileError::NotEmpty { path } => {
                Self::conflict(format!("\"{path}\" is a directory that is not empty; add ?recursive=true to remove it"))
            }
            FileError::IsDirectory { .. } => Self::conflict(format!("{detail}; name a file in it")),
            FileError::AlreadyExists { .. } => {
                Self::conflict(format!("{detail}; choose another name, or remove it first"))
            }
            FileError::InvalidPath { .. }
            | FileError::Escapes { .. }
            | FileError::LinkLoop { .. }
            | FileError::IsRoot
            | FileError::ArchiveEntry { .. } => Self::invalid("path", detail),
            FileError::IsSymlink { .. }
            | FileError::NotDirectory { .. }
            | FileError::NotRegular { .. }
            | FileError::PermissionDenied { .. }
            | FileError::Busy { .. } => Self::conflict(detail),
            FileError::NoSpace { .. } => Self::no_space(detail),
            FileError::ArchiveTooLarge { .. } | FileError::TreeTooLarge { .. } => Self::too_large(detail),
            FileError::ArchiveStream { .. } => Self::malformed(detail),
            FileError::KernelTooOld => Self::internal(detail),
            FileError::Io { source, .. } if source.kind() == std::io::ErrorKind::StorageFull => Self::no_space(detail),
            FileError::Io { source, .. } if source.kind() == std::io::ErrorKind::InvalidInput => {
                Self::invalid("path", detail)
            }
            FileError::Io { .. } => Self::internal(detail),
        }
    }
}

impl From<SandboxError> for Problem {
    fn from(error: SandboxError) -> Self {
        let detail = error.to_string();
        match error {
            SandboxError::Refused { status: 400, .. } => Self::invalid("argv", detail),
            SandboxError::Refused { status: 404, .. } => Self::not_found(detail),
            SandboxError::Refused { status: 409, .. } => Self::conflict(detail),
            SandboxError::Refused { status: 429, .. } => Self::too_many(detail, RETRY_AFTER_S),
            SandboxError::Refused { status: 507, .. } | SandboxError::NoSpace { .. } => Self::no_space(detail),
            SandboxError::Connection(_) | SandboxError::Vanished | SandboxError::NotFound { .. } => {
                Self::conflict(format!("the sandbox has just ended ({detail}); look at the job's status"))
            }
            _ => Self::internal(detail),
        }
    }
}

impl From<ArtifactError> for Problem {
    fn from(error: ArtifactError) -> Self {
        match error {
            ArtifactError::File(error) => error.into(),
            error => Self::internal(error),
        }
    }
}

impl From<Invalid> for Problem {
    fn from(invalid: Invalid) -> Self {
        let detail = format!("{}: {}", invalid.field, invalid.message);
        Self::invalid(invalid.field, detail)
    }
}

impl From<std::io::Error> for Problem {
    fn from(error: std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::StorageFull {
            return Self::no_space("no space is left on the disk of the data directory; free some space");
        }
        Self::internal(error)
    }
}
