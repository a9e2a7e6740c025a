//! The server's interface as somebody sees it who never gives up: requests are sent again, to wherever the server
//! listens by then, until one is answered.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use futures_util::StreamExt;
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;

/// An answer that takes longer is not waited for: the request is sent again.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a server that is killed again and again may take to answer at all.
const PATIENCE: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(5);

#[derive(Debug, Clone)]
pub struct Api {
    client: reqwest::Client,
    url: watch::Receiver<Option<String>>,
}

/// An answer, and how many requests had none before.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub text: String,
    pub unanswered: u32,
}

impl Answer {
    pub fn json(&self) -> Result<Value> {
        serde_json::from_str(&self.text).with_context(|| format!("{}: {}", self.status, self.text))
    }
}

impl Api {
    pub fn new(url: watch::Receiver<Option<String>>) -> Result<Self> {
        Ok(Self { client: reqwest::Client::builder().no_proxy().build()?, url })
    }

    pub async fn get(&self, path: &str) -> Result<Answer> {
        self.ask(Method::GET, path, |request| request).await
    }

    /// Sends a request until it is answered. `complete` may be called several times.
    pub async fn ask(
        &self,
        method: Method,
        path: &str,
        complete: impl Fn(RequestBuilder) -> RequestBuilder,
    ) -> Result<Answer> {
        let deadline = Instant::now() + PATIENCE;
        let mut unanswered = 0;
        while Instant::now() < deadline {
            let request = complete(self.request(method.clone(), path).await?);
            let answered = async {
                let response = request.send().await?;
                let status = response.status();
                Ok::<_, reqwest::Error>((status, response.text().await?))
            };
            if let Ok(Ok((status, text))) = tokio::time::timeout(ANSWER_TIMEOUT, answered).await {
                return Ok(Answer { status, text, unanswered });
            }
            unanswered += 1;
            tokio::time::sleep(PAUSE).await;
        }
        bail!("{method} {path} was not answered in {PATIENCE:?}, sent {unanswered} times")
    }

    /// Sends a request and hangs up after a moment, whatever has come of it.
    pub async fn hang_up(&self, path: &str, after: Duration, complete: impl FnOnce(RequestBuilder) -> RequestBuilder) {
        if let Ok(request) = self.request(Method::POST, path).await {
            let _ = tokio::time::timeout(after, complete(request).send()).await;
        }
    }

    /// A request to the server that listens now, or to the next one.
    async fn request(&self, method: Method, path: &str) -> Result<RequestBuilder> {
        let mut url = self.url.clone();
        let url = tokio::time::timeout(PATIENCE, url.wait_for(Option::is_some)).await;
        let url = url.context("no server listens")??.clone().expect("it was waited for");
        Ok(self.client.request(method, format!("{url}{path}")))
    }

    /// Follows a job's events across any number of servers, each resumed behind the last one seen, until the job has
    /// ended. `see` is told of every event as it arrives.
    pub async fn follow(&self, id: &str, mut see: impl FnMut(&Value)) -> Result<Vec<Value>> {
        let mut events: Vec<Value> = Vec::new();
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            let last = events.last().and_then(|event| event["seq"].as_u64()).unwrap_or(0);
            let request = self.request(Method::GET, &format!("/jobs/{id}/events")).await?;
            let Ok(response) = request.header("Last-Event-ID", last).send().await else {
                tokio::time::sleep(PAUSE).await;
                continue;
            };
            if response.status() != StatusCode::OK {
                bail!("the events of {id} are answered with {}", response.status());
            }
            if self.read(response, deadline, &mut events, &mut see).await? {
                return Ok(events);
            }
        }
        bail!("the job {id} has not ended after {PATIENCE:?}; its last event is {:?}", events.last())
    }

    /// Reads one answer; whether it came to its end after the job's.
    async fn read(
        &self,
        response: Response,
        deadline: Instant,
        events: &mut Vec<Value>,
        see: &mut impl FnMut(&Value),
    ) -> Result<bool> {
        let mut body = response.bytes_stream();
        let mut text = Vec::new();
        while let Ok(chunk) = tokio::time::timeout_at(deadline, body.next()).await {
            let Some(chunk) = chunk else { break };
            let Ok(chunk) = chunk else { return Ok(false) };
            text.extend_from_slice(&chunk);
            while let Some(end) = text.windows(2).position(|pair| pair == b"\n\n") {
                let frame: Vec<u8> = text.drain(..end + 2).collect();
                let frame = String::from_utf8(frame)?;
                let Some(data) = frame.lines().find_map(|line| line.strip_prefix("data: ")) else { continue };
                let event: Value = serde_json::from_str(data)?;
                see(&event);
                events.push(event);
            }
        }
        Ok(events.iter().any(|event| event["type"] == "ended"))
    }

    /// All events of a job, page by page.
    pub async fn events(&self, id: &str) -> Result<Vec<Value>> {
        let mut events: Vec<Value> = Vec::new();
        loop {
            let after = events.last().and_then(|event| event["seq"].as_u64()).unwrap_or(0);
            let page = self.get(&format!("/jobs/{id}/events?follow=false&after={after}&limit=100")).await?.json()?;
            let more = page["events"].as_array().context("a page without events")?;
            if more.is_empty() {
                return Ok(events);
            }
            events.extend_from_slice(more);
        }
    }
}
