//! A job's events: a stream that can be resumed anywhere, and pages.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use reqwest::Method;

use crate::support::{Fixture, PATIENCE, eventually};

/// What a reader got: number, type and data of each event, as far as they arrived whole.
fn parse(stream: &str) -> Vec<(u64, String, Value)> {
    let mut frames: Vec<&str> = stream.split("\n\n").collect();
    // Behind the last empty line there is nothing, or an event that did not arrive whole.
    frames.pop();
    let frames = frames.into_iter().filter(|frame| *frame != ":");
    let parsed = frames.map(|frame| {
        let lines: Vec<&str> = frame.lines().collect();
        let [id, event, data] = lines[..] else { panic!("{frame}") };
        let data: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
        (id.strip_prefix("id: ").unwrap().parse().unwrap(), event.strip_prefix("event: ").unwrap().to_owned(), data)
    });
    parsed.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_is_resumed_at_any_event() {
    let fixture = Fixture::start().await;
    let id = fixture.shell(&["echo one", "echo two >&2; exit 3"]).await;
    fixture.end(&id).await;
    let path = format!("/jobs/{id}/events");
    let reply = fixture.fetch(&path).await;
    assert_eq!((reply.header("content-type"), reply.header("cache-control")), ("text/event-stream", "no-store"));
    let all = parse(&reply.text());
    let kinds: Vec<&str> = all.iter().map(|(_, kind, _)| kind.as_str()).collect();
    let expected =
        ["scheduled", "started", "sandbox_started", "step_started", "output", "step_finished", "step_started"];
    assert_eq!(kinds[..7], expected);
    assert_eq!(kinds[7..], ["output", "step_finished", "ended"]);
    assert_eq!(all[4].2["excerpt"], json!([{ "stream": "stdout", "text": "one\n" }]));
    assert_eq!(all[7].2["excerpt"], json!([{ "stream": "stderr", "text": "two\n" }]));
    assert_eq!(all[9].2["reason"], "step 2 (shell) exited with code 3");
    for (number, (seq, kind, data)) in (1..).zip(&all) {
        assert_eq!((*seq, &data["seq"], &data["type"]), (number, &json!(number), &json!(kind)));
    }
    for position in 0..=all.len() {
        let request = fixture.request(Method::GET, &path).header("Last-Event-ID", position.to_string());
        assert_eq!(parse(&fixture.send(request).await.text()), all[position..], "behind {position}");
        let after = fixture.text(&format!("{path}?after={position}")).await;
        assert_eq!(parse(&after), all[position..], "behind {position}");
    }
    // A browser that reconnects sends the header to the address that it was given.
    let request = fixture.request(Method::GET, &format!("{path}?after=1")).header("Last-Event-ID", "8");
    assert_eq!(parse(&fixture.send(request).await.text()), all[8..]);
    assert_eq!(fixture.text(&format!("{path}?after=1000000")).await, "");

    for position in [0, 3, 9, 10] {
        let page = fixture.get(&format!("{path}?follow=false&after={position}&limit=4")).await;
        let expected: Vec<&Value> = all.iter().skip(position).take(4).map(|(_, _, data)| data).collect();
        assert_eq!(page, json!({ "events": expected, "last_seq": 10 }));
    }
    for (query, expected) in [
        ("?follow=false&limit=0", "422 limit | limit: it is between 1 and 1000"),
        ("?follow=false&limit=1001", "422 limit | limit: it is between 1 and 1000"),
        (
            "?after=18446744073709551615",
            "422 after | after: there is no event with so great a number; leave it out to begin with the first",
        ),
        (
            "?after=-1",
            "422 after | the query does not fit: invalid digit found in string; correct what follows the ? in the URL",
        ),
        (
            "?follow=maybe",
            "422 follow | the query does not fit: provided string was not `true` or `false`; correct what follows the ? in the URL",
        ),
    ] {
        assert_eq!(fixture.fetch(&format!("{path}{query}")).await.refusal(), expected);
    }
    let request = fixture.request(Method::GET, &path).header("Last-Event-ID", "x");
    let expected =
        "422 Last-Event-ID | Last-Event-ID: it is the number of an event; leave it out to begin with the first";
    assert_eq!(fixture.send(request).await.refusal(), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_readers_of_a_busy_job_get_the_same() {
    const READERS: usize = 200;
    let fixture = Fixture::start().await;
    let id = fixture
        .shell(&[
            "until [ -e go ]; do sleep 0.02; done",
            "for i in $(seq 400); do echo $i; done",
            "seq 20000",
            "echo end",
        ])
        .await;
    let path = format!("/jobs/{id}/events");
    let readers: Vec<_> = (0..READERS)
        .map(|_| {
            let request = fixture.request(Method::GET, &path);
            tokio::spawn(async move { request.send().await.unwrap().text().await.unwrap() })
        })
        .collect();
    let reading = format!("cofferdam_event_readers {READERS}");
    eventually("all readers are there", async || fixture.text("/metrics").await.lines().any(|line| line == reading))
        .await;
    assert_eq!(fixture.put(&format!("/jobs/{id}/files/go"), "").await.status, 200);
    let expected = fixture.text(&path).await;
    let all = parse(&expected);
    assert!(all.iter().enumerate().all(|(index, (seq, _, _))| *seq == index as u64 + 1));
    assert_eq!(all.last().unwrap().1, "ended");
    for reader in readers {
        let got = tokio::time::timeout(PATIENCE, reader).await.unwrap().unwrap();
        assert!(got == expected, "a reader got something else");
    }
    eventually("no reader is left", async || no_reader_is_left(&fixture).await).await;
}

/// That one which takes nothing for long is cut off is tested where connections are served.
#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_breaks_off_loses_nothing_and_holds_up_nobody() {
    let fixture = Fixture::start().await;
    let step = json!({ "tool": "write_file", "path": format!("{}/file", "long/".repeat(50)), "content": "" });
    let id = fixture.schedule(json!({ "steps": vec![step; 300] })).await;
    let path = format!("/jobs/{id}/events");
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut slow = socket.connect(fixture.authority().parse().unwrap()).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", fixture.authority());
    slow.write_all(request.as_bytes()).await.unwrap();
    assert_eq!(fixture.end(&id).await["status"], "completed");
    let mut got = vec![0; 8_000];
    slow.read_exact(&mut got).await.unwrap();
    drop(slow);
    let got = String::from_utf8(got).unwrap();
    // Chunks of the transfer encoding stand in between; the numbers are enough. The last event may not be whole.
    let numbers: Vec<u64> = got.lines().filter_map(|line| line.strip_prefix("id: ")?.parse().ok()).collect();
    let last = numbers[numbers.len() - 2];
    assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "{numbers:?}");
    let rest = fixture.send(fixture.request(Method::GET, &path).header("Last-Event-ID", last.to_string())).await;
    let whole = parse(&fixture.text(&path).await);
    assert_eq!(whole.len(), 603);
    assert_eq!(parse(&rest.text()), whole[last as usize..]);
    eventually("no reader is left", async || no_reader_is_left(&fixture).await).await;
}

async fn no_reader_is_left(fixture: &Fixture) -> bool {
    fixture.text("/metrics").await.lines().any(|line| line == "cofferdam_event_readers 0")
}
