//! What the shell is told. A command's own exit code is passed on as it is, a signal as 128 + its number, as shells
//! do; what Cofferdam itself has to say gets a code of its own per reason.

use cofferdam_protocol::exec::{ExecOutcome, LimitHit, StartError};
use cofferdam_sandbox::SandboxError;

/// One row per reason, for the code and for the help text alike.
macro_rules! codes {
    ($table:ident: $($name:ident = $code:literal, $meaning:literal;)*) => {
        $(pub const $name: u8 = $code;)*
        const $table: &[(u8, &str)] = &[$(($code, $meaning)),*];
    };
}

codes! { OF_COMMANDS:
    USAGE = 2, "the command line is wrong";
    LIMIT_WRONG = 110, "a --limit is unknown or out of range";
    NETWORK_WRONG = 111, "a --net pattern is wrong";
    WORKSPACE_WRONG = 112, "the workspace or a --read-only directory cannot be used";
    SOURCE_WRONG = 113, "the file for --lang cannot be read or has a syntax error";
    CWD_WRONG = 114, "the working directory cannot be entered";
    PROCESS_LIMIT = 115, "no process could be started: process limit";
    DISK_FULL = 116, "no space left on the device";
    NO_NAMESPACES = 117, "this machine forbids user namespaces";
    MEMORY_LIMIT = 118, "killed: memory limit reached";
    WORKSPACE_LIMIT = 119, "killed: workspace limit reached";
    FORBIDDEN_CALL = 120, "killed: used a system call interface that the sandbox forbids";
    LOST = 121, "the sandbox ended underneath the command";
    TIME_LIMIT = 124, "killed: time limit reached";
    FAILED = 125, "the sandbox could not be started";
    NOT_EXECUTABLE = 126, "the command cannot be executed";
    NOT_FOUND = 127, "the command was not found in the sandbox";
}

// What can become of a job, and of the way to the server.
codes! { OF_JOBS:
    JOB_FAILED = 1, "the job failed, and not by a command that did";
    CONFIGURATION_WRONG = 103, "the configuration file cannot be used";
    FILE_WRONG = 104, "a file here cannot be read, or is in the way";
    REFUSED = 105, "the server refused the request";
    NO_SUCH_JOB = 106, "there is no such job, or more than one";
    SERVER = 107, "the server cannot be started or reached";
    CANCELLED = 130, "the job was cancelled, or the command interrupted";
    TERMINATED = 143, "the command was terminated";
}

pub fn of_outcome(outcome: &ExecOutcome) -> u8 {
    match outcome {
        ExecOutcome::Exited { code } => *code as u8,
        ExecOutcome::Signalled { signal: SIGSYS } => FORBIDDEN_CALL,
        ExecOutcome::Signalled { signal } => 128 | (*signal as u8 & 127),
        ExecOutcome::Killed { by: LimitHit::Memory { .. } } => MEMORY_LIMIT,
        ExecOutcome::Killed { by: LimitHit::Time { .. } } => TIME_LIMIT,
        ExecOutcome::Killed { by: LimitHit::Workspace { .. } } => WORKSPACE_LIMIT,
        ExecOutcome::NotStarted { error: StartError::NotFound { .. } } => NOT_FOUND,
        ExecOutcome::NotStarted { error: StartError::NotExecutable { .. } } => NOT_EXECUTABLE,
        ExecOutcome::NotStarted { error: StartError::WorkingDirectory { .. } } => CWD_WRONG,
        ExecOutcome::NotStarted { error: StartError::ProcessLimit { .. } } => PROCESS_LIMIT,
        ExecOutcome::NotStarted { error: StartError::Other { .. } } => FAILED,
        ExecOutcome::Lost { .. } => LOST,
    }
}

/// What shells report of a command that SIGPIPE has ended.
pub const BROKEN_PIPE: u8 = 141;

/// The number is the same on every architecture that the guest supports.
pub const SIGSYS: i32 = 31;

pub fn of_error(error: &SandboxError) -> u8 {
    match error {
        SandboxError::WorkspaceMissing { .. }
        | SandboxError::WorkspaceNotDirectory { .. }
        | SandboxError::WorkspaceForeign { .. }
        | SandboxError::WorkspaceUnusable { .. }
        | SandboxError::ReadOnlyDirectory { .. } => WORKSPACE_WRONG,
        SandboxError::NoSpace { .. } | SandboxError::Refused { status: 507, .. } => DISK_FULL,
        SandboxError::NoUserNamespaces { .. } => NO_NAMESPACES,
        SandboxError::Connection(_) | SandboxError::Frame(_) => LOST,
        _ => FAILED,
    }
}

/// For the end of `cofferdam exec --help`.
pub fn help() -> String {
    format!("Exit codes:\n  The command's own, 128 + N for signal N, or:\n{}", rows(OF_COMMANDS))
}

/// For the end of `cofferdam run --help`.
pub fn jobs_help() -> String {
    format!("Exit codes:\n  0 if the job completed, that of the step that failed as of exec, or:\n{}", rows(OF_JOBS))
}

fn rows(table: &[(u8, &str)]) -> String {
    table.iter().map(|(code, meaning)| format!("  {code:>3}  {meaning}")).collect::<Vec<_>>().join("\n")
}
