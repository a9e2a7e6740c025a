//! What happens to a job, in the order in which it happens. A job is its events: status, log, memory and the live
//! stream are derived from them, and a server that takes a job over knows nothing else about it.

use serde::{Deserialize, Serialize};

use crate::exec::ExecOutcome;
use crate::job::JobState;

/// Text of output that one event carries; the rest is in the log.
pub const EXCERPT_MAX_BYTES: usize = 4 * 1024;

/// One event; numbered from 1 within its job, without gaps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Event {
    pub seq: u64,
    pub time_ms: u64,
    #[serde(flatten)]
    pub body: EventBody,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case", tag = "type")]
pub enum EventBody {
    Scheduled,
    Started,
    /// Another server process carries on.
    Resumed {
        reason: String,
    },
    SandboxStarted {
        sandbox: String,
    },
    /// The sandbox is gone though nobody ended it. Files of the workspace are still there, processes are not.
    SandboxLost {
        sandbox: String,
        reason: String,
    },
    /// Steps are counted from 1, and so are attempts at one.
    StepStarted {
        step: u32,
        attempt: u32,
        tool: String,
        /// The beginning of the command, code or path.
        text: String,
        /// Where its output begins in the log.
        log_from: u64,
    },
    /// Output of a step as far as it has been written to the log.
    Output {
        step: u32,
        /// Where in the guest's own sequence this output ends; a server that takes over resumes there.
        position: u64,
        log_from: u64,
        log_to: u64,
        excerpt: Vec<OutputPart>,
        /// Bytes of the range that the excerpt leaves out.
        omitted_bytes: u64,
    },
    StepFinished {
        step: u32,
        attempt: u32,
        ok: bool,
        result: StepResult,
        duration_ms: u64,
        log_from: u64,
        log_to: u64,
    },
    /// Somebody's command in the job's sandbox.
    ExecStarted {
        exec: String,
        argv: Vec<String>,
    },
    ExecFinished {
        exec: String,
        outcome: ExecOutcome,
    },
    /// A file was changed through the API.
    FileChanged {
        path: String,
        action: FileAction,
    },
    /// The sandbox tried to reach something.
    Connection {
        host: String,
        port: u16,
        verdict: String,
        #[serde(skip_serializing_if = "Option::is_none", default)]
        reason: Option<String>,
    },
    CancelRequested,
    Ended {
        state: JobState,
        /// Why, as a sentence; absent when all went well.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        reason: Option<String>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OutputPart {
    pub stream: OutputStream,
    /// What is not UTF-8 is replaced; the log has the bytes.
    pub text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum OutputStream {
    Stdout,
    Stderr,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum FileAction {
    Written,
    Removed,
    Moved,
}

/// How a step ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum StepResult {
    /// A command ran.
    Exec { outcome: ExecOutcome },
    /// A file was read or written.
    File { size_bytes: u64 },
    /// It could not be done, or was ended from outside, for this reason.
    Error { message: String },
}

impl std::fmt::Display for StepResult {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exec { outcome } => write!(f, "{outcome}"),
            Self::File { size_bytes } => write!(f, "{size_bytes} bytes"),
            Self::Error { message } => f.write_str(message),
        }
    }
}

impl EventBody {
    /// The step that it is about.
    pub fn step(&self) -> Option<u32> {
        match self {
            Self::StepStarted { step, .. } | Self::Output { step, .. } | Self::StepFinished { step, .. } => Some(*step),
            _ => None,
        }
    }

    /// The name in the `type` field, for streams and filters.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::Started => "started",
            Self::Resumed { .. } => "resumed",
            Self::SandboxStarted { .. } => "sandbox_started",
            Self::SandboxLost { .. } => "sandbox_lost",
            Self::StepStarted { .. } => "step_started",
            Self::Output { .. } => "output",
            Self::StepFinished { .. } => "step_finished",
            Self::ExecStarted { .. } => "exec_started",
            Self::ExecFinished { .. } => "exec_finished",
            Self::FileChanged { .. } => "file_changed",
            Self::Connection { .. } => "connection",
            Self::CancelRequested => "cancel_requested",
            Self::Ended { .. } => "ended",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_is_the_type_field() {
        let bodies = [
            EventBody::Scheduled,
            EventBody::CancelRequested,
            EventBody::SandboxStarted { sandbox: "s".to_owned() },
            EventBody::Ended { state: JobState::Failed, reason: Some("r".to_owned()) },
        ];
        for body in bodies {
            let event = Event { seq: 1, time_ms: 2, body };
            let json = serde_json::to_value(&event).unwrap();
            assert_eq!(json["type"], event.body.kind());
            assert_eq!(serde_json::from_value::<Event>(json).unwrap(), event);
        }
    }
}
