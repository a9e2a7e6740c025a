//! The guest's one error while it starts: which step failed, on what, with which errno. It becomes a
//! [`LaunchFailure`] for the launcher, which turns it into a sentence with a remedy.

use std::io;

use cofferdam_protocol::launch::LaunchFailure;

pub type Result<T> = std::result::Result<T, StepError>;

#[derive(Debug)]
pub struct StepError {
    pub step: String,
    pub source: io::Error,
}

impl StepError {
    pub fn to_failure(&self) -> LaunchFailure {
        LaunchFailure {
            step: self.step.clone(),
            detail: self.source.to_string(),
            errno: self.source.raw_os_error().unwrap_or(0),
        }
    }
}

/// Names the step that an io result belongs to.
pub trait Step<T> {
    fn step(self, name: impl Into<String>) -> Result<T>;
    /// For names that cost an allocation.
    fn step_with(self, name: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<io::Error>> Step<T> for std::result::Result<T, E> {
    fn step(self, name: impl Into<String>) -> Result<T> {
        self.map_err(|error| StepError { step: name.into(), source: error.into() })
    }

    fn step_with(self, name: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| StepError { step: name(), source: error.into() })
    }
}
