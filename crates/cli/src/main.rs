//! The `cofferdam` command. This file defines what can be typed; each command has a file of its own, and
//! [`exit_code`] says what the shell is told.

mod client;
mod doctor;
mod exec;
mod exit_code;
mod job;
mod language;
mod live;
mod patch;
mod progress_bar;
mod serve;
mod terminal;
mod text;
mod upload;

use std::io::Write;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use tokio::runtime::{Builder, Runtime};

use exec::Failure;

/// Run code without fear: commands in a sandbox that starts in milliseconds, and jobs that outlive the terminal.
#[derive(Debug, Parser)]
#[command(name = "cofferdam", version, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Exec(Box<exec::ExecArguments>),
    Run(Box<job::run::RunArguments>),
    Ps(job::ps::PsArguments),
    Status(job::status::StatusArguments),
    Logs(job::logs::LogsArguments),
    Events(job::events::EventsArguments),
    Cancel(job::cancel::CancelArguments),
    Retry(job::retry::RetryArguments),
    Diff(job::diff::DiffArguments),
    Download(job::download::DownloadArguments),
    Shell(job::shell::ShellArguments),
    Rm(job::rm::RmArguments),
    Serve(Box<serve::ServeArguments>),
    Doctor(doctor::DoctorArguments),
    /// Print completions for a shell, to be sourced by it
    Completions {
        shell: Shell,
    },
}

/// The command line as far as `exec` needs it: the definitions of all the others would cost a good part of the time
/// that a sandbox takes to start.
#[derive(Debug, Parser)]
#[command(name = "cofferdam", version, max_term_width = 100)]
enum ExecOnly {
    Exec(Box<exec::ExecArguments>),
}

fn main() -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|word| word == "exec") {
        let ExecOnly::Exec(arguments) = ExecOnly::parse();
        return exec::main(*arguments);
    }
    match Arguments::parse().command {
        Command::Exec(arguments) => exec::main(*arguments),
        Command::Doctor(arguments) => doctor::main(&arguments),
        Command::Serve(_) => serve::main(),
        Command::Run(arguments) => on_runtime(job::run::run(*arguments)),
        Command::Ps(arguments) => on_runtime(job::ps::run(arguments)),
        Command::Status(arguments) => on_runtime(job::status::run(arguments)),
        Command::Logs(arguments) => on_runtime(job::logs::run(arguments)),
        Command::Events(arguments) => on_runtime(job::events::run(arguments)),
        Command::Cancel(arguments) => on_runtime(job::cancel::run(arguments)),
        Command::Retry(arguments) => on_runtime(job::retry::run(arguments)),
        Command::Diff(arguments) => on_runtime(job::diff::run(arguments)),
        Command::Download(arguments) => on_runtime(job::download::run(arguments)),
        Command::Shell(arguments) => on_runtime(job::shell::run(arguments)),
        Command::Rm(arguments) => on_runtime(job::rm::run(arguments)),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Arguments::command(), "cofferdam", &mut script);
            // Whoever reads only the beginning is not an error worth a word.
            let _ = std::io::stdout().write_all(&script);
            ExitCode::SUCCESS
        }
    }
}

fn on_runtime(work: impl Future<Output = Result<u8, Failure>>) -> ExitCode {
    finish(|| {
        let runtime = runtime()?;
        let code = runtime.block_on(work);
        // What still blocks a thread is nobody's concern any more.
        runtime.shutdown_background();
        code
    })
}

/// With a thread for each processor: a server, even one for a single command, works on jobs side by side.
fn runtime() -> Result<Runtime, Failure> {
    Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(exit_code::FAILED, format!("the runtime could not be started: {error}")))
}

/// Ends the process with a code, and with a sentence where there is something to say.
fn finish(work: impl FnOnce() -> Result<u8, Failure>) -> ExitCode {
    let code = work().unwrap_or_else(|failure| {
        if !failure.message.is_empty() {
            text::say(&failure.message);
        }
        failure.code
    });
    let _ = std::io::stdout().flush();
    // Not by returning: a thread may be waiting for input that never comes.
    std::process::exit(code.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_of_the_command_line_is_sound() {
        Arguments::command().debug_assert();
    }
}
