//! A server of its own for each test, on a port and a directory of its own, with a client that says what it got.

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use cofferdam_server::{Server, Settings};
use reqwest::header::HeaderMap;
use reqwest::{Client, Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Long enough for a loaded machine; only a failing test waits for it.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub struct Fixture {
    pub server: Option<Server>,
    pub url: String,
    pub data: TempDir,
    pub client: Client,
}

impl Fixture {
    pub async fn start() -> Self {
        Self::with(|_| ()).await
    }

    pub async fn with(change: impl FnOnce(&mut Settings)) -> Self {
        Self::on(tempfile::tempdir().unwrap(), change).await
    }

    pub async fn on(data: TempDir, change: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = Settings::new("127.0.0.1:0".parse().unwrap(), data.path().to_owned());
        settings.pool = 1;
        change(&mut settings);
        let server = Server::start(settings).await.unwrap();
        let client = Client::builder().no_proxy().build().unwrap();
        Self { url: server.url(), server: Some(server), data, client }
    }

    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("{}{path}", self.url))
    }

    pub async fn get(&self, path: &str) -> Value {
        let response = self.request(Method::GET, path).send().await.unwrap();
        let status = response.status();
        let text = response.text().await.unwrap();
        assert_eq!(status, StatusCode::OK, "{path}: {text}");
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}: {text}"))
    }

    pub async fn text(&self, path: &str) -> String {
        let response = self.request(Method::GET, path).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::OK, "{path}");
        response.text().await.unwrap()
    }

    pub async fn schedule(&self, body: Value) -> String {
        let response = self.request(Method::POST, "/schedule").json(&body).send().await.unwrap();
        let status = response.status();
        let answer: Value = response.json().await.unwrap();
        assert_eq!(status, StatusCode::ACCEPTED, "{answer}");
        answer["job_id"].as_str().unwrap().to_owned()
    }

    pub async fn shell(&self, commands: &[&str]) -> String {
        let steps: Vec<Value> = commands.iter().map(|command| json!({ "tool": "shell", "command": command })).collect();
        self.schedule(json!({ "steps": steps })).await
    }

    /// Waits for a job's end by its events, and gives its status then.
    pub async fn end(&self, id: &str) -> Value {
        let events = self.request(Method::GET, &format!("/jobs/{id}/events")).send().await.unwrap();
        tokio::time::timeout(PATIENCE, events.text()).await.expect("the job ends").unwrap();
        self.get(&format!("/status/{id}")).await
    }

    /// Waits until a job has an event of this type, and gives that event.
    pub async fn event(&self, id: &str, kind: &str) -> Value {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let page = self.get(&format!("/jobs/{id}/events?follow=false")).await;
            let events = page["events"].as_array().unwrap();
            if let Some(event) = events.iter().find(|event| event["type"] == kind) {
                return event.clone();
            }
            assert!(tokio::time::Instant::now() < deadline, "{id} has no event {kind}: {page}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until a job has printed this line.
    pub async fn printed(&self, id: &str, text: &str) {
        let path = format!("/jobs/{id}/log");
        eventually(&format!("{id} prints {text}"), async || self.text(&path).await.lines().any(|line| line == text))
            .await;
    }

    pub async fn send(&self, request: RequestBuilder) -> Reply {
        let response = request.send().await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        Reply { status, headers, body: response.bytes().await.unwrap() }
    }

    pub async fn fetch(&self, path: &str) -> Reply {
        self.send(self.request(Method::GET, path)).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Reply {
        self.send(self.request(Method::POST, path).json(&body)).await
    }

    pub async fn put(&self, path: &str, body: impl Into<reqwest::Body>) -> Reply {
        self.send(self.request(Method::PUT, path).body(body)).await
    }

    pub async fn delete(&self, path: &str) -> Reply {
        self.send(self.request(Method::DELETE, path)).await
    }

    /// A request byte for byte, for what a client library would not send. Gives the whole answer.
    pub async fn raw(&self, request: &[u8]) -> String {
        let mut stream = self.connect().await;
        stream.write_all(request).await.unwrap();
        let mut answer = Vec::new();
        let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await.expect("an answer");
        String::from_utf8_lossy(&answer).into_owned()
    }

    pub async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.authority()).await.unwrap()
    }

    /// `127.0.0.1:PORT`
    pub fn authority(&self) -> &str {
        self.url.strip_prefix("http://").unwrap()
    }

    /// The directory of a job.
    pub fn directory(&self, id: &str) -> PathBuf {
        self.data.path().join("tasks").join(id)
    }

    /// A sandbox to use by hand.
    pub async fn sandbox(&self, options: Value) -> String {
        let reply = self.post("/sandboxes", options).await;
        assert_eq!(reply.status, 201, "{}", reply.text());
        let view = reply.json();
        assert_eq!(view["status"], "running");
        view["job_id"].as_str().unwrap().to_owned()
    }

    /// A job that has ended with this in its workspace.
    pub async fn ended_with(&self, commands: &[&str]) -> String {
        let id = self.shell(commands).await;
        let status = self.end(&id).await;
        assert_eq!(status["status"], "completed", "{status}");
        id
    }

    pub async fn stop(&mut self) {
        self.server.take().unwrap().stop().await;
    }
}

/// An answer that has arrived as a whole.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Reply {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// A refusal in its whole: `STATUS FIELD | DETAIL`, where it is about a field.
    pub fn refusal(&self) -> String {
        let problem = self.json();
        assert_eq!(self.header("content-type"), "application/problem+json", "{problem}");
        assert_eq!(problem["status"], self.status, "{problem}");
        let detail = problem["detail"].as_str().unwrap();
        match problem.get("field") {
            None => format!("{} | {detail}", self.status),
            Some(field) => format!("{} {} | {detail}", self.status, field.as_str().unwrap()),
        }
    }
}

/// Waits until something holds.
pub async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !holds().await {
        assert!(tokio::time::Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A process of a sandbox, seen from outside, by what stands in its command line.
pub fn find_process(mark: &str) -> Option<u32> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).find(|pid: &u32| {
        std::fs::read(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|line| line.windows(mark.len()).any(|window| window == mark.as_bytes()))
    })
}

/// Kills the guest above such a process, and with it the sandbox: as a crash of it would.
pub fn kill_guest_of(mark: &str) {
    let parent = |pid: u32| -> u32 {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok()).unwrap()
    };
    let mut guest = find_process(mark).expect("the process runs");
    while parent(guest) != std::process::id() {
        guest = parent(guest);
    }
    let guest = rustix::process::Pid::from_raw(guest as i32).unwrap();
    rustix::process::kill_process(guest, rustix::process::Signal::KILL).unwrap();
}
