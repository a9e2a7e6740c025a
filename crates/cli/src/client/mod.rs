//! The API from the outside: requests, the sentence in a refusal, and patience with a server that restarts. Which
//! server it is, is decided in [`connect`]; [`events`] and [`log`] are the two streams that resume where they broke.

pub mod connect;
pub mod events;
pub mod log;

use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::exec::Failure;
use crate::exit_code;
use cofferdam_server::{Server, Settings, running_server};
use connect::Purpose;

/// A server on this machine answers at once or not at all; one beyond a network gets this long to accept.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a server that was there may be away: longer than a restart with recovery takes.
const PATIENCE: Duration = Duration::from_secs(60);
/// A server that is restarted comes back sooner.
const TAKE_OVER_AFTER: Duration = Duration::from_secs(3);
const PAUSE_FIRST: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// A refusal is a sentence; more than this is not one of ours.
const PROBLEM_SHOWN_BYTES: usize = 2_000;

#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    /// Without a slash at its end. Changes when the server comes back elsewhere.
    base: Arc<Mutex<String>>,
    /// Where to look for a server that comes back; absent when the person named its address.
    home: Option<Arc<Home>>,
}

/// The data directory that this command works with.
#[derive(Debug)]
struct Home {
    purpose: Purpose,
    /// Of a server of our own.
    settings: Settings,
    /// That server, once there is one.
    embedded: tokio::sync::Mutex<Option<Server>>,
}

impl Client {
    fn new(base: &str, home: Option<Arc<Home>>) -> Result<Self, Failure> {
        // A proxy of the environment is for the internet, not for a server of one's own.
        let http = reqwest::Client::builder().no_proxy().connect_timeout(CONNECT_TIMEOUT).build();
        let http = http.map_err(|error| Failure::new(exit_code::SERVER, format!("no client: {error}")))?;
        Ok(Self { http, base: Arc::new(Mutex::new(reachable(base))), home })
    }

    pub fn base(&self) -> String {
        self.base.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// `path` with its slash, and its query.
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, format!("{}{path}", self.base()))
    }

    /// Sends once. An answer that is a refusal becomes its sentence.
    pub async fn send(&self, request: RequestBuilder) -> Result<Response, Failure> {
        match request.send().await {
            Ok(response) => accepted(response).await,
            Err(error) => Err(self.unreachable(&error)),
        }
    }

    /// The body of an answer as it came, asked for again while the server is away.
    pub async fn get_text(&self, path: &str) -> Result<String, Failure> {
        self.send_patiently(async || Ok(self.request(Method::GET, path))).await
    }

    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        parse(&self.get_text(path).await?)
    }

    /// For what may be asked for twice: again while the server is away.
    pub async fn send_patiently(
        &self,
        request: impl AsyncFn() -> Result<RequestBuilder, Failure>,
    ) -> Result<String, Failure> {
        let mut patience = Patience::new(self);
        loop {
            match self.answer(request().await?).await {
                Ok(text) => return Ok(text),
                Err(failure) => patience.wait(failure).await?,
            }
        }
    }

    pub async fn cancel(&self, job: &str) -> Result<String, Failure> {
        let mut patience = Patience::new(self);
        loop {
            match self.answer(self.request(Method::POST, &format!("/jobs/{job}/cancel"))).await {
                Ok(text) => return Ok(text),
                Err(failure) => patience.wait(failure).await?,
            }
        }
    }

    async fn answer(&self, request: RequestBuilder) -> Result<String, Failure> {
        self.send(request).await?.text().await.map_err(|error| self.unreachable(&error))
    }

    pub async fn post_text(&self, path: &str) -> Result<String, Failure> {
        self.answer(self.request(Method::POST, path)).await
    }

    pub fn unreachable(&self, error: &reqwest::Error) -> Failure {
        let mut reason: &dyn Error = error;
        // The innermost has the errno; what is around it repeats the address.
        while let Some(source) = reason.source() {
            reason = source;
        }
        let message =
            format!("the server at {} does not answer: {reason}; start one with: cofferdam serve", self.base());
        Failure::new(exit_code::SERVER, message)
    }

    fn set_base(&self, url: &str) {
        *self.base.lock().unwrap_or_else(PoisonError::into_inner) = reachable(url);
    }

    /// The one that is there now. Where none comes, it may have been that of another command, which has ended: then
    /// one of our own carries on.
    async fn look_for_server(&self, may_start: bool) {
        let Some(home) = &self.home else { return };
        if let Some(server) = running_server(&home.settings.data) {
            self.set_base(&server.url);
        } else if may_start && let Ok(server) = Server::start(home.settings.clone()).await {
            self.set_base(&server.url());
            *home.embedded.lock().await = Some(server);
        }
    }
}

/// The address to ask at: a server that listens everywhere is here as well, and answers to names of its own only.
pub fn reachable(url: &str) -> String {
    url.trim_end_matches('/').replacen("//0.0.0.0:", "//127.0.0.1:", 1).replacen("//[::]:", "//[::1]:", 1)
}

pub fn parse<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, Failure> {
    serde_json::from_str(text).map_err(|error| {
        Failure::new(
            exit_code::SERVER,
            format!("the server's answer was not understood: {error}; use the same version on both sides"),
        )
    })
}

/// For the value of a query: everything but letters, digits and a few marks by its number.
pub fn query_value(text: &str) -> String {
    let encode = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b',' => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}

async fn accepted(response: Response) -> Result<Response, Failure> {
    if response.status().is_success() { Ok(response) } else { Err(refusal(response).await) }
}

async fn refusal(response: Response) -> Failure {
    #[derive(Deserialize)]
    struct Problem {
        detail: String,
    }
    let status = response.status();
    let code = match status {
        StatusCode::NOT_FOUND => exit_code::NO_SUCH_JOB,
        // It is stopping: the next one will do what was asked for.
        StatusCode::SERVICE_UNAVAILABLE => exit_code::SERVER,
        _ => exit_code::REFUSED,
    };
    let text = response.text().await.unwrap_or_default();
    match serde_json::from_str::<Problem>(&text) {
        Ok(problem) => Failure::new(code, problem.detail),
        Err(_) => {
            let shown: String = text.chars().take(PROBLEM_SHOWN_BYTES).collect();
            Failure::new(code, format!("the server answered {status}: {}", shown.trim()))
        }
    }
}

/// Pauses between attempts, each longer than the one before, until it has been too long.
pub struct Patience<'a> {
    client: &'a Client,
    /// Whether a server of our own may be started in the place of the one that is gone.
    may_start: bool,
    since: Option<Instant>,
    pause: Duration,
}

impl<'a> Patience<'a> {
    pub fn new(client: &'a Client) -> Self {
        Self { client, may_start: true, since: None, pause: PAUSE_FIRST }
    }

    /// For something that lasts: a server that only answers must not take the place of one that works.
    pub fn for_stream(client: &'a Client) -> Self {
        let works = client.home.as_ref().is_some_and(|home| home.purpose == Purpose::Work);
        Self { may_start: works, ..Self::new(client) }
    }

    /// After an answer: the next failure is a new one.
    pub fn renew(&mut self) {
        self.since = None;
        self.pause = PAUSE_FIRST;
    }

    /// Only a server that does not answer is waited for; gives the error back when that was in vain.
    pub async fn wait(&mut self, error: Failure) -> Result<(), Failure> {
        let since = *self.since.get_or_insert_with(Instant::now);
        if error.code != exit_code::SERVER || since.elapsed() > PATIENCE {
            return Err(error);
        }
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        self.client.look_for_server(self.may_start && since.elapsed() > TAKE_OVER_AFTER).await;
        Ok(())
    }
}
