//! `cofferdam ps`: the jobs there are, newest first.

use clap::Args;

use super::view::{self, JobList};
use crate::client::connect::{Purpose, ServerArguments, with_client};
use crate::client::{Client, parse, query_value};
use crate::exec::Failure;
use crate::terminal;
use crate::text::{self, Colour, Colours, print_line};

/// Titles are cut to what is left of the line; in a pipe, to this.
const TITLE_WIDTH: usize = 60;
/// A title is worth showing from this many characters on.
const TITLE_WIDTH_MIN: usize = 12;

/// List jobs, newest first
#[derive(Debug, Args)]
pub struct PsArguments {
    /// Also those that have ended
    #[arg(long, short = 'a')]
    all: bool,
    /// Only those with this status: scheduled, running, completed, failed, cancelled; with commas for several
    #[arg(long, value_name = "STATUS", conflicts_with = "all")]
    status: Option<String>,
    /// Only those with this label; may be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    label: Vec<String>,
    /// As many as this at most
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: u32,
    /// Print the API's JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArguments,
}

pub async fn run(arguments: PsArguments) -> Result<u8, Failure> {
    with_client(&arguments.server, Purpose::Look, async |client| list(client, &arguments).await).await
}

async fn list(client: &Client, arguments: &PsArguments) -> Result<u8, Failure> {
    let mut path = format!("/jobs?limit={}", arguments.limit);
    let status = match &arguments.status {
        Some(status) => Some(status.as_str()),
        None => (!arguments.all).then_some("scheduled,running"),
    };
    if let Some(status) = status {
        path.push_str(&format!("&status={}", query_value(status)));
    }
    if !arguments.label.is_empty() {
        path.push_str(&format!("&label={}", query_value(&arguments.label.join(","))));
    }
    let text = client.get_text(&path).await?;
    if arguments.json {
        print_line(text.trim_end())?;
        return Ok(0);
    }
    print_line(&table(&parse(&text)?))?;
    Ok(0)
}

fn table(list: &JobList) -> String {
    let colours = Colours::of_stdout();
    let now_ms = text::now_ms();
    let head = ["ID", "STATUS", "STEPS", "AGE", "TITLE"].map(|name| colours.paint(Colour::Dim, name)).to_vec();
    let mut rows = vec![head];
    for job in &list.jobs {
        let status = colours.paint(view::colour_of(job.status), job.status.as_str());
        rows.push(vec![job.job_id.clone(), status, job.progress(), job.age(now_ms), job.title.clone()]);
    }
    let without_titles: Vec<Vec<String>> = rows.iter().map(|row| row[..4].to_vec()).collect();
    let taken = view::columns(&without_titles).lines().map(|line| text::printable(line).chars().count()).max();
    let width = match terminal::stdout_is_terminal() {
        true => usize::from(terminal::size().columns).saturating_sub(taken.unwrap_or(0) + 2).max(TITLE_WIDTH_MIN),
        false => TITLE_WIDTH,
    };
    for row in rows.iter_mut().skip(1) {
        row[4] = text::first_line(&row[4], width);
    }
    view::columns(&rows)
}
