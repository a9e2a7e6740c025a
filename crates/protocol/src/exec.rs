//! One command in a sandbox: what is asked for, how it ended, and why. The caller chooses the id; asking again with
//! the same id attaches to the same run.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::limits::{show_bytes, show_duration};

/// Arguments and environment together; the kernel's own bound is 2 MiB, and the message to the spawner is smaller.
pub const REQUEST_MAX_BYTES: usize = 384 * 1024;

/// 1 to 128 characters of `A-Z a-z 0-9 . _ -`: fit for URLs, file names and logs.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ExecId(String);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("an exec id is 1 to 128 characters out of A-Z a-z 0-9 . _ -")]
pub struct ExecIdError;

impl ExecId {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for ExecId {
    type Error = ExecIdError;
    fn try_from(text: String) -> Result<Self, ExecIdError> {
        let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
        if (1..=128).contains(&text.len()) && text.bytes().all(fits) { Ok(Self(text)) } else { Err(ExecIdError) }
    }
}

impl From<ExecId> for String {
    fn from(id: ExecId) -> String {
        id.0
    }
}

impl fmt::Display for ExecId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalSize {
    pub rows: u16,
    pub columns: u16,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecRequest {
    /// The command and its arguments. Without a slash the command is looked up in PATH inside the sandbox.
    pub argv: Vec<String>,
    /// Added to the sandbox's own environment; the same name replaces.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Where it starts; relative to /workspace, which is the default.
    #[serde(default)]
    pub cwd: Option<String>,
    /// Run on a terminal of this size, stdout and stderr as one.
    #[serde(default)]
    pub terminal: Option<TerminalSize>,
    /// Whether standard input will be sent; otherwise it is /dev/null.
    #[serde(default)]
    pub stdin: bool,
    /// Ends the whole process tree after this time; 0 for the sandbox's own limit.
    #[serde(default)]
    pub timeout_ms: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    #[error("no command was given; write it after --")]
    NoCommand,
    #[error(
        "the command, its arguments and environment hold a NUL byte, which no Linux program can receive; remove it"
    )]
    Nul,
    #[error("\"{0}\" is not a name for an environment variable; it must not be empty or hold \"=\"")]
    VariableName(String),
    #[error("arguments and environment are {0} bytes together, the most is 384 KiB; put large data into a file")]
    TooLarge(usize),
    #[error("a terminal has at least one row and one column")]
    TerminalSize,
}

impl ExecRequest {
    /// Checked where a request enters the guest, so that everything behind it can rely on it.
    pub fn validate(&self) -> Result<(), RequestError> {
        if self.argv.first().is_none_or(|command| command.is_empty()) {
            return Err(RequestError::NoCommand);
        }
        let texts = || {
            let env = self.env.iter().flat_map(|(name, value)| [name, value]);
            self.argv.iter().chain(env).chain(&self.cwd)
        };
        if texts().any(|text| text.contains('\0')) {
            return Err(RequestError::Nul);
        }
        if let Some(name) = self.env.keys().find(|name| name.is_empty() || name.contains('=')) {
            return Err(RequestError::VariableName(name.clone()));
        }
        let total = texts().map(|text| text.len() + 1).sum();
        if total > REQUEST_MAX_BYTES {
            return Err(RequestError::TooLarge(total));
        }
        self.terminal.map_or(Ok(()), |size| size.validate())
    }
}

impl TerminalSize {
    pub fn validate(&self) -> Result<(), RequestError> {
        if self.rows == 0 || self.columns == 0 { Err(RequestError::TerminalSize) } else { Ok(()) }
    }
}

/// Why a command could not be started at all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case", tag = "problem")]
pub enum StartError {
    #[error("there is no command \"{command}\" in the sandbox; its PATH is {path}")]
    NotFound { command: String, path: String },
    #[error("\"{command}\" cannot be executed: {detail}")]
    NotExecutable { command: String, detail: String },
    #[error(
        "the working directory \"{cwd}\" cannot be entered: {detail}; it must be a directory in the sandbox, such as /workspace"
    )]
    WorkingDirectory { cwd: String, detail: String },
    #[error(
        "no process could be started: the limit of {limit} processes is reached; end some, or raise it with --limit processes=N"
    )]
    ProcessLimit { limit: u64 },
    #[error("the command could not be started: {step} failed: {detail}")]
    Other { step: String, detail: String },
}

/// A limit that ended a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case", tag = "limit")]
pub enum LimitHit {
    Memory { limit_bytes: u64 },
    Time { limit_ms: u64 },
    Workspace { limit_bytes: u64 },
}

impl fmt::Display for LimitHit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory { limit_bytes } => write!(f, "memory limit {} reached", show_bytes(*limit_bytes)),
            Self::Time { limit_ms } => write!(f, "time limit {} reached", show_duration(*limit_ms)),
            Self::Workspace { limit_bytes } => write!(f, "workspace limit {} reached", show_bytes(*limit_bytes)),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case", tag = "outcome")]
pub enum ExecOutcome {
    Exited {
        code: i32,
    },
    Signalled {
        signal: i32,
    },
    Killed {
        by: LimitHit,
    },
    /// It never ran.
    NotStarted {
        error: StartError,
    },
    /// The sandbox ended underneath it.
    Lost {
        reason: String,
    },
}

impl fmt::Display for ExecOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited { code } => write!(f, "exited with code {code}"),
            Self::Signalled { signal } => write!(f, "ended by signal {signal}"),
            Self::Killed { by } => write!(f, "killed: {by}"),
            Self::NotStarted { error } => write!(f, "{error}"),
            Self::Lost { reason } => write!(f, "lost: {reason}"),
        }
    }
}

/// A system call that the seccomp policy refused while the command ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedCall {
    pub name: String,
    pub times: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecStatus {
    pub id: ExecId,
    /// Absent while it runs.
    pub outcome: Option<ExecOutcome>,
    /// Length of the framed output so far, see [`crate::output`]: where a reader that has all of it stands.
    pub output_end: u64,
    /// Refused by the sandbox while this command ran, whoever in the sandbox called.
    #[serde(default)]
    pub refused_calls: Vec<RefusedCall>,
    /// The process limit was hit while it ran: `fork` failed with "resource temporarily unavailable".
    #[serde(default)]
    pub process_limit_hits: u64,
}
