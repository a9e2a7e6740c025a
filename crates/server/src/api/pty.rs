//! A terminal in the sandbox of a running job, over a WebSocket. Binary messages are the terminal's bytes, text
//! messages are its size; the last message is text and says how the command ended.

use std::io;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::response::Response;
use cofferdam_protocol::exec::{ExecId, ExecOutcome, ExecRequest, TerminalSize};
use cofferdam_protocol::job::JobId;
use cofferdam_sandbox::client::{Client, ExecStream};
use serde::Deserialize;
use tokio::sync::mpsc;
use utoipa::IntoParams;

use super::exec::{begin, connect, ended, finish, new_exec_id};
use super::request::Invalid;
use super::{Answer, Api, Named, Query, State, answers};
use crate::http::problem::Problem;

/// A person types less, and a paste is cut into pieces by whoever sends it.
const MESSAGE_MAX_BYTES: usize = 1 << 20;
/// Rows or columns; no screen has more.
const SIDE_MAX: u16 = 1_000;
/// Pieces of input on their way to the command.
const INPUT_PIECES: usize = 16;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct PtyQuery {
    #[param(minimum = 1, maximum = 1000)]
    rows: Option<u16>,
    #[param(minimum = 1, maximum = 1000)]
    columns: Option<u16>,
    /// For the shell; an interactive shell if it is not given.
    command: Option<String>,
}

/// Opens a terminal in the sandbox of a running job.
#[utoipa::path(
    get,
    path = "/sandboxes/{id}/pty",
    operation_id = "pty",
    tag = "sandboxes",
    description = "A WebSocket: binary messages are the terminal's bytes both ways, text messages such as \
        `{\"rows\": 30, \"columns\": 100}` resize it, and the last message is text and says how the command ended.",
    params(Named, PtyQuery),
    responses(
        (status = 101, description = "The terminal."),
        answers::NotFound,
        answers::Conflict,
        answers::Invalid,
        answers::NotWebSocket,
        answers::TooMany,
        answers::NoSpace,
    ),
)]
pub async fn pty(
    axum::extract::State(api): State,
    Named(id): Named,
    Query(query): Query<PtyQuery>,
    upgrade: Result<WebSocketUpgrade, axum::extract::ws::rejection::WebSocketUpgradeRejection>,
) -> Answer<Response> {
    let (rows, columns) = (query.rows.unwrap_or(24), query.columns.unwrap_or(80));
    for (field, length) in [("rows", rows), ("columns", columns)] {
        if !(1..=SIDE_MAX).contains(&length) {
            return Err(Invalid::new(field, "it is between 1 and 1000").into());
        }
    }
    let size = TerminalSize { rows, columns };
    let argv = match query.command {
        Some(command) => vec!["sh".to_owned(), "-c".to_owned(), command],
        None => vec!["sh".to_owned(), "-c".to_owned(), "command -v bash >/dev/null && exec bash || exec sh".to_owned()],
    };
    let env = [("TERM".to_owned(), "xterm-256color".to_owned())].into();
    let request = ExecRequest { argv, env, terminal: Some(size), stdin: true, ..ExecRequest::default() };
    request.validate().map_err(|error| Invalid::new("command", error.to_string()))?;
    let upgrade = upgrade.map_err(|_| Problem::upgrade_required("this is a terminal; connect to it by WebSocket"))?;
    let client = connect(&api, &id).await?;
    let exec = new_exec_id();
    let stream = begin(&api, &id, &client, &exec, request).await?;
    let upgrade = upgrade.max_message_size(MESSAGE_MAX_BYTES);
    Ok(upgrade.on_upgrade(move |socket| converse(api, id, client, exec, stream, socket)))
}

async fn converse(
    api: Arc<Api>,
    id: JobId,
    client: Client,
    exec: ExecId,
    mut stream: ExecStream,
    mut socket: WebSocket,
) {
    let (input, receiver) = mpsc::channel::<io::Result<Bytes>>(INPUT_PIECES);
    let feeding = {
        let (client, exec) = (client.clone(), exec.clone());
        tokio::spawn(async move { drop(client.stdin(&exec, receiver).await) })
    };
    // What was typed and has no room yet. No more is taken from the client until it has: a paste arrives whole.
    let mut waiting: Option<Bytes> = None;
    let outcome = loop {
        let mut output = Vec::new();
        tokio::select! {
            room = input.reserve(), if waiting.is_some() => {
                if let (Ok(room), Some(bytes)) = (room, waiting.take()) {
                    room.send(Ok(bytes));
                }
            }
            more = stream.next(|_, data| output.extend_from_slice(data)) => match more {
                Ok(true) if output.is_empty() => {}
                Ok(true) => {
                    if socket.send(Message::Binary(output.into())).await.is_err() {
                        break ended(&client, &exec, "the terminal was closed").await;
                    }
                }
                Ok(false) => {
                    let status = stream.finish();
                    let lost = |reason: String| ExecOutcome::Lost { reason };
                    break status.map_err(|error| error.to_string())
                        .and_then(|status| status.outcome.ok_or_else(|| "its end was not reported".to_owned()))
                        .unwrap_or_else(lost);
                }
                Err(error) => break ExecOutcome::Lost { reason: error.to_string() },
            },
            message = socket.recv(), if waiting.is_none() => match message {
                Some(Ok(Message::Binary(bytes))) => waiting = Some(bytes),
                Some(Ok(Message::Text(text))) => {
                    let size = serde_json::from_str::<TerminalSize>(&text).ok().filter(|size| size.validate().is_ok());
                    if let Some(size) = size {
                        let _ = client.resize(&exec, size).await;
                    }
                }
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                Some(Ok(Message::Close(_)) | Err(_)) | None => {
                    break ended(&client, &exec, "the terminal was closed").await;
                }
            },
            () = api.stop.cancelled() => break ended(&client, &exec, "the server was stopped").await,
        }
    };
    feeding.abort();
    let last = finish(&api, &id, &client, &exec, outcome).await;
    let _ = socket.send(Message::Text(last.to_string().into())).await;
    let _ = socket.send(Message::Close(None)).await;
}
