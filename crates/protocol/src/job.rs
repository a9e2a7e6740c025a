//! A job: what was asked for, after every dialect has been understood and every default filled in. Types and their
//! bounds only; how requests are read is the server's, how jobs are kept is the store's.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Limits, NetworkPolicy};

/// Crockford's alphabet in lower case: sorts as the numbers do, and fits host names.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
const ID_LENGTH: usize = 26;

/// 26 letters and digits that begin with the time of creation: later jobs sort behind earlier ones. Fit for URLs,
/// file names and host names.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct JobId(String);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a job id is 26 letters and digits, as in the answer to POST /schedule")]
pub struct JobIdError;

impl JobId {
    /// `random` is 80 bits; the rest of the number is ignored.
    pub fn new(time_ms: u64, random: u128) -> Self {
        let number = (u128::from(time_ms) << 80) | (random & ((1 << 80) - 1));
        let digit = |index: usize| char::from(ALPHABET[(number >> (5 * (ID_LENGTH - 1 - index)) & 31) as usize]);
        Self((0..ID_LENGTH).map(digit).collect())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for JobId {
    type Error = JobIdError;
    fn try_from(text: String) -> Result<Self, JobIdError> {
        let fits = text.len() == ID_LENGTH && text.bytes().all(|byte| ALPHABET.contains(&byte));
        if fits { Ok(Self(text)) } else { Err(JobIdError) }
    }
}

impl From<JobId> for String {
    fn from(id: JobId) -> String {
        id.0
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    Scheduled,
    Running,
    Completed,
    Failed,
    Cancelled,
}

impl JobState {
    pub const ALL: [Self; 5] = [Self::Scheduled, Self::Running, Self::Completed, Self::Failed, Self::Cancelled];

    pub fn is_final(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }
}

impl fmt::Display for JobState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobSpec {
    pub work: Work,
    pub env: BTreeMap<String, String>,
    pub limits: Limits,
    pub network: NetworkPolicy,
    /// Wall time of the whole job, from its start.
    pub timeout_ms: u64,
    /// How long it may neither print nor use the processor; 0 for as long as it likes.
    pub idle_timeout_ms: u64,
    pub labels: BTreeMap<String, String>,
    pub when_lost: WhenLost,
    /// The job whose workspace this one starts with a copy of.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub parent: Option<JobId>,
    /// The job that this one repeats.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub retry_of: Option<JobId>,
    /// Whether files came with the request; they lie in the job's directory.
    pub has_input: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    Steps(Vec<Step>),
    /// In plain text, for the agent.
    Goal(String),
    /// A sandbox that somebody uses by hand, until it is ended or its time is over.
    Interactive,
}

impl Work {
    pub fn steps(&self) -> &[Step] {
        match self {
            Self::Steps(steps) => steps,
            Self::Goal(_) | Self::Interactive => &[],
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Step {
    #[serde(flatten)]
    pub tool: Tool,
    /// 0 for no bound but the job's own.
    #[serde(default)]
    pub timeout_ms: u64,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    #[serde(default)]
    pub continue_on_error: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "tool")]
pub enum Tool {
    Shell { command: String },
    Bash { command: String },
    Python { code: String },
    Javascript { code: String },
    Typescript { code: String },
    ReadFile { path: String },
    WriteFile { path: String, content: String },
    Gui { command: String },
}

impl Tool {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Shell { .. } => "shell",
            Self::Bash { .. } => "bash",
            Self::Python { .. } => "python",
            Self::Javascript { .. } => "javascript",
            Self::Typescript { .. } => "typescript",
            Self::ReadFile { .. } => "read_file",
            Self::WriteFile { .. } => "write_file",
            Self::Gui { .. } => "gui",
        }
    }

    /// What it does, as its author wrote it.
    pub fn text(&self) -> &str {
        match self {
            Self::Shell { command } | Self::Bash { command } | Self::Gui { command } => command,
            Self::Python { code } | Self::Javascript { code } | Self::Typescript { code } => code,
            Self::ReadFile { path } | Self::WriteFile { path, .. } => path,
        }
    }
}

/// What becomes of a step whose sandbox is gone: nobody knows how far it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WhenLost {
    #[default]
    Fail,
    /// It runs once more from its beginning, and the events say so.
    Retry,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_sort_by_time_and_are_recognised() {
        let (early, late) = (JobId::new(1, u128::MAX), JobId::new(2, 0));
        assert!(early < late);
        assert_eq!(JobId::try_from(early.to_string()), Ok(early));
        for wrong in ["", "a1b2c3d4", "../../../../../etc/passwd0", &"u".repeat(26), &"A".repeat(26)] {
            assert_eq!(JobId::try_from(wrong.to_owned()), Err(JobIdError), "{wrong}");
        }
    }
}
