//! A server of its own for each test, on a port and a directory of its own, with a client that says what it got.

use std::time::Duration;

use cofferdam_server::{Server, Settings};
use reqwest::{Client, Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;

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

    /// Waits until a job has printed this.
    pub async fn printed(&self, id: &str, text: &str) {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while !self.text(&format!("/jobs/{id}/log")).await.contains(text) {
            assert!(tokio::time::Instant::now() < deadline, "{id} has not printed {text}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub async fn stop(&mut self) {
        self.server.take().unwrap().stop().await;
    }
}
