//! `cofferdam shell`: a terminal in the sandbox of a job that runs, or in a new one that ends with the shell.

use clap::Args;
use cofferdam_protocol::exec::{ExecOutcome, TerminalSize};
use futures_util::{SinkExt, StreamExt};
use reqwest::Method;
use serde::Deserialize;
use serde_json::json;
use tokio::net::TcpStream;
use tokio::signal::unix::{SignalKind, signal};
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

use super::id;
use super::view::Job;
use crate::client::connect::{Purpose, ServerArguments, with_client};
use crate::client::{Client, parse};
use crate::exec::{Failure, read_input};
use crate::text::{print_bytes, say};
use crate::{exit_code, terminal};

/// A new sandbox ends with the shell; if this command is killed before it can say so, then after this.
const NEW_SANDBOX_TTL: &str = "12h";

/// Open a shell in the sandbox of a running job, or in a new one
#[derive(Debug, Args)]
pub struct ShellArguments {
    /// The id, its beginning or its end, or last
    #[arg(value_name = "JOB", required_unless_present = "new", conflicts_with = "new")]
    job: Option<String>,
    /// In a new sandbox, which ends with the shell
    #[arg(long)]
    new: bool,
    #[command(flatten)]
    server: ServerArguments,
}

/// The last message.
#[derive(Debug, Deserialize)]
struct Ended {
    outcome: ExecOutcome,
}

pub async fn run(arguments: ShellArguments) -> Result<u8, Failure> {
    let purpose = if arguments.new { Purpose::Work } else { Purpose::Look };
    with_client(&arguments.server, purpose, async |client| match &arguments.job {
        Some(job) => attach(client, &id::find(client, job).await?).await,
        None => {
            let body = json!({"ttl": NEW_SANDBOX_TTL});
            let response = client.send(client.request(Method::POST, "/sandboxes").json(&body)).await?;
            let text = response.text().await.map_err(|error| client.unreachable(&error))?;
            let id = parse::<Job>(&text)?.job_id;
            let code = attach(client, &id).await;
            // If it cannot be ended it has ended, or will when its time is over: the shell's own code says more.
            if let Err(failure) = client.send(client.request(Method::DELETE, &format!("/sandboxes/{id}"))).await {
                say(&failure.message);
            }
            code
        }
    })
    .await
}

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

async fn attach(client: &Client, id: &str) -> Result<u8, Failure> {
    let socket = open(client, id).await?;
    let raw = if terminal::stdin_is_terminal() { terminal::RawMode::enter() } else { None };
    let ended = converse(socket).await;
    drop(raw);
    let Ended { outcome } = ended?;
    if !matches!(outcome, ExecOutcome::Exited { .. }) {
        say(&outcome.to_string());
    }
    Ok(exit_code::of_outcome(&outcome))
}

async fn open(client: &Client, id: &str) -> Result<Socket, Failure> {
    let TerminalSize { rows, columns } = terminal::size();
    let base = client.base().replacen("http", "ws", 1);
    let url = format!("{base}/sandboxes/{id}/pty?rows={rows}&columns={columns}");
    match connect_async(url).await {
        Ok((socket, _)) => Ok(socket),
        Err(Error::Http(response)) => {
            #[derive(Deserialize)]
            struct Problem {
                detail: String,
            }
            let problem = response.body().as_deref().and_then(|body| serde_json::from_slice::<Problem>(body).ok());
            let detail = problem.map_or_else(|| format!("the server answered {}", response.status()), |it| it.detail);
            let code = if response.status() == 404 { exit_code::NO_SUCH_JOB } else { exit_code::REFUSED };
            Err(Failure::new(code, detail))
        }
        Err(error) => Err(lost(&error)),
    }
}

/// Moves bytes both ways until the shell has ended.
async fn converse(socket: Socket) -> Result<Ended, Failure> {
    let (mut to_shell, mut from_shell) = socket.split();
    let mut input = read_input(!terminal::stdin_is_terminal());
    let mut input_open = true;
    let mut resize = signal(SignalKind::window_change())
        .map_err(|error| Failure::new(exit_code::FAILED, format!("signals cannot be heard: {error}")))?;
    loop {
        let message = tokio::select! {
            message = from_shell.next() => match message {
                Some(Ok(Message::Binary(bytes))) => {
                    print_bytes(&bytes)?;
                    continue;
                }
                Some(Ok(Message::Text(text))) => return parse(&text),
                Some(Ok(Message::Close(_))) | None => {
                    return Err(Failure::new(exit_code::LOST, "the connection ended before the shell did"));
                }
                Some(Ok(_)) => continue,
                Some(Err(error)) => return Err(lost(&error)),
            },
            piece = input.recv(), if input_open => match piece {
                Some(Ok(bytes)) => Message::Binary(bytes),
                Some(Err(_)) | None => {
                    input_open = false;
                    continue;
                }
            },
            _ = resize.recv() => {
                let TerminalSize { rows, columns } = terminal::size();
                Message::text(json!({"rows": rows, "columns": columns}).to_string())
            }
        };
        // A shell that has ended meanwhile says so in what there is still to be read.
        let _ = to_shell.send(message).await;
    }
}

fn lost(error: &Error) -> Failure {
    Failure::new(exit_code::SERVER, format!("the connection to the sandbox was lost: {error}"))
}
