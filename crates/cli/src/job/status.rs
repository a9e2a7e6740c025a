//! `cofferdam status`: one job and its steps, as they stand.

use clap::Args;
use serde::Deserialize;

use super::id;
use super::view::{self, Job};
use crate::client::connect::{Purpose, ServerArguments, with_client};
use crate::client::{Client, parse};
use crate::exec::Failure;
use crate::terminal;
use crate::text::{self, Colour, Colours, print_line};

/// Steps are shown up to this many; the API has them all.
const STEPS_SHOWN: u32 = 1_000;
const TEXT_WIDTH: usize = 60;

/// Show a job and its steps
#[derive(Debug, Args)]
pub struct StatusArguments {
    /// The id, its beginning or its end, or last
    #[arg(value_name = "JOB")]
    job: String,
    /// Print the API's JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArguments,
}

#[derive(Debug, Deserialize)]
struct StepList {
    steps: Vec<Step>,
}

#[derive(Debug, Deserialize)]
struct Step {
    step: u32,
    tool: String,
    text: String,
    status: String,
    /// How it ended, in words.
    result: Option<String>,
    duration_ms: Option<u64>,
}

pub async fn run(arguments: StatusArguments) -> Result<u8, Failure> {
    with_client(&arguments.server, Purpose::Look, async |client| show(client, &arguments).await).await
}

async fn show(client: &Client, arguments: &StatusArguments) -> Result<u8, Failure> {
    let id = id::find(client, &arguments.job).await?;
    let text = client.get_text(&format!("/status/{id}")).await?;
    if arguments.json {
        print_line(text.trim_end())?;
        return Ok(0);
    }
    let job: Job = parse(&text)?;
    let steps: StepList = client.get(&format!("/jobs/{id}/steps?limit={STEPS_SHOWN}")).await?;
    print_line(&summary(&job))?;
    if !steps.steps.is_empty() {
        print_line("")?;
        print_line(&table(&steps.steps))?;
    }
    Ok(0)
}

fn summary(job: &Job) -> String {
    let colours = Colours::of_stdout();
    let now_ms = text::now_ms();
    let mut status = view::verdict(colours, job.status, job.reason.as_deref());
    if job.cancel_requested && !job.status.is_final() {
        status.push_str(", being cancelled");
    }
    if let Some(position) = job.queue_position {
        status.push_str(&format!(", {position} before it"));
    }
    let labels: Vec<String> =
        job.labels.iter().map(|(name, value)| text::printable(&format!("{name}={value}"))).collect();
    let rows = [
        ("job", Some(job.job_id.clone())),
        ("title", Some(text::first_line(&job.title, TEXT_WIDTH)).filter(|title| !title.is_empty())),
        ("status", Some(status)),
        ("steps", Some(job.progress()).filter(|progress| !progress.is_empty())),
        ("created", Some(format!("{} ago", job.age(now_ms)))),
        ("took", job.took(now_ms)),
        ("labels", Some(labels.join(", ")).filter(|labels| !labels.is_empty())),
        ("parent", job.parent.clone()),
        ("retry of", job.retry_of.clone()),
        ("log", job.log_path.as_deref().map(text::printable)),
    ];
    let row = |(name, value): (&str, Option<String>)| Some(vec![colours.paint(Colour::Dim, name), value?]);
    view::columns(&rows.into_iter().filter_map(row).collect::<Vec<_>>())
}

fn table(steps: &[Step]) -> String {
    let colours = Colours::of_stdout();
    let mut rows = Vec::new();
    for step in steps {
        let (sign, colour) = match step.status.as_str() {
            "completed" => ("✓", Colour::Green),
            "failed" => ("✗", Colour::Red),
            "running" => ("▸", Colour::Yellow),
            _ => ("·", Colour::Dim),
        };
        let took = step.duration_ms.map(text::duration).unwrap_or_default();
        let ended = step.result.as_deref().filter(|_| step.status == "failed").unwrap_or_default();
        rows.push(vec![
            colours.paint(colour, sign),
            step.step.to_string(),
            text::printable(&step.tool),
            took,
            text::first_line(&step.text, TEXT_WIDTH.min(usize::from(terminal::size().columns))),
            text::first_line(ended, TEXT_WIDTH),
        ]);
    }
    view::columns(&rows)
}
