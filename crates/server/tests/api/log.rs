//! A job's log: whole, in parts, one step's, and as it grows.

use reqwest::Method;

use crate::support::{Fixture, eventually};

#[tokio::test(flavor = "multi_thread")]
async fn parts_of_a_log_are_given_as_asked_for() {
    let fixture = Fixture::start().await;
    let id = fixture.ended_with(&["echo one", "printf 'no newline'", "echo three; echo four >&2"]).await;
    let path = format!("/jobs/{id}/log");
    let reply = fixture.fetch(&path).await;
    let whole = reply.text();
    assert_eq!((reply.header("content-type"), reply.header("accept-ranges")), ("text/plain; charset=utf-8", "bytes"));
    assert_eq!(reply.header("content-security-policy"), "sandbox; default-src 'none'; frame-ancestors 'none'");
    let without_times: Vec<&str> = whole.lines().map(|line| line.split(" (").next().unwrap()).collect();
    assert_eq!(
        without_times,
        [
            "── step 1 of 3, shell: echo one",
            "one",
            "── exited with code 0",
            "── step 2 of 3, shell: printf 'no newline'",
            "no newline",
            "── exited with code 0",
            "── step 3 of 3, shell: echo three; echo four >&2",
            "three",
            "four",
            "── exited with code 0",
        ]
    );
    for (step, output) in [(1, "one\n"), (2, "no newline"), (3, "three\nfour\n")] {
        assert_eq!(fixture.text(&format!("{path}?step={step}")).await, output);
        assert_eq!(fixture.text(&format!("{path}?step={step}&follow=true")).await, output);
    }
    let length = whole.len();
    let bytes = whole.as_bytes();
    for (range, part, header) in [
        ("bytes=0-4", &bytes[..5], format!("bytes 0-4/{length}")),
        ("bytes=5-", &bytes[5..], format!("bytes 5-{}/{length}", length - 1)),
        ("bytes=-3", &bytes[length - 3..], format!("bytes {}-{}/{length}", length - 3, length - 1)),
    ] {
        let reply = fixture.send(fixture.request(Method::GET, &path).header("Range", range)).await;
        assert_eq!((reply.status, &reply.body[..], reply.header("content-range")), (206, part, header.as_str()));
    }
    let step = fixture.send(fixture.request(Method::GET, &format!("{path}?step=1")).header("Range", "bytes=1-2")).await;
    assert_eq!((step.text().as_str(), step.header("content-range")), ("ne", "bytes 1-2/4"));
    let behind = fixture.send(fixture.request(Method::GET, &path).header("Range", "bytes=100000-")).await;
    assert_eq!(behind.header("content-range"), format!("bytes */{length}"));
    assert_eq!(
        behind.refusal(),
        format!("416 | the range lies behind the end: there are {length} bytes; ask for fewer")
    );
    for (step, message) in
        [(0, "there is no step 0, the job has 3 of them"), (4, "there is no step 4, the job has 3 of them")]
    {
        let refusal = fixture.fetch(&format!("{path}?step={step}")).await.refusal();
        assert_eq!(refusal, format!("422 step | step: {message}; they are counted from 1"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_growing_log_is_followed_to_its_end() {
    let fixture = Fixture::start().await;
    let id = fixture.shell(&["echo one; until [ -e go ]; do sleep 0.02; done; echo two"]).await;
    let mut response = fixture.request(Method::GET, &format!("/jobs/{id}/log?follow=true")).send().await.unwrap();
    let mut seen = String::new();
    while !seen.ends_with("one\n") {
        seen.push_str(&String::from_utf8(response.chunk().await.unwrap().unwrap().into()).unwrap());
    }
    let mut of_step = fixture.request(Method::GET, &format!("/jobs/{id}/log?follow=true&step=1")).send().await.unwrap();
    assert_eq!(of_step.chunk().await.unwrap().unwrap(), "one\n");
    fixture.put(&format!("/jobs/{id}/files/go"), "").await;
    while let Some(chunk) = response.chunk().await.unwrap() {
        seen.push_str(std::str::from_utf8(&chunk).unwrap());
    }
    assert_eq!(seen, fixture.text(&format!("/jobs/{id}/log")).await);
    assert!(seen.contains("one\ntwo\n"), "{seen}");
    assert_eq!(of_step.text().await.unwrap(), "two\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn long_output_arrives_whole_and_events_stay_short() {
    const LINES: u64 = 6_600_000;
    let fixture = Fixture::start().await;
    let id = fixture.ended_with(&[&format!("seq {LINES}")]).await;
    let mut response = fixture.request(Method::GET, &format!("/jobs/{id}/log?step=1")).send().await.unwrap();
    let (mut expected, mut rest, mut length) = (1u64, Vec::new(), 0u64);
    while let Some(chunk) = response.chunk().await.unwrap() {
        length += chunk.len() as u64;
        rest.extend_from_slice(&chunk);
        let mut from = 0;
        while let Some(end) = rest[from..].iter().position(|byte| *byte == b'\n') {
            let line = std::str::from_utf8(&rest[from..from + end]).unwrap();
            assert_eq!(line.parse(), Ok(expected), "{line}");
            expected += 1;
            from += end + 1;
        }
        rest.drain(..from);
    }
    assert_eq!((expected, rest.len()), (LINES + 1, 0));
    assert!(length > 50_000_000, "{length}");

    let page = fixture.get(&format!("/jobs/{id}/events?follow=false")).await;
    let events = page["events"].as_array().unwrap();
    let mut log_to = events.iter().find(|event| event["type"] == "step_started").unwrap()["log_from"].as_u64().unwrap();
    for event in events.iter().filter(|event| event["type"] == "output") {
        assert!(event.to_string().len() < 8_000, "an excerpt is bounded");
        assert_eq!(event["log_from"], log_to, "nothing is left out between events");
        log_to = event["log_to"].as_u64().unwrap();
    }
    let step = &fixture.get(&format!("/jobs/{id}/steps")).await["steps"][0];
    assert_eq!(step["log_to"], log_to);
    assert_eq!((&step["output_is_cut"], step["output"].as_str().unwrap().len()), (&true.into(), 4096));
    assert!(step["output"].as_str().unwrap().ends_with("6599999\n6600000\n"));

    // A client that takes the log and hangs up leaves the server as it was.
    let response = fixture.request(Method::GET, &format!("/jobs/{id}/log")).send().await.unwrap();
    drop(response);
    eventually("the server answers", async || fixture.fetch("/healthz").await.status == 200).await;
}
