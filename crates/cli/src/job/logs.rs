//! `cofferdam logs`: what a job printed. Into a file or a pipe as it is; on a terminal without what would steer it.

use clap::Args;

use super::id;
use crate::client::Client;
use crate::client::connect::{Purpose, ServerArguments, with_client};
use crate::client::log::{LogPart, read_log};
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
    let part = LogPart { step: arguments.step, follow: arguments.follow, range: None };
    if !terminal::stdout_is_terminal() {
        read_log(client, &id, &part, print_bytes).await?;
        return Ok(0);
    }
    let mut lines = Lines::default();
    read_log(client, &id, &part, |bytes| lines.feed(bytes, |line| print_line(&printable(line)))).await?;
    lines.finish(|line| print_line(&printable(line)))?;
    Ok(0)
}
