//! `cofferdam rm`: removes jobs that have ended, with all that they left.

use clap::Args;
use reqwest::Method;

use super::id;
use crate::client::Client;
use crate::client::connect::{Purpose, ServerArguments, with_client};
use crate::exec::Failure;
use crate::text::{print_line, say};

/// Remove jobs that have ended, with their logs and files
#[derive(Debug, Args)]
pub struct RmArguments {
    /// Ids, their beginnings or ends, or last
    #[arg(value_name = "JOB", required = true)]
    jobs: Vec<String>,
    #[command(flatten)]
    server: ServerArguments,
}

pub async fn run(arguments: RmArguments) -> Result<u8, Failure> {
    with_client(&arguments.server, Purpose::Look, async |client| {
        let mut code = 0;
        for job in &arguments.jobs {
            if let Err(failure) = remove(client, job).await {
                say(&failure.message);
                code = failure.code;
            }
        }
        Ok(code)
    })
    .await
}

async fn remove(client: &Client, job: &str) -> Result<(), Failure> {
    let id = id::find(client, job).await?;
    client.send(client.request(Method::DELETE, &format!("/jobs/{id}"))).await?;
    print_line(&format!("{id} removed"))
}
