//! `cofferdam logs`: what a job printed. Into a file or a pipe as it is; on a terminal without what would steer it.

use clap::Args;
use cofferdam_protocol::event::{Event, EventBody};

use super::id;
use crate::client::connect::{Purpose, ServerArguments, with_client};
use crate::client::events::EventStream;
use crate::client::log::{LogPart, read_log};
use crate::client::{Client, parse};
use crate::exec::Failure;
use crate::terminal;
use crate::text::{Lines, print_bytes, print_line, printable};

/// Print what a job printed
#[derive(Debug, Args)]
pub struct LogsArguments {
    /// The id, its beginning or its end, or last
    #[arg(value_name = "JOB")]
    job: String,
    /// Stay until the job has ended
    #[arg(long, short = 'f')]
    follow: bool,
    /// One step only, counted from 1
    #[arg(long, value_name = "N")]
    step: Option<u32>,
    #[command(flatten)]
    server: ServerArguments,
}

pub async fn run(arguments: LogsArguments) -> Result<u8, Failure> {
    with_client(&arguments.server, Purpose::Look, async |client| print(client, &arguments).await).await
}

async fn print(client: &Client, arguments: &LogsArguments) -> Result<u8, Failure> {
    let id = id::find(client, &arguments.job).await?;
    let mut lines = Lines::default();
    let on_terminal = terminal::stdout_is_terminal();
    let mut show = |bytes: &[u8]| match on_terminal {
        true => lines.feed(bytes, |line| print_line(&printable(line))),
        false => print_bytes(bytes),
    };
    match arguments.step {
        Some(step) if arguments.follow => follow_step(client, &id, step, &mut show).await?,
        step => {
            let part = LogPart { step, follow: arguments.follow, range: None };
            read_log(client, &id, &part, &mut show).await?;
        }
    }
    lines.finish(|line| print_line(&printable(line)))?;
    Ok(0)
}

/// The log is followed as a whole; one step's part of it is where the events say.
async fn follow_step(
    client: &Client,
    id: &str,
    wanted: u32,
    mut show: impl FnMut(&[u8]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut events = EventStream::new(client, id, 0);
    while let Some(event) = events.next().await? {
        match parse::<Event>(&event.data)?.body {
            EventBody::Output { step, log_from, log_to, .. } if step == wanted && log_to > log_from => {
                let part = LogPart { range: Some(log_from..log_to), ..LogPart::default() };
                read_log(client, id, &part, &mut show).await?;
            }
            EventBody::StepFinished { step, .. } if step == wanted => break,
            _ => {}
        }
    }
    Ok(())
}
