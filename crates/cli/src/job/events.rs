//! `cofferdam events`: what happened to a job, one line for each event.

use clap::Args;
use cofferdam_protocol::event::{Event, EventBody};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::id;
use crate::client::connect::{Purpose, ServerArguments, with_client};
use crate::client::events::EventStream;
use crate::client::{Client, parse};
use crate::exec::Failure;
use crate::text::{self, print_line};

/// Events per question.
const PAGE: u64 = 1_000;
const TEXT_WIDTH: usize = 100;

/// Print what happened to a job
#[derive(Debug, Args)]
pub struct EventsArguments {
    /// The id, its beginning or its end, or last
    #[arg(value_name = "JOB")]
    job: String,
    /// Stay until the job has ended
    #[arg(long, short = 'f')]
    follow: bool,
    /// Only those behind this number
    #[arg(long, value_name = "N", default_value_t = 0)]
    after: u64,
    /// Print the API's JSON, one event on each line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArguments,
}

#[derive(Deserialize)]
struct Page<'a> {
    #[serde(borrow)]
    events: Vec<&'a RawValue>,
    last_seq: u64,
}

pub async fn run(arguments: EventsArguments) -> Result<u8, Failure> {
    with_client(&arguments.server, Purpose::Look, async |client| print(client, &arguments).await).await
}

async fn print(client: &Client, arguments: &EventsArguments) -> Result<u8, Failure> {
    let id = id::find(client, &arguments.job).await?;
    if arguments.follow {
        let mut stream = EventStream::new(client, &id, arguments.after);
        while let Some(event) = stream.next().await? {
            print_event(&event.data, arguments.json)?;
        }
        return Ok(0);
    }
    let mut after = arguments.after;
    loop {
        let text = client.get_text(&format!("/jobs/{id}/events?follow=false&after={after}&limit={PAGE}")).await?;
        let page: Page<'_> = parse(&text)?;
        for event in &page.events {
            print_event(event.get(), arguments.json)?;
            after = parse::<Event>(event.get())?.seq;
        }
        if page.events.is_empty() || after >= page.last_seq {
            return Ok(0);
        }
    }
}

fn print_event(data: &str, json: bool) -> Result<(), Failure> {
    if json { print_line(data) } else { print_line(&line(&parse(data)?)) }
}

fn line(event: &Event) -> String {
    let said = match &event.body {
        EventBody::Scheduled | EventBody::Started | EventBody::CancelRequested => String::new(),
        EventBody::Resumed { reason } => reason.clone(),
        EventBody::SandboxStarted { sandbox } => sandbox.clone(),
        EventBody::SandboxLost { sandbox, reason } => format!("{sandbox}: {reason}"),
        EventBody::StepStarted { step, attempt, tool, text, .. } => {
            let attempt = if *attempt > 1 { format!(" (attempt {attempt})") } else { String::new() };
            format!("{step} {tool}{attempt}: {text}")
        }
        EventBody::Output { step, log_from, log_to, .. } => format!("{step}: bytes {log_from} to {log_to} of the log"),
        EventBody::StepFinished { step, result, duration_ms, .. } => {
            format!("{step}: {result}, {}", text::duration(*duration_ms))
        }
        EventBody::ExecStarted { exec, argv } => format!("{exec}: {}", argv.join(" ")),
        EventBody::ExecFinished { exec, outcome } => format!("{exec}: {outcome}"),
        EventBody::FileChanged { path, action } => format!("{path}: {action:?}").to_lowercase(),
        EventBody::Connection { host, port, verdict, reason } => {
            let reason = reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
            format!("{host}:{port} {verdict}{reason}")
        }
        EventBody::Ended { state, reason } => {
            format!("{state}{}", reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default())
        }
    };
    let (time, kind) = (text::time_of_day(event.time_ms), event.body.kind());
    format!("{:>5}  {time}  {kind:<15}  {}", event.seq, text::first_line(&said, TEXT_WIDTH)).trim_end().to_owned()
}
