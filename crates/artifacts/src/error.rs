//! The one error of this crate. How it becomes an HTTP status is not decided here.

use std::io;

use cofferdam_linux::files::FileError;

#[derive(Debug, thiserror::Error)]
pub enum ArtifactError {
    #[error("the workspace holds more than {limit} {what}; remove what is not needed, or raise the limit")]
    TooLarge { limit: u64, what: &'static str },
    #[error(transparent)]
    File(FileError),
    #[error("\"{path}\" could not be read or written: {source}")]
    Content { path: String, source: io::Error },
    /// Whoever reads the archive or the patch has gone, or its place is full.
    #[error("the result could not be written: {0}")]
    Output(io::Error),
}

impl From<FileError> for ArtifactError {
    fn from(error: FileError) -> Self {
        match error {
            FileError::TreeTooLarge { limit, what } => Self::TooLarge { limit, what },
            error => Self::File(error),
        }
    }
}
