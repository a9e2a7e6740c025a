//! Servers that stop, sandboxes that vanish, and limits that are reached.

use std::fs;
use std::path::Path;

use cofferdam_server::Settings;
use rustix::process::{Pid, Signal};
use serde_json::{Value, json};

use crate::support::{Fixture, PATIENCE};

const LONG: &str = "i=0; while [ $i -lt 40 ]; do i=$((i+1)); echo \"line $i\"; sleep 0.05; done";

fn kinds(events: &Value) -> Vec<&str> {
    events["events"].as_array().unwrap().iter().map(|event| event["type"].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stops_waits_for_short_jobs() {
    let mut fixture = Fixture::start().await;
    let id = fixture.shell(&["sleep 0.5; echo done"]).await;
    fixture.event(&id, "step_started").await;
    fixture.stop().await;
    let fixture = Fixture::on(fixture.data, |_| ()).await;
    assert_eq!(fixture.get(&format!("/status/{id}")).await["status"], "completed");
    let events = fixture.get(&format!("/jobs/{id}/events?follow=false")).await;
    assert!(!kinds(&events).contains(&"resumed"), "{events}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_job_goes_on_under_the_next_server() {
    let mut fixture = Fixture::with(|settings| settings.drain_timeout_ms = 10).await;
    let id = fixture.shell(&[LONG]).await;
    fixture.printed(&id, "line 2").await;
    fixture.stop().await;
    let fixture = Fixture::on(fixture.data, |_| ()).await;
    let status = fixture.end(&id).await;
    assert_eq!(status["status"], "completed", "{status}");
    let lines: String = (1..=40).map(|line| format!("line {line}\n")).collect();
    assert_eq!(fixture.text(&format!("/jobs/{id}/log?step=1")).await, lines);
    let events = fixture.get(&format!("/jobs/{id}/events?follow=false")).await;
    let told: Vec<_> = kinds(&events).into_iter().filter(|kind| *kind != "output").collect();
    assert_eq!(told, ["scheduled", "started", "sandbox_started", "step_started", "resumed", "step_finished", "ended"]);
}

/// Kills the guest of the only job. Only root sees whose guest it is.
async fn kill_guest(data: &Path) {
    let sandboxes = data.canonicalize().unwrap().join("sandboxes");
    let holds_ours = |process: &Path| {
        let open = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
        open.filter_map(|file| fs::read_link(file.path()).ok()).any(|file| file.starts_with(&sandboxes))
    };
    let is_guest =
        |process: &Path| fs::read(process.join("cmdline")).is_ok_and(|command| command.starts_with(b"cofferdam-guest"));
    for process in fs::read_dir("/proc").unwrap().flatten().map(|process| process.path()) {
        if is_guest(&process) && holds_ours(&process) {
            let pid = process.file_name().unwrap().to_str().unwrap().parse().unwrap();
            rustix::process::kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
        }
    }
}

fn without_pool(settings: &mut Settings) {
    settings.pool = 0;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_whose_sandbox_is_killed_says_so() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root sees which guest is whose");
        return;
    }
    let fixture = Fixture::with(without_pool).await;
    let id = fixture.shell(&["echo begun; sleep 60"]).await;
    fixture.printed(&id, "begun").await;
    kill_guest(fixture.data.path()).await;
    let status = fixture.end(&id).await;
    assert_eq!(status["status"], "failed");
    let reason = status["reason"].as_str().unwrap();
    assert!(reason.starts_with("step 1 (shell) was lost with its sandbox: "), "{reason}");
    assert_eq!(fs::read_dir(fixture.data.path().join("sandboxes")).unwrap().count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_may_be_repeated_is_and_the_events_say_so() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root sees which guest is whose");
        return;
    }
    let fixture = Fixture::with(without_pool).await;
    let command = "echo mark >> marks; echo begun; test $(wc -l < marks) = 2 || sleep 60";
    let job = json!({ "steps": [{ "tool": "shell", "command": command }], "when_lost": "retry" });
    let id = fixture.schedule(job).await;
    fixture.printed(&id, "begun").await;
    kill_guest(fixture.data.path()).await;
    let status = fixture.end(&id).await;
    assert_eq!(status["status"], "completed", "{status}");
    let events = fixture.get(&format!("/jobs/{id}/events?follow=false")).await;
    let told: Vec<_> = kinds(&events).into_iter().filter(|kind| *kind != "output").collect();
    let first = ["scheduled", "started", "sandbox_started", "step_started"];
    let again = ["sandbox_lost", "sandbox_started", "step_started", "step_finished", "ended"];
    assert_eq!(told, [&first[..], &again[..]].concat());
    assert_eq!(fixture.get(&format!("/jobs/{id}/steps")).await["steps"][0]["attempts"], 2);
    assert_eq!(fixture.text(&format!("/jobs/{id}/files/marks")).await, "mark\nmark\n");
    assert_eq!(fixture.text(&format!("/jobs/{id}/log?step=1")).await, "begun\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_limit_ends_a_job_with_its_reason() {
    let fixture = Fixture::with(|settings| settings.log_max_bytes = 64 << 10).await;
    let step = |command: &str| json!([{ "tool": "shell", "command": command }]);
    let cases = [
        (json!({ "steps": step("sleep 60"), "timeout": "300ms" }), "the job's time of 300 ms is over"),
        (
            json!({ "steps": step("sleep 60"), "idle_timeout": "1s" }),
            "the job has neither printed anything nor used the processor for 1 s; raise idle_timeout if it should wait",
        ),
        (
            json!({ "steps": step("yes") }),
            "the job printed more than 64 KiB; let it write to a file, or raise --log-max",
        ),
    ];
    let mut ids = Vec::new();
    for (job, reason) in cases {
        ids.push((fixture.schedule(job).await, reason));
    }
    for (id, reason) in ids {
        let status = tokio::time::timeout(PATIENCE, fixture.end(&id)).await.unwrap();
        assert_eq!((&status["status"], &status["reason"]), (&json!("failed"), &json!(reason)), "{status}");
    }
}
