//! Commands of people in the sandbox of a running job, with their output as it comes.

use std::collections::BTreeMap;
use std::io;

use axum::body::{Body, Bytes};
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::Response;
use base64::Engine;
use cofferdam_protocol::event::EventBody;
use cofferdam_protocol::exec::{ExecId, ExecOutcome, ExecRequest};
use cofferdam_protocol::job::JobId;
use cofferdam_protocol::output::Stream;
use cofferdam_sandbox::client::{Client, ExecStream};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use utoipa::ToSchema;

use super::request::{Amount, Invalid, check_env, duration_ms};
use super::schedule::parse_json;
use super::{Answer, Api, Named, Payload, State, answers, untrusted};
use crate::clock::{now_ms, random};
use crate::http::problem::Problem;
use crate::jobs::shorten;

/// Lines on their way to the client; behind them the command waits.
const LINES: usize = 16;

/// Of a command that an event shows: events are read by many, and kept.
const ARGV_SHOWN_MAX: usize = 20;
const ARGUMENT_SHOWN_CHARS: usize = 500;

/// The body of `POST /sandboxes/{id}/exec`: one of `command` and `argv`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExecBody {
    /// For the shell.
    command: Option<String>,
    /// A program and its arguments.
    argv: Option<Vec<String>>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    cwd: Option<String>,
    timeout: Option<Amount>,
    /// What the command reads.
    stdin: Option<String>,
}

impl ExecBody {
    fn into_request(self) -> Result<(ExecRequest, Option<String>), Invalid> {
        let (field, argv) = match (self.command, self.argv) {
            (Some(command), None) => ("command", vec!["sh".to_owned(), "-c".to_owned(), command]),
            (None, Some(argv)) if argv.first().is_none_or(String::is_empty) => {
                return Err(Invalid::new("argv", "it is empty; name a program, as in [\"ls\", \"-l\"]"));
            }
            (None, Some(argv)) => ("argv", argv),
            _ => return Err(Invalid::new("command", "send one of command and argv")),
        };
        if argv.iter().any(|argument| argument.contains('\0')) {
            return Err(Invalid::new(field, "it holds a NUL byte; remove it"));
        }
        if self.cwd.as_ref().is_some_and(|cwd| cwd.contains('\0')) {
            return Err(Invalid::new("cwd", "it holds a NUL byte; remove it"));
        }
        check_env("env", &self.env)?;
        let request = ExecRequest {
            argv,
            env: self.env,
            cwd: self.cwd,
            terminal: None,
            stdin: self.stdin.is_some(),
            timeout_ms: duration_ms("timeout", self.timeout, 0)?,
        };
        request.validate().map_err(|error| Invalid::new(field, error.to_string()))?;
        Ok((request, self.stdin))
    }
}

/// Runs a command in the sandbox of a running job. A client that hangs up ends the command.
#[utoipa::path(
    post,
    path = "/sandboxes/{id}/exec",
    operation_id = "exec",
    tag = "sandboxes",
    params(Named),
    request_body(content = ExecBody, example = json!({ "command": "ls -la" })),
    responses(
        (status = 200, description = "Lines of JSON as it runs: output, and last how it ended.", body = String,
            content_type = "application/x-ndjson"),
        answers::NotFound,
        answers::Stalled,
        answers::Conflict,
        answers::TooLarge,
        answers::Invalid,
        answers::TooMany,
        answers::NoSpace,
    ),
)]
pub async fn exec(axum::extract::State(api): State, Named(id): Named, Payload(body): Payload) -> Answer<Response> {
    let (request, stdin) = parse_json::<ExecBody>(&body)?.into_request()?;
    let client = connect(&api, &id).await?;
    let exec = new_exec_id();
    let stream = begin(&api, &id, &client, &exec, request).await?;
    if let Some(stdin) = stdin {
        let (sender, receiver) = mpsc::channel(1);
        let _ = sender.send(Ok(Bytes::from(stdin))).await;
        let (client, exec) = (client.clone(), exec.clone());
        tokio::spawn(async move { drop(client.stdin(&exec, receiver).await) });
    }
    let (lines, receiver) = mpsc::channel::<io::Result<Bytes>>(LINES);
    tokio::spawn(follow(api, id, client, exec, stream, lines));
    let mut response = Response::new(Body::from_stream(ReceiverStream::new(receiver)));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    untrusted(response.headers_mut());
    Ok(response)
}

/// The guest of a job that runs, on a connection of its own: a client that does not read holds up nobody else.
pub async fn connect(api: &Api, id: &JobId) -> Answer<Client> {
    let job = api.job(id).await?;
    api.jobs.connect(id).await.ok_or_else(|| {
        Problem::conflict(format!("the job {id} is {} and has no sandbox; commands need one that runs", job.state))
    })
}

pub fn new_exec_id() -> ExecId {
    ExecId::try_from(format!("api-{:x}", random())).expect("it is a valid id")
}

/// Starts a command, in the environment that the job gives to all of its own, once the job's events tell of it.
pub async fn begin(
    api: &Api,
    id: &JobId,
    client: &Client,
    exec: &ExecId,
    mut request: ExecRequest,
) -> Answer<ExecStream> {
    let mut env = api.jobs.inner().store.spec(id).await?.env;
    env.append(&mut request.env);
    request.env = env;
    request.validate().map_err(|error| Invalid::new("env", error.to_string()))?;
    let argv =
        request.argv.iter().take(ARGV_SHOWN_MAX).map(|argument| shorten(argument, ARGUMENT_SHOWN_CHARS)).collect();
    let event = EventBody::ExecStarted { exec: exec.to_string(), argv };
    api.jobs.inner().store.note(id, now_ms(), vec![event]).await?;
    Ok(client.exec(exec, &request, 0, false).await?)
}

/// Tells the job's events how a command ended, and lets the guest forget it. The last line for whoever follows it.
pub async fn finish(api: &Api, id: &JobId, client: &Client, exec: &ExecId, outcome: ExecOutcome) -> Value {
    let line = json!({
        "exit_code": match &outcome { ExecOutcome::Exited { code } => Some(*code), _ => None },
        "message": outcome.to_string(),
        "outcome": outcome,
    });
    let event = EventBody::ExecFinished { exec: exec.to_string(), outcome };
    let _ = api.jobs.inner().store.note(id, now_ms(), vec![event]).await;
    let _ = client.forget(exec).await;
    line
}

async fn follow(
    api: std::sync::Arc<Api>,
    id: JobId,
    client: Client,
    exec: ExecId,
    mut stream: ExecStream,
    lines: mpsc::Sender<io::Result<Bytes>>,
) {
    let mut encoder = Encoder::default();
    let outcome = loop {
        let mut ready = Vec::new();
        let more = tokio::select! {
            more = stream.next(|stream, data| encoder.push(stream, data, &mut ready)) => more,
            () = lines.closed() => break ended(&client, &exec, "the client hung up").await,
        };
        let has_ended = matches!(more, Ok(false));
        if has_ended {
            encoder.flush(&mut ready);
        }
        if !ready.is_empty() && lines.send(Ok(ready.into())).await.is_err() {
            break ended(&client, &exec, "the client hung up").await;
        }
        match more {
            Ok(true) => {}
            Ok(false) => match stream.finish() {
                Ok(status) => break status.outcome.unwrap_or(lost("its end was not reported")),
                Err(error) => break lost(&error.to_string()),
            },
            Err(error) => break lost(&error.to_string()),
        }
    };
    let mut line = finish(&api, &id, &client, &exec, outcome).await.to_string().into_bytes();
    line.push(b'\n');
    let _ = lines.send(Ok(line.into())).await;
}

pub async fn ended(client: &Client, exec: &ExecId, reason: &str) -> ExecOutcome {
    let _ = client.kill(exec).await;
    lost(reason)
}

fn lost(reason: &str) -> ExecOutcome {
    ExecOutcome::Lost { reason: reason.to_owned() }
}

/// Output as lines of JSON: text where it is UTF-8, and characters that a chunk cuts in two are put together again.
#[derive(Debug, Default)]
struct Encoder {
    /// The beginning of a character, of stdout and stderr.
    cut: [Vec<u8>; 2],
}

impl Encoder {
    fn push(&mut self, stream: Stream, data: &[u8], lines: &mut Vec<u8>) {
        let cut = &mut self.cut[usize::from(stream == Stream::Stderr)];
        let mut bytes = std::mem::take(cut);
        bytes.extend_from_slice(data);
        let whole = match std::str::from_utf8(&bytes) {
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            _ => bytes.len(),
        };
        *cut = bytes.split_off(whole);
        write_line(stream, &bytes, lines);
    }

    fn flush(&mut self, lines: &mut Vec<u8>) {
        let [stdout, stderr] = std::mem::take(&mut self.cut);
        write_line(Stream::Stdout, &stdout, lines);
        write_line(Stream::Stderr, &stderr, lines);
    }
}

fn write_line(stream: Stream, bytes: &[u8], lines: &mut Vec<u8>) {
    if bytes.is_empty() {
        return;
    }
    let name = if stream == Stream::Stdout { "stdout" } else { "stderr" };
    let line = match std::str::from_utf8(bytes) {
        Ok(text) => json!({ "stream": name, "text": text }),
        Err(_) => {
            json!({ "stream": name, "base64": base64::engine::general_purpose::STANDARD.encode(bytes) })
        }
    };
    lines.extend_from_slice(line.to_string().as_bytes());
    lines.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_are_cut_in_two_are_put_together() {
        let mut encoder = Encoder::default();
        let mut lines = Vec::new();
        encoder.push(Stream::Stdout, b"a\xc3", &mut lines);
        encoder.push(Stream::Stderr, b"\xff", &mut lines);
        encoder.push(Stream::Stdout, b"\xbc", &mut lines);
        encoder.push(Stream::Stdout, b"\xe2\x82", &mut lines);
        encoder.flush(&mut lines);
        assert_eq!(
            String::from_utf8(lines).unwrap(),
            "{\"stream\":\"stdout\",\"text\":\"a\"}\n\
             {\"base64\":\"/w==\",\"stream\":\"stderr\"}\n\
             {\"stream\":\"stdout\",\"text\":\"ü\"}\n\
             {\"base64\":\"4oI=\",\"stream\":\"stdout\"}\n"
        );
    }
}
