//! Sandboxes by hand, and commands of people in them and in those of jobs.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Fixture, eventually, find_process};

/// The lines of an exec's answer; neighbouring output of a stream is put together.
async fn exec(fixture: &Fixture, id: &str, body: Value) -> (Vec<(String, String)>, Value) {
    let reply = fixture.post(&format!("/sandboxes/{id}/exec"), body).await;
    assert_eq!(reply.header("content-type"), "application/x-ndjson", "{}", reply.text());
    let mut lines: Vec<Value> = reply.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let last = lines.pop().unwrap();
    let mut output: Vec<(String, String)> = Vec::new();
    for line in &lines {
        let stream = line["stream"].as_str().unwrap();
        let text =
            line["text"].as_str().map_or_else(|| format!("base64:{}", line["base64"].as_str().unwrap()), str::to_owned);
        match output.last_mut() {
            Some((same, all)) if same == stream => all.push_str(&text),
            _ => output.push((stream.to_owned(), text)),
        }
    }
    (output, last)
}

fn stdout(text: &str) -> Vec<(String, String)> {
    vec![("stdout".to_owned(), text.to_owned())]
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_run_and_tell_how_they_ended() {
    let fixture = Fixture::start().await;
    let files = json!([{ "path": "given", "content": "input\n" }]);
    let id = fixture.sandbox(json!({ "env": { "FROM": "sandbox" }, "files": files })).await;

    let (output, last) =
        exec(&fixture, &id, json!({ "command": "cat given; sleep 0.1; echo two >&2; sleep 0.1; echo three; exit 4" }))
            .await;
    let pair = |stream: &str, text: &str| (stream.to_owned(), text.to_owned());
    assert_eq!(output, [pair("stdout", "input\n"), pair("stderr", "two\n"), pair("stdout", "three\n")]);
    assert_eq!(
        last,
        json!({ "exit_code": 4, "message": "exited with code 4", "outcome": { "outcome": "exited", "code": 4 } })
    );
    let echo = json!({ "argv": ["sh", "-c", "pwd; echo $A $FROM \"$@\"; cat", "sh", "b c"], "env": { "A": "a" }, "cwd": "/tmp", "stdin": "typed" });
    assert_eq!(exec(&fixture, &id, echo).await.0, stdout("/tmp\na sandbox b c\ntyped"));
    assert_eq!(
        exec(&fixture, &id, json!({ "command": "cat; echo end" })).await.0,
        stdout("end\n"),
        "no input is no input"
    );
    assert_eq!(exec(&fixture, &id, json!({ "command": "printf '\\377'" })).await.0, stdout("base64:/w=="));
    let (_, late) = exec(&fixture, &id, json!({ "command": "sleep 60", "timeout": 0.2 })).await;
    assert_eq!((&late["exit_code"], &late["message"]), (&Value::Null, &json!("killed: time limit 200 ms reached")));
    let (_, signal) = exec(&fixture, &id, json!({ "command": "kill -TERM $$" })).await;
    assert_eq!(signal["message"], "ended by signal 15");
    let (_, missing) = exec(&fixture, &id, json!({ "argv": ["no-such-command"] })).await;
    assert!(
        missing["message"].as_str().unwrap().starts_with("there is no command \"no-such-command\" in the sandbox"),
        "{missing}"
    );
    let (_, nowhere) = exec(&fixture, &id, json!({ "command": "true", "cwd": "/nowhere" })).await;
    assert!(
        nowhere["message"].as_str().unwrap().starts_with("the working directory \"/nowhere\" cannot be entered"),
        "{nowhere}"
    );
    let large = "x".repeat(3 << 20);
    let (output, _) = exec(&fixture, &id, json!({ "command": "wc -c", "stdin": large })).await;
    assert_eq!(output, stdout(&format!("{}\n", 3 << 20)));

    let path = format!("/sandboxes/{id}/exec");
    for (body, expected) in [
        (json!({}), "422 command | command: send one of command and argv"),
        (json!({ "command": "a", "argv": ["b"] }), "422 command | command: send one of command and argv"),
        (json!({ "argv": [] }), "422 argv | argv: it is empty; name a program, as in [\"ls\", \"-l\"]"),
        (json!({ "command": "a\0b" }), "422 command | command: it holds a NUL byte; remove it"),
        (
            json!({ "command": "a", "timeout": "soon" }),
            "422 timeout | timeout: it is not a time of at most 30 days; write seconds as a number, or \"10m\"",
        ),
        (json!({ "comand": "a" }), "422 comand | comand: there is no such field; /docs says which there are"),
    ] {
        assert_eq!(fixture.post(&path, body).await.refusal(), expected);
    }
    let page = fixture.get(&format!("/jobs/{id}/events?follow=false")).await;
    let events = page["events"].as_array().unwrap();
    let started = events.iter().find(|event| event["type"] == "exec_started").unwrap();
    assert_eq!(started["argv"][0], "sh");
    let finished = events.iter().find(|event| event["type"] == "exec_finished").unwrap();
    assert_eq!((&finished["exec"], &finished["outcome"]["code"]), (&started["exec"], &json!(4)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_hangs_up_ends_its_command() {
    let fixture = Fixture::start().await;
    let id = fixture.sandbox(json!({})).await;
    let mark = format!("hang-up-{}", std::process::id());
    for command in [format!("echo begun; sleep 60; : {mark}"), format!("yes; : {mark}")] {
        let request =
            fixture.request(Method::POST, &format!("/sandboxes/{id}/exec")).json(&json!({ "command": command }));
        let mut response = request.send().await.unwrap();
        response.chunk().await.unwrap().unwrap();
        assert!(find_process(&mark).is_some());
        drop(response);
        eventually("the command is killed", async || find_process(&mark).is_none()).await;
    }
    let (output, _) = exec(&fixture, &id, json!({ "command": "echo alive" })).await;
    assert_eq!(output, stdout("alive\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_from_its_beginning_to_its_end() {
    let fixture = Fixture::start().await;
    let reply = fixture.post("/sandboxes", json!({ "ttl": "10m", "labels": { "who": "me" } })).await;
    let view = reply.json();
    let id = view["job_id"].as_str().unwrap();
    assert_eq!((reply.status, reply.header("location")), (201, format!("/sandboxes/{id}").as_str()));
    assert_eq!(
        (&view["kind"], &view["status"], &view["sandbox_status"]),
        (&json!("interactive"), &json!("running"), &json!("running"))
    );
    let files = format!("/sandboxes/{id}/files");
    fixture.put(&format!("{files}/a"), "text").await;
    assert_eq!(exec(&fixture, id, json!({ "command": "cat a; mv a b" })).await.0, stdout("text"));
    assert_eq!(fixture.text(&format!("{files}/b")).await, "text");
    assert_eq!(fixture.post(&format!("/sandboxes/{id}/move"), json!({ "from": "b", "to": "c" })).await.status, 204);

    // Jobs with work of their own are not listed, however many there are.
    for _ in 0..3 {
        fixture.shell(&["true"]).await;
    }
    let list = fixture.get("/sandboxes?limit=2").await;
    let listed: Vec<&Value> = list["jobs"].as_array().unwrap().iter().map(|job| &job["job_id"]).collect();
    assert_eq!(listed, [id]);

    let ended = fixture.delete(&format!("/sandboxes/{id}")).await;
    assert!([200, 202].contains(&ended.status), "{}", ended.text());
    let status = fixture.end(id).await;
    assert_eq!((&status["status"], &status["reason"]), (&json!("completed"), &json!("ended by request")));
    assert_eq!(fixture.delete(&format!("/sandboxes/{id}")).await.status, 200, "again");
    assert_eq!(fixture.text(&format!("{files}/c")).await, "text", "its files are still there");
    let refused = fixture.post(&format!("/sandboxes/{id}/exec"), json!({ "command": "true" })).await.refusal();
    assert_eq!(refused, format!("409 | the job {id} is completed and has no sandbox; commands need one that runs"));
    assert_eq!(fixture.delete(&format!("/jobs/{id}")).await.status, 204);
    assert_eq!(fixture.delete(&format!("/sandboxes/{id}")).await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_ends_when_its_time_is_over() {
    let fixture = Fixture::start().await;
    let reply = fixture.send(fixture.request(Method::POST, "/sandboxes")).await;
    assert_eq!(reply.status, 201, "a body is not needed: {}", reply.text());
    let id = fixture.sandbox(json!({ "ttl": 0.3 })).await;
    let status = fixture.end(&id).await;
    assert_eq!((&status["status"], &status["reason"]), (&json!("completed"), &json!("its time to live is over")));
    let both = fixture.post("/sandboxes", json!({ "ttl": 1, "timeout": 2 })).await.refusal();
    assert_eq!(both, "422 ttl | ttl: ttl and timeout mean the same here; send one of them");
    let steps = fixture.post("/sandboxes", json!({ "steps": [] })).await.refusal();
    assert_eq!(steps, "422 steps | steps: there is no such field; /docs says which there are");
}

#[tokio::test(flavor = "multi_thread")]
async fn people_look_into_the_sandbox_of_a_job() {
    let fixture = Fixture::start().await;
    let id = fixture.shell(&["echo made > by-the-job; until [ -e go ]; do sleep 0.02; done; cat by-hand"]).await;
    fixture.event(&id, "step_started").await;
    eventually("the job has begun", async || {
        fixture.fetch(&format!("/jobs/{id}/files/by-the-job")).await.status == 200
    })
    .await;
    let (output, _) = exec(&fixture, &id, json!({ "command": "cat by-the-job; echo found > by-hand; touch go" })).await;
    assert_eq!(output, stdout("made\n"));
    assert_eq!(fixture.end(&id).await["status"], "completed");
    assert_eq!(fixture.text(&format!("/jobs/{id}/log?step=1")).await, "found\n");
    let refused = fixture.delete(&format!("/sandboxes/{id}")).await.refusal();
    assert_eq!(
        refused,
        format!("409 | {id} is a job with work of its own, not a sandbox; POST /jobs/{id}/cancel ends it")
    );
}
