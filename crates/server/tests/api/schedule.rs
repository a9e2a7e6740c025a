//! `POST /schedule`: every dialect, every option, and what happens when the same is asked for twice.

use std::process::Command;

use reqwest::Method;
use reqwest::multipart::{Form, Part};
use serde_json::{Value, json};

use crate::support::{Fixture, kill_guest_of};

/// What a person pastes into a shell, but for the port.
async fn curl(fixture: &Fixture, line: &str) -> Value {
    let port = fixture.authority().rsplit(':').next().unwrap().to_owned();
    let line = line.replace("localhost:8000", &format!("localhost:{port}"));
    let output = tokio::task::spawn_blocking(move || {
        Command::new("bash").args(["-c", &format!("curl -sS --noproxy '*' {line}")]).output().unwrap()
    });
    let output = output.await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_that_people_paste_work_as_they_are() {
    let fixture = Fixture::start().await;
    let scheduled = curl(
        &fixture,
        r#"-X POST http://localhost:8000/schedule \
    -H "Content-Type: application/json" \
    -d '{
      "steps": [
        {
          "tool": "shell",
          "command": "ls -la /app"
        },
        {
          "tool": "python",
          "code": "with open(\"hello.txt\", \"w\") as f: f.write(\"Hello from the agent!\")"
        },
        {
          "tool": "shell",
          "command": "cat hello.txt"
        }
      ]
    }'"#,
    )
    .await;
    let id = scheduled["task_id"].as_str().unwrap().to_owned();
    assert_eq!((&scheduled["status"], &scheduled["job_id"]), (&json!("scheduled"), &json!(id)));
    fixture.end(&id).await;
    let status = curl(&fixture, &format!("http://localhost:8000/status?task_id={id}")).await;
    assert_eq!(status["status"], "completed", "{status}");
    assert!(status["log_path"].as_str().unwrap().ends_with(&format!("/tasks/{id}/agent.log")), "{status}");

    for line in [
        r#"-X POST -H "Content-Type: application/json" \
        -d '{"task": "Build me a todo app in React"}' \
        http://localhost:8000/schedule"#,
        r#"-X POST http://localhost:8000/schedule \
-H "Content-Type: application/json" \
-d '{
    "prompt": "Create a file named hello.txt and put the text `hello world` inside it."
}'"#,
        r#"-X POST http://localhost:8000/schedule -H 'Content-Type: text/plain' --data-binary 'Build me a todo app'"#,
    ] {
        let scheduled = curl(&fixture, line).await;
        let id = scheduled["job_id"].as_str().unwrap();
        assert_eq!(scheduled["kind"], "goal", "{scheduled}");
        fixture.end(id).await;
        let status = curl(&fixture, &format!("http://localhost:8000/status/{id}")).await;
        assert_eq!((&status["state"], &status["sandbox_status"]), (&json!("error"), &json!("exited")), "{status}");
        let url = status["download_url"].as_str().unwrap();
        assert!(url.starts_with("http://localhost:") && url.ends_with(&format!("/jobs/{id}/download")), "{url}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_come_with_the_job_in_json() {
    let fixture = Fixture::start().await;
    let id = fixture
        .schedule(json!({
            "steps": [{ "tool": "shell", "command": "./run.sh && od -An -c data/raw && stat -c %a run.sh data/raw" }],
            "files": [
                { "path": "run.sh", "content": "#!/bin/sh\necho \"$GREETING from a file\"\n", "mode": 493 },
                { "path": "/workspace/data/raw", "content_base64": "/wAK" },
            ],
            "env": { "GREETING": "hello" },
        }))
        .await;
    let status = fixture.end(&id).await;
    assert_eq!(status["status"], "completed", "{status}");
    let output = fixture.text(&format!("/jobs/{id}/log?step=1")).await;
    assert_eq!(output, "hello from a file\n 377  \\0  \\n\n755\n644\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn files_come_with_the_job_as_parts() {
    let fixture = Fixture::start().await;
    let archive = Command::new("bash")
        .args([
            "-c",
            "d=$(mktemp -d) && cd $d && mkdir deep && echo packed > deep/file && ln -s file deep/link && tar c deep; rm -r $d",
        ])
        .output()
        .unwrap()
        .stdout;
    let job =
        json!({ "steps": [{ "tool": "shell", "command": "find . -type f -o -type l | sort; cat deep/link a/b.txt" }] });
    let form = Form::new()
        .part("first", Part::bytes(b"\xff".to_vec()).file_name("bytes"))
        .part("job", Part::text(job.to_string()).mime_str("application/json").unwrap())
        .part("second", Part::text("nested\n").file_name("a/b.txt"))
        .part("archive", Part::bytes(archive).file_name("input.tar"));
    let reply = fixture.send(fixture.request(Method::POST, "/schedule").multipart(form)).await;
    assert_eq!(reply.status, 202, "{}", reply.text());
    let id = reply.json()["job_id"].as_str().unwrap().to_owned();
    assert_eq!(reply.header("location"), format!("/jobs/{id}"));
    fixture.end(&id).await;
    let output = fixture.text(&format!("/jobs/{id}/log?step=1")).await;
    assert_eq!(output, "./a/b.txt\n./bytes\n./deep/file\n./deep/link\npacked\nnested\n");
    let bytes = fixture.fetch(&format!("/jobs/{id}/files/bytes")).await;
    assert_eq!(bytes.body, b"\xff"[..]);

    let steps = json!([{ "tool": "read_file", "path": "a" }]).to_string();
    let form = Form::new().text("steps", steps).part("f", Part::text("alone").file_name("a"));
    let reply = fixture.send(fixture.request(Method::POST, "/schedule").multipart(form)).await;
    let id = reply.json()["job_id"].as_str().unwrap().to_owned();
    fixture.end(&id).await;
    assert_eq!(fixture.text(&format!("/jobs/{id}/log?step=1")).await, "alone");

    let form = Form::new().text("task", "with a part of its own");
    let reply = fixture.send(fixture.request(Method::POST, "/schedule").multipart(form)).await;
    assert_eq!(reply.json()["kind"], "goal", "{}", reply.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_that_are_refused_leave_nothing() {
    let fixture = Fixture::with(|settings| settings.jobs_max = Some(0)).await;
    let post = |form: Form| fixture.send(fixture.request(Method::POST, "/schedule").multipart(form));
    let file = || Part::text("x").file_name("x");
    let without_job = post(Form::new().part("f", file())).await;
    assert_eq!(
        without_job.refusal(),
        "422 job | job: the part is missing; send the job as JSON in a part of this name, or task, prompt or steps"
    );
    let outside = post(Form::new().text("task", "x").part("f", file().file_name("../x"))).await;
    assert_eq!(
        outside.refusal(),
        "422 file ../x | file ../x: \"../x\" is not a path in the workspace: it contains \"..\"; write the path without it"
    );
    let odd = post(Form::new().text("task", "x").part("f", file()).text("color", "red")).await;
    assert_eq!(
        odd.refusal(),
        "422 color | color: there is no such part; send job, steps, task, prompt, archive, or files with a file name"
    );
    let broken = post(Form::new().text("task", "x").part("archive", Part::text("x".repeat(2000)).file_name("a.tar")));
    let broken = broken.await.refusal();
    assert!(broken.starts_with("400 | the archive could not be read"), "{broken}");
    let incoming = fixture.data.path().join("incoming");
    crate::support::eventually("nothing is left", async || std::fs::read_dir(&incoming).unwrap().next().is_none())
        .await;
    assert_eq!(fixture.get("/jobs").await["jobs"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_goes_on_from_where_another_ended() {
    let fixture = Fixture::start().await;
    let parent = fixture.ended_with(&["echo one > kept; echo one > changed"]).await;
    let child = fixture
        .schedule(json!({
            "parent": parent,
            "files": [{ "path": "changed", "content": "two\n" }, { "path": "added", "content": "two\n" }],
            "steps": [{ "tool": "shell", "command": "cat kept changed added; rm kept" }],
        }))
        .await;
    fixture.end(&child).await;
    assert_eq!(fixture.text(&format!("/jobs/{child}/log?step=1")).await, "one\ntwo\ntwo\n");
    let plain = fixture.schedule(json!({ "parent": parent, "steps": [{ "tool": "shell", "command": "cat *" }] })).await;
    fixture.end(&plain).await;
    assert_eq!(fixture.text(&format!("/jobs/{plain}/log?step=1")).await, "one\none\n", "the parent is as it was");

    let running = fixture.shell(&["sleep 60"]).await;
    let body = |parent: &str| json!({ "parent": parent, "task": "x" });
    assert_eq!(
        fixture.post("/schedule", body(&running)).await.status,
        409,
        "only the workspace of a job that has ended is copied"
    );
    let unknown = fixture.post("/schedule", body("00000000000000000000000000")).await.refusal();
    assert_eq!(
        unknown,
        "404 parent | parent: there is no job 00000000000000000000000000; GET /jobs lists those that there are"
    );
    fixture.post(&format!("/jobs/{running}/cancel"), Value::Null).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_and_times_hold() {
    let fixture = Fixture::start().await;
    let shell = |command: &str| json!([{ "tool": "shell", "command": command }]);
    let hungry = fixture
        .schedule(json!({ "limits": { "memory": "64MiB" }, "steps": shell("exec python3 -c 'bytearray(200 << 20)'") }));
    let late = fixture.schedule(json!({ "timeout": 0.2, "steps": shell("echo begun; sleep 60") }));
    let step = fixture.schedule(json!({ "steps": [{ "tool": "shell", "command": "sleep 60", "timeout": "200ms" }] }));
    let (hungry, late, step) = tokio::join!(hungry, late, step);
    let (hungry, late, step) = tokio::join!(fixture.end(&hungry), fixture.end(&late), fixture.end(&step));
    assert_eq!(hungry["reason"], "step 1 (shell) killed: memory limit 64 MiB reached", "{hungry}");
    assert_eq!(late["reason"], "the job's time of 200 ms is over", "{late}");
    assert_eq!(step["reason"], "step 1 (shell) killed: time limit 200 ms reached", "{step}");
}

/// Looked for every five seconds only, so this is the slowest test here.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_does_nothing_is_ended() {
    let fixture = Fixture::start().await;
    let steps = json!([{ "tool": "shell", "command": "sleep 600" }]);
    let id = fixture.schedule(json!({ "idle_timeout": 1, "steps": steps })).await;
    let status = fixture.end(&id).await;
    assert_eq!(
        status["reason"],
        "the job has neither printed anything nor used the processor for 1 s; raise idle_timeout if it should wait"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_key_is_the_same_job() {
    let fixture = Fixture::with(|settings| settings.jobs_max = Some(0)).await;
    let post = |key: &str, body: Value| {
        fixture.send(fixture.request(Method::POST, "/schedule").header("Idempotency-Key", key).json(&body))
    };
    let first = post("k", json!({ "task": "one" })).await.json();
    let again = post("k", json!({ "task": "one" })).await;
    assert_eq!((again.status, &again.json()["job_id"]), (202, &first["job_id"]));
    let other = post("k", json!({ "task": "two" })).await.refusal();
    assert_eq!(
        other,
        format!(
            "409 | the idempotency key \"k\" was used for a different job, {}; use a new key for a new request",
            first["job_id"].as_str().unwrap()
        )
    );
    let many = (0..20).map(|_| post("many", json!({ "task": "at once", "files": [{ "path": "a", "content": "b" }] })));
    let ids: std::collections::BTreeSet<String> =
        futures_util::future::join_all(many).await.iter().map(|reply| reply.json()["job_id"].to_string()).collect();
    assert_eq!(ids.len(), 1, "{ids:?}");
    assert_eq!(fixture.get("/jobs").await["jobs"].as_array().unwrap().len(), 2);
    let incoming = fixture.data.path().join("incoming");
    crate::support::eventually("the files of one are left", async || {
        std::fs::read_dir(&incoming).unwrap().count() == 1
    })
    .await;

    // Parts whose contents run into each other are different requests.
    let form = |name: &'static str, text: &'static str| {
        let form = Form::new().text("task", "x").part("f", Part::text(text).file_name(name));
        fixture.send(fixture.request(Method::POST, "/schedule").header("Idempotency-Key", "parts").multipart(form))
    };
    assert_eq!(form("a", "bc").await.status, 202);
    assert_eq!(form("a", "bc").await.status, 202, "boundaries differ from request to request");
    assert_eq!(form("ab", "c").await.status, 409);
    let long = post(&"k".repeat(256), json!({ "task": "x" })).await.refusal();
    assert!(long.starts_with("422 Idempotency-Key | Idempotency-Key: it is 1 to 255"), "{long}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_says_when_to_come_again() {
    let fixture = Fixture::with(|settings| {
        settings.jobs_max = Some(0);
        settings.queue_max = 2;
    })
    .await;
    for position in 0..2 {
        let reply = fixture.post("/schedule", json!({ "task": "wait" })).await;
        assert_eq!(reply.json()["queue_position"], position);
    }
    let full = fixture.post("/schedule", json!({ "task": "wait" })).await;
    assert_eq!(full.refusal(), "429 | the queue is full: 2 jobs are waiting; try again later, or raise --queue-max");
    assert_eq!(full.header("retry-after"), "5");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_whose_sandbox_is_lost_is_begun_again_if_that_was_asked_for() {
    let fixture = Fixture::start().await;
    for (when_lost, status, attempts) in [("retry", "completed", 2), ("fail", "failed", 1)] {
        let mark = format!("mark-{when_lost}-{}", std::process::id());
        let script = format!("if [ -e begun ]; then echo again; else touch begun; echo first; sleep 60; fi; : {mark}");
        let id = fixture
            .schedule(json!({ "when_lost": when_lost, "steps": [{ "tool": "shell", "command": script }] }))
            .await;
        fixture.printed(&id, "first").await;
        kill_guest_of(&mark);
        let ended = fixture.end(&id).await;
        assert_eq!(ended["status"], status, "{ended}");
        let steps = fixture.get(&format!("/jobs/{id}/steps")).await;
        assert_eq!(steps["steps"][0]["attempts"], attempts, "{steps:#}");
    }
}
