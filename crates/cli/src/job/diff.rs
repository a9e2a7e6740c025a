//! `cofferdam diff`: what a job made of the files it was given, as a patch.

use std::fs::File;
use std::io::{self, BufReader, Read};

use clap::Args;

use super::id;
use crate::client::Client;
use crate::client::connect::{Purpose, ServerArguments, with_client};
use crate::exec::Failure;
use crate::text::{Colour, Colours, Lines, print_bytes, print_line, printable};
use crate::{exit_code, patch, terminal};

/// Print what a job changed, as a patch
#[derive(Debug, Args)]
pub struct DiffArguments {
    /// The id, its beginning or its end, or last
    #[arg(value_name = "JOB")]
    job: String,
    /// Only which files, and how many lines
    #[arg(long)]
    stat: bool,
    #[command(flatten)]
    server: ServerArguments,
}

pub async fn run(arguments: DiffArguments) -> Result<u8, Failure> {
    with_client(&arguments.server, Purpose::Look, async |client| show(client, &arguments).await).await
}

async fn show(client: &Client, arguments: &DiffArguments) -> Result<u8, Failure> {
    let id = id::find(client, &arguments.job).await?;
    let mut patch = patch::fetch(client, &id).await?;
    if arguments.stat {
        let summary = patch::Summary::of(&mut patch).map_err(unreadable)?;
        if !summary.is_empty() {
            print_line(&summary.show(Colours::of_stdout()))?;
        }
    } else {
        print(patch)?;
    }
    Ok(0)
}

/// As it is where something else reads it; for people in colours, and without what would steer their terminal.
fn print(patch: File) -> Result<(), Failure> {
    let colours = Colours::of_stdout();
    let mut lines = Lines::default();
    let mut show = |line: &str| {
        let line = printable(line);
        let colour = match line.as_bytes().first() {
            Some(b'+') => Some(Colour::Green),
            Some(b'-') => Some(Colour::Red),
            Some(b' ') | None => None,
            Some(_) => Some(Colour::Dim),
        };
        print_line(&colour.map_or(line.clone(), |colour| colours.paint(colour, &line)))
    };
    let mut reader = BufReader::new(patch);
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match reader.read(&mut buffer).map_err(unreadable)? {
            0 => return lines.finish(&mut show),
            length if terminal::stdout_is_terminal() => lines.feed(&buffer[..length], &mut show)?,
            length => print_bytes(&buffer[..length])?,
        }
    }
}

fn unreadable(error: io::Error) -> Failure {
    Failure::new(exit_code::DISK_FULL, format!("the patch cannot be read back: {error}"))
}
