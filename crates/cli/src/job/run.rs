//! `cofferdam run`: schedules a job, shows it as it runs, and ends as it ended. What is typed becomes a request here; the
//! showing is `crate::live`'s, files on their way are `crate::upload`'s, patches `crate::patch`'s.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use clap::Args;
use cofferdam_protocol::event::Event;
use cofferdam_protocol::job::JobState;
use cofferdam_protocol::{Limits, NetworkPolicy};
use indicatif::ProgressBar;
use reqwest::Method;
use serde_json::{Map, Value, json};
use tokio::signal::unix::{SignalKind, signal};

use super::view::Job;
use crate::client::connect::{Connection, Purpose, ServerArguments};
use crate::client::events::EventStream;
use crate::client::{Client, parse};
use crate::exec::Failure;
use crate::live::{Live, Outcome};
use crate::text::{self, Colours, print_line, say};
use crate::upload::{Problem, Upload};
use crate::{exit_code, patch, terminal};

/// Run a job: steps from a file, or a goal in plain text
#[derive(Debug, Args)]
#[command(after_long_help = exit_code::jobs_help(), after_help = "Try --help for exit codes.")]
pub struct RunArguments {
    /// A JSON file with steps, - for standard input, or the goal itself
    #[arg(value_name = "TARGET")]
    target: String,
    /// A directory to work on a copy of; what the job changed is offered as a patch
    #[arg(long, short = 'w', value_name = "DIR")]
    workspace: Option<PathBuf>,
    /// What it may reach: none, open, or names such as example.org, *.example.org, example.org:443, with commas
    #[arg(long, short = 'n', value_name = "POLICY")]
    net: Option<String>,
    /// Set a limit: cpu, memory, processes, files, workspace, tmp or time, as in memory=512MiB
    #[arg(long, short = 'l', value_name = "NAME=VALUE")]
    limit: Vec<String>,
    /// Set an environment variable for every step; NAME alone takes its value from here
    #[arg(long, short = 'e', value_name = "NAME[=VALUE]")]
    env: Vec<String>,
    /// How long the whole job may take
    #[arg(long, value_name = "DURATION")]
    timeout: Option<String>,
    /// A label to find it again by
    #[arg(long, value_name = "NAME=VALUE")]
    label: Vec<String>,
    /// A file to put into the workspace
    #[arg(long, value_name = "PATH")]
    file: Vec<PathBuf>,
    /// The same request with the same key again is the same job
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Print the job's id, and do not wait for it
    #[arg(long, short = 'd')]
    detach: bool,
    /// Apply what the job changed to the directory without asking
    #[arg(long, requires = "workspace", conflicts_with = "detach")]
    apply: bool,
    /// Print the API's JSON: the job as it ended, or with --detach as it was made
    #[arg(long)]
    json: bool,
    /// Print nothing but errors
    #[arg(long, short = 'q', conflicts_with = "json")]
    quiet: bool,
    #[command(flatten)]
    server: ServerArguments,
}

pub async fn run(arguments: RunArguments) -> Result<u8, Failure> {
    let body = request_body(&arguments)?;
    let purpose = if arguments.detach { Purpose::Look } else { Purpose::Work };
    let connection = Connection::open(&arguments.server, purpose).await?;
    let code = work(&connection, &arguments, body).await;
    connection.close().await;
    code
}

async fn work(connection: &Connection, arguments: &RunArguments, body: String) -> Result<u8, Failure> {
    let client = &connection.client;
    let scheduled = schedule(client, arguments, body).await?;
    let job: Job = parse(&scheduled)?;
    let id = &job.job_id;
    if arguments.detach {
        if !arguments.quiet {
            print_line(if arguments.json { scheduled.trim_end() } else { id })?;
        }
        connection.say_if_nobody_works().await;
        return Ok(0);
    }
    let outcome = follow(client, &job.job_id, job.steps_total, arguments.quiet || arguments.json).await?;
    if arguments.json {
        print_line(client.get_text(&format!("/status/{id}")).await?.trim_end())?;
    }
    if let Some(directory) = &arguments.workspace {
        offer_patch(client, id, directory, outcome.state, arguments).await?;
    }
    Ok(outcome.exit_code())
}

/// The job as the API wants it: what the target says, and over it what the options say.
fn request_body(arguments: &RunArguments) -> Result<String, Failure> {
    let mut body = read_target(&arguments.target)?;
    let mut set = |name: &str, pairs: Map<String, Value>| match body.get_mut(name) {
        _ if pairs.is_empty() => {}
        Some(Value::Object(there)) => there.extend(pairs),
        _ => drop(body.insert(name.to_owned(), Value::Object(pairs))),
    };
    let mut limits = Map::new();
    for limit in &arguments.limit {
        Limits::default().set(limit).map_err(|error| Failure::new(exit_code::LIMIT_WRONG, error))?;
        if let Some((name, value)) = limit.split_once('=') {
            limits.insert(name.trim().to_owned(), json!(value.trim()));
        }
    }
    set("limits", limits);
    let variable = |pair: &String| match pair.split_once('=') {
        Some((name, value)) => Some((name.to_owned(), json!(value))),
        None => std::env::var(pair).ok().map(|value| (pair.clone(), json!(value))),
    };
    set("env", arguments.env.iter().filter_map(variable).collect());
    let label = |pair: &String| match pair.split_once('=') {
        Some((name, value)) => Ok((name.to_owned(), json!(value))),
        None => Err(Failure::new(exit_code::USAGE, format!("--label {pair}: a label is written NAME=VALUE"))),
    };
    set("labels", arguments.label.iter().map(label).collect::<Result<_, _>>()?);
    if let Some(policy) = &arguments.net {
        policy.parse::<NetworkPolicy>().map_err(|error| Failure::new(exit_code::NETWORK_WRONG, error))?;
        body.insert("network".to_owned(), json!(policy));
    }
    if let Some(timeout) = &arguments.timeout {
        body.insert("timeout".to_owned(), json!(timeout));
    }
    Ok(Value::Object(body).to_string())
}

fn read_target(target: &str) -> Result<Map<String, Value>, Failure> {
    let wrong = |problem: String| Failure::new(exit_code::FILE_WRONG, format!("{target}: {problem}"));
    let unreadable = |error: io::Error| wrong(format!("it cannot be read: {error}"));
    let text = if target == "-" {
        let mut text = String::new();
        io::stdin().read_to_string(&mut text).map_err(unreadable)?;
        text
    } else if Path::new(target).is_file() || target.ends_with(".json") {
        let text = std::fs::read_to_string(target).map_err(unreadable)?;
        if !text.trim_start().starts_with(['{', '[']) {
            return Err(wrong("it is not JSON with steps; a goal is written as the argument itself".to_owned()));
        }
        text
    } else {
        target.to_owned()
    };
    if !text.trim_start().starts_with(['{', '[']) {
        return Ok(Map::from_iter([("task".to_owned(), json!(text))]));
    }
    match serde_json::from_str(&text) {
        Ok(Value::Object(body)) => Ok(body),
        Ok(steps) => Ok(Map::from_iter([("steps".to_owned(), steps)])),
        Err(error) => Err(wrong(format!("it is not valid JSON: {error}"))),
    }
}

/// The server's answer. A server that goes away meanwhile is asked again, or the next one: with a key, twice is once.
async fn schedule(client: &Client, arguments: &RunArguments, body: String) -> Result<String, Failure> {
    let random = || getrandom::u64().map(|key| format!("{key:016x}"));
    let key = match &arguments.idempotency_key {
        Some(key) => key.clone(),
        None => format!("{}-{}", random().unwrap_or_default(), text::now_ms()),
    };
    let request = || client.request(Method::POST, "/schedule").header("Idempotency-Key", &key);
    if arguments.file.is_empty() && arguments.workspace.is_none() {
        let whole = async || Ok(request().header("Content-Type", "application/json").body(body.clone()));
        return client.send_patiently(whole).await;
    }
    let problem = Problem::default();
    let bar = Mutex::new(ProgressBar::hidden());
    let streamed = async || {
        let upload =
            Upload::new(body.clone(), &arguments.file, arguments.workspace.as_deref(), problem.clone()).await?;
        *bar.lock().unwrap_or_else(PoisonError::into_inner) = upload.bar;
        Ok(request().multipart(upload.form))
    };
    let answer = client.send_patiently(streamed).await;
    bar.lock().unwrap_or_else(PoisonError::into_inner).finish_and_clear();
    answer.map_err(|failure| problem.failure().unwrap_or(failure))
}

async fn follow(client: &Client, id: &str, total: u32, silent: bool) -> Result<Outcome, Failure> {
    let mut live = Live::new(client, id, total, silent)?;
    tokio::spawn(cancel_on_signals(client.clone(), id.to_owned(), live.bar()));
    let mut events = EventStream::new(client, id, 0);
    while let Some(event) = events.next().await? {
        live.show(&parse::<Event>(&event.data)?).await?;
    }
    live.finish()
}

/// The first signal ends the job, whose end ends this command; the second ends this command.
async fn cancel_on_signals(client: Client, id: String, bar: Option<ProgressBar>) -> io::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut cancelled = false;
    loop {
        let code = tokio::select! {
            _ = interrupt.recv() => exit_code::CANCELLED,
            _ = terminate.recv() => exit_code::TERMINATED,
        };
        if cancelled {
            std::process::exit(code.into());
        }
        cancelled = true;
        let tell = || say("cancelling the job; once more leaves it at once");
        bar.as_ref().map_or_else(tell, |bar| bar.suspend(tell));
        let (client, id) = (client.clone(), id.clone());
        tokio::spawn(async move {
            if let Err(failure) = client.cancel(&id).await {
                say(&failure.message);
            }
        });
    }
}

/// Shows what the job changed, and applies it if that is wanted. A job that failed has left things half done: its patch
/// is only pointed at.
async fn offer_patch(
    client: &Client,
    id: &str,
    directory: &Path,
    state: JobState,
    arguments: &RunArguments,
) -> Result<(), Failure> {
    let silent = arguments.quiet || arguments.json;
    let shown = |line: &str| if silent { Ok(()) } else { print_line(line) };
    let unreadable = |error: io::Error| Failure::new(exit_code::DISK_FULL, format!("the patch is lost: {error}"));
    let mut patch = patch::fetch(client, id).await?;
    let summary = patch::Summary::of(&mut patch).map_err(unreadable)?;
    if summary.is_empty() {
        return shown("nothing was changed");
    }
    shown(&summary.show(Colours::of_stdout()))?;
    if !summary.left_out.is_empty() {
        say(&format!("the patch is not all of it; the rest is in: cofferdam download {id}"));
    }
    if summary.files.is_empty() {
        return Ok(());
    }
    let by_hand = format!("to apply it, in {}: cofferdam diff {id} | git apply", directory.display());
    if state != JobState::Completed || !patch::git_is_there() {
        if arguments.apply {
            say(&format!(
                "the patch is not applied, since {}",
                match state {
                    JobState::Completed => "there is no git here",
                    _ => "the job did not complete",
                }
            ));
        }
        return shown(&by_hand);
    }
    let asked = !arguments.apply && !silent && terminal::stdin_is_terminal() && terminal::stdout_is_terminal();
    if arguments.apply || (asked && confirm(&format!("Apply to {}? [y/N] ", directory.display()))?) {
        patch::apply(patch, directory)?;
        return shown(&format!("applied to {}", directory.display()));
    }
    shown(&by_hand)
}

fn confirm(question: &str) -> Result<bool, Failure> {
    let mut stdout = io::stdout();
    stdout.write_all(question.as_bytes()).and_then(|()| stdout.flush()).map_err(text::output_failure)?;
    let mut answer = String::new();
    let _ = io::stdin().read_line(&mut answer);
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_steps_or_a_goal() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, content: &str| {
            let path = directory.path().join(name);
            std::fs::write(&path, content).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let body = |target: &str| read_target(target).map(Value::Object).map_err(|failure| failure.message);
        assert_eq!(body("say hello").unwrap(), json!({"task": "say hello"}));
        let steps = json!([{"tool": "shell", "command": "true"}]);
        assert_eq!(body(&file("a.json", &steps.to_string())).unwrap(), json!({"steps": steps}));
        let whole = json!({"steps": steps, "network": "open"});
        assert_eq!(body(&file("b.json", &whole.to_string())).unwrap(), whole);
        assert_eq!(
            body("nosuch.json").unwrap_err(),
            "nosuch.json: it cannot be read: No such file or directory (os error 2)"
        );
        assert!(body(&file("notes.txt", "hello")).unwrap_err().ends_with("a goal is written as the argument itself"));
        assert!(body(&file("c.json", "{")).unwrap_err().contains("it is not valid JSON"));
    }
}
