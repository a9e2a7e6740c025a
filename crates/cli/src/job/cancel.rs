//! `cofferdam cancel`: asks for jobs to be ended.

use clap::Args;

use super::id;
use super::view::Job;
use crate::client::connect::{Purpose, ServerArguments, with_client};
use crate::client::{Client, parse};
use crate::exec::Failure;
use crate::text::{print_line, say};

/// Cancel jobs
#[derive(Debug, Args)]
pub struct CancelArguments {
    /// Ids, their beginnings or ends, or last
    #[arg(value_name = "JOB", required = true)]
    jobs: Vec<String>,
    /// Print the API's JSON, one job on each line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArguments,
}

pub async fn run(arguments: CancelArguments) -> Result<u8, Failure> {
    with_client(&arguments.server, Purpose::Look, async |client| {
        let mut code = 0;
        for job in &arguments.jobs {
            // One that cannot be cancelled does not keep the others from it.
            if let Err(failure) = cancel(client, job, arguments.json).await {
                say(&failure.message);
                code = failure.code;
            }
        }
        Ok(code)
    })
    .await
}

async fn cancel(client: &Client, job: &str, json: bool) -> Result<(), Failure> {
    let id = id::find(client, job).await?;
    let text = client.cancel(&id).await?;
    if json {
        return print_line(text.trim_end());
    }
    let job: Job = parse(&text)?;
    let status = if job.status.is_final() { job.status.as_str() } else { "being cancelled" };
    print_line(&format!("{id} {status}"))
}
