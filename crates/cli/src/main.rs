//! The `cofferdam` command. This file defines what can be typed; each command has a file of its own, and
//! [`exit_code`] says what the shell is told.

mod doctor;
mod exec;
mod exit_code;
mod language;
mod terminal;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;

/// Run code without fear: commands in a sandbox that starts in milliseconds.
#[derive(Debug, Parser)]
#[command(name = "cofferdam", version, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Exec(Box<exec::ExecArguments>),
    Doctor(doctor::DoctorArguments),
    /// Print completions for a shell, to be sourced by it
    Completions {
        shell: Shell,
    },
}

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Exec(arguments) => exec::main(*arguments),
        Command::Doctor(arguments) => doctor::main(&arguments),
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Arguments::command(), "cofferdam", &mut std::io::stdout());
            ExitCode::SUCCESS
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_of_the_command_line_is_sound() {
        Arguments::command().debug_assert();
    }
}
