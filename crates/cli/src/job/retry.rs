//! `cofferdam retry`: a new job that repeats another with the same input.

use clap::Args;

use super::id;
use super::view::Job;
use crate::client::connect::{Connection, Purpose, ServerArguments};
use crate::client::{Client, parse};
use crate::exec::Failure;
use crate::text::print_line;

/// Repeat a job with the same input, as a new one, and print its id
#[derive(Debug, Args)]
pub struct RetryArguments {
    /// The id, its beginning or its end, or last
    #[arg(value_name = "JOB")]
    job: String,
    /// Print the API's JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArguments,
}

pub async fn run(arguments: RetryArguments) -> Result<u8, Failure> {
    let connection = Connection::open(&arguments.server, Purpose::Look).await?;
    let result = retry(&connection.client, &arguments).await;
    if result.is_ok() {
        connection.say_if_nobody_works().await;
    }
    connection.close().await;
    result
}

async fn retry(client: &Client, arguments: &RetryArguments) -> Result<u8, Failure> {
    let id = id::find(client, &arguments.job).await?;
    let text = client.post_text(&format!("/jobs/{id}/retry")).await?;
    if arguments.json {
        print_line(text.trim_end())?;
    } else {
        print_line(&parse::<Job>(&text)?.job_id)?;
    }
    Ok(0)
}
