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
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Arguments::command(), "cofferdam", &mut script);
            // Whoever reads only the beginning is not an error worth a word.
            let _ = std::io::Write::write_all(&mut std::io::stdout(), &script);
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
