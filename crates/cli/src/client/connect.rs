//! Which server a command speaks to: the one that is named, else the one that lives on the data directory, else one
//! that is started in this process and stopped with the command.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use reqwest::Method;

use super::{Client, Home};
use crate::exec::Failure;
use crate::exit_code;
use crate::serve::embedded_settings;
use crate::text::say;
use cofferdam_server::{Server, ServerError, Settings, running_server};

/// A server that has taken the data directory's lock and does not listen yet is recovering.
const STARTING_TIMEOUT: Duration = Duration::from_secs(30);
const STARTING_PAUSE: Duration = Duration::from_millis(20);

#[derive(Debug, Clone, Args)]
pub struct ServerArguments {
    /// The server to use; without it, the one that runs on the data directory, or one for this command alone
    #[arg(long, env = "COFFERDAM_SERVER", value_name = "URL", help_heading = "Server")]
    pub server: Option<String>,
    /// The data directory of that server
    #[arg(long, env = "COFFERDAM_DATA", value_name = "DIR", help_heading = "Server")]
    pub data: Option<PathBuf>,
}

/// What a server of our own is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// It answers questions and starts no job.
    Look,
    /// It works on jobs.
    Work,
}

pub struct Connection {
    pub client: Client,
}

impl Connection {
    pub async fn open(arguments: &ServerArguments, purpose: Purpose) -> Result<Self, Failure> {
        if let Some(url) = arguments.server.as_ref().filter(|url| !url.is_empty()) {
            return Self::to_named(url).await;
        }
        let mut settings = embedded_settings(arguments.data.clone())?;
        // Whatever else runs is for the next server: the person waits for this command only.
        settings.drain_timeout_ms = 0;
        // Nor is there a next job to keep a sandbox ready for.
        settings.pool = 0;
        if purpose == Purpose::Look {
            settings.jobs_max = Some(0);
        }
        let home = |embedded: Option<Server>, settings: Settings| {
            Some(Arc::new(Home { purpose, settings, embedded: tokio::sync::Mutex::new(embedded) }))
        };
        let deadline = Instant::now() + STARTING_TIMEOUT;
        loop {
            if let Some(server) = running_server(&settings.data) {
                return Ok(Self { client: Client::new(&server.url, home(None, settings))? });
            }
            match Server::start(settings.clone()).await {
                Ok(server) => {
                    let url = server.url();
                    return Ok(Self { client: Client::new(&url, home(Some(server), settings))? });
                }
                // Somebody was quicker: theirs will answer in a moment.
                Err(ServerError::InUse { .. }) if Instant::now() < deadline => {
                    tokio::time::sleep(STARTING_PAUSE).await;
                }
                Err(error) => return Err(Failure::new(exit_code::SERVER, error)),
            }
        }
    }

    /// A name that is wrong is told at once, and not after a minute's patience.
    async fn to_named(url: &str) -> Result<Self, Failure> {
        if !url.starts_with("http://") {
            let message = format!("--server {url} is not an address such as http://127.0.0.1:8000");
            return Err(Failure::new(exit_code::USAGE, message));
        }
        let client = Client::new(url, None)?;
        client.send(client.request(Method::GET, "/healthz")).await?;
        Ok(Self { client })
    }

    /// A job that is left in a server of our own waits for the next one.
    pub async fn say_if_nobody_works(&self) {
        if let Some(home) = &self.client.home
            && home.embedded.lock().await.is_some()
        {
            say("no server is running; the job waits until there is one: cofferdam serve");
        }
    }

    pub async fn close(self) {
        if let Some(home) = &self.client.home
            && let Some(server) = home.embedded.lock().await.take()
        {
            server.stop().await;
        }
    }
}

/// Opens, works, and closes whatever the work came to.
pub async fn with_client(
    arguments: &ServerArguments,
    purpose: Purpose,
    work: impl AsyncFnOnce(&Client) -> Result<u8, Failure>,
) -> Result<u8, Failure> {
    let connection = Connection::open(arguments, purpose).await?;
    let result = work(&connection.client).await;
    connection.close().await;
    result
}
