//! What the server says of itself.

use serde_json::json;

use reqwest::Method;

use crate::support::{Fixture, eventually};

#[tokio::test(flavor = "multi_thread")]
async fn it_answers_takes_jobs_and_counts() {
    let fixture = Fixture::start().await;
    assert_eq!(fixture.get("/healthz").await, json!({ "status": "ok" }));
    assert_eq!(fixture.get("/readyz").await, json!({ "status": "ready" }));
    let id = fixture.ended_with(&["true"]).await;
    fixture.fetch(&format!("/jobs/{id}")).await;
    fixture.fetch("/none").await;
    let reply = fixture.fetch("/metrics").await;
    assert_eq!(reply.header("content-type"), "application/openmetrics-text; version=1.0.0; charset=utf-8");
    let text = reply.text();
    for line in [
        r#"cofferdam_jobs{state="completed"} 1"#,
        r#"cofferdam_jobs{state="running"} 0"#,
        r#"cofferdam_jobs_finished_total{outcome="completed"} 1"#,
        "cofferdam_event_readers 0",
        "cofferdam_queue_wait_seconds_count 1",
        "cofferdam_sandbox_start_seconds_count 1",
        "cofferdam_step_seconds_count 1",
        r#"cofferdam_http_requests_total{method="POST",route="/schedule",status="202"} 1"#,
        r#"cofferdam_http_requests_total{method="GET",route="/jobs/{id}",status="200"} 1"#,
        r#"cofferdam_http_requests_total{method="GET",route="none",status="404"} 1"#,
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is missing from\n{text}");
    }
    assert!(text.ends_with("# EOF\n"));
    let commits = text.lines().find_map(|line| line.strip_prefix("cofferdam_store_commit_seconds_count "));
    assert!(commits.is_some_and(|count| count != "0"), "commits are timed:\n{text}");
    // Every line is a comment, or a name with or without labels and a number; every name was announced.
    let mut announced = Vec::new();
    for line in text.lines().filter(|line| *line != "# EOF") {
        if let Some(kind) = line.strip_prefix("# TYPE ") {
            announced.push(kind.split(' ').next().unwrap().to_owned());
        }
        if line.starts_with('#') {
            continue;
        }
        let (name, value) = line.rsplit_once(' ').unwrap();
        assert!(value.parse::<f64>().is_ok(), "{line}");
        let name = name.split('{').next().unwrap();
        assert!(announced.iter().any(|known| name.starts_with(known.as_str())), "{line}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stops_ends_its_streams_and_leaves_jobs_to_the_next() {
    let mut fixture = Fixture::with(|settings| settings.drain_timeout_ms = 0).await;
    let id = fixture.shell(&["echo one; until [ -e go ]; do sleep 0.02; done; echo two"]).await;
    fixture.event(&id, "output").await;
    let read = |path: &str| {
        let request = fixture.request(Method::GET, path);
        tokio::spawn(async move { request.send().await.unwrap().text().await.unwrap() })
    };
    let (events, log) = (read(&format!("/jobs/{id}/events")), read(&format!("/jobs/{id}/log?follow=true")));
    let readers = "cofferdam_event_readers 1";
    eventually("it is being read", async || fixture.text("/metrics").await.lines().any(|line| line == readers)).await;
    fixture.stop().await;
    let (events, log) = (events.await.unwrap(), log.await.unwrap());
    assert!(events.contains("event: output\n") && !events.contains("event: ended\n"), "{events}");
    assert!(log.ends_with("one\n"), "{log}");

    let fixture = Fixture::on(fixture.data, |_| ()).await;
    fixture.put(&format!("/jobs/{id}/files/go"), "").await;
    let status = fixture.end(&id).await;
    assert_eq!(status["status"], "completed", "{status}");
    assert_eq!(fixture.text(&format!("/jobs/{id}/log?step=1")).await, "one\ntwo\n");
    let kinds = fixture.text(&format!("/jobs/{id}/events")).await;
    assert!(kinds.contains("event: resumed\n"), "{kinds}");
}
