//! What a job may reach, and what is told of it.

use std::io::{Read, Write};
use std::net::TcpListener;

use serde_json::{Value, json};

use crate::support::{Fixture, eventually};

/// A web server of the host's, on a loopback address that is not the sandbox's own.
fn serve() -> u16 {
    let listener = TcpListener::bind("127.0.0.2:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = connection.unwrap();
            let _ = connection.read(&mut [0; 4096]);
            let _ = connection.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nhello\n");
        }
    });
    port
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_reaches_what_its_policy_names() {
    let fixture = Fixture::start().await;
    let port = serve();
    let command = format!("curl -s --max-time 5 http://127.0.0.2:{port}/; echo $?");
    let refused = "curl -s -o /dev/null -w '%{http_code}\\n' http://example.org/";
    let steps = json!([{ "tool": "shell", "command": command }, { "tool": "shell", "command": refused, "continue_on_error": true }]);
    let alone = fixture.schedule(json!({ "steps": steps })).await;
    let named = fixture.schedule(json!({ "steps": steps, "network": [format!("127.0.0.2:{port}")] })).await;
    let text = fixture.schedule(json!({ "steps": steps, "network": format!("127.0.0.2:{port},*.example.test") })).await;
    for (id, expected) in [(&alone, "7\n"), (&named, "hello\n0\n"), (&text, "hello\n0\n")] {
        assert_eq!(fixture.end(id).await["status"], "completed");
        assert_eq!(fixture.text(&format!("/jobs/{id}/log?step=1")).await, expected);
    }
    assert_eq!(fixture.text(&format!("/jobs/{named}/log?step=2")).await, "403\n");

    let connections = async || -> Vec<Value> {
        let page = fixture.get(&format!("/jobs/{named}/events?follow=false")).await;
        let events = page["events"].as_array().unwrap();
        events.iter().filter(|event| event["type"] == "connection").cloned().collect()
    };
    eventually("both are told", async || connections().await.len() == 2).await;
    let told = connections().await;
    assert_eq!(
        (&told[0]["host"], &told[0]["port"], &told[0]["verdict"]),
        (&json!("127.0.0.2"), &json!(port), &json!("allowed"))
    );
    assert_eq!((&told[1]["host"], &told[1]["verdict"]), (&json!("example.org"), &json!("refused")));
    assert!(told[1]["reason"].as_str().unwrap().contains("allow-list"), "{told:?}");
    let page = fixture.get(&format!("/jobs/{named}/events?follow=false")).await;
    assert_eq!(page["events"].as_array().unwrap().last().unwrap()["type"], "ended", "nothing is told behind the end");

    let lines = std::fs::read_to_string(fixture.directory(&named).join("connections.jsonl")).unwrap();
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.iter().any(|line| line["host"] == "127.0.0.2"), "{lines:?}");
    assert!(!fixture.directory(&alone).join("connections.jsonl").exists());
}
