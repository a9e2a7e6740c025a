//! Jobs as a resource: looking, listing, cancelling, repeating, deleting.

use serde_json::{Value, json};

use crate::support::{Fixture, eventually};

const UNKNOWN: &str = "00000000000000000000000000";

#[tokio::test(flavor = "multi_thread")]
async fn a_job_looks_the_same_from_everywhere() {
    let fixture = Fixture::start().await;
    let labels = json!({ "team": "a", "empty": "" });
    let steps = json!([{ "tool": "shell", "command": "echo hi" }]);
    let id = fixture.schedule(json!({ "labels": labels, "steps": steps })).await;
    let ended = fixture.end(&id).await;
    let url = &fixture.url;
    let time = |name: &str| {
        let text = ended[name].as_str().unwrap();
        assert!(text.len() == 24 && text.ends_with('Z'), "{name}: {text}");
        text.to_owned()
    };
    assert!(time("created_at") <= time("started_at") && time("started_at") <= time("ended_at"));
    let expected = json!({
        "job_id": id, "task_id": id, "kind": "steps", "title": "echo hi",
        "status": "completed", "state": "complete", "sandbox_status": "exited",
        "reason": null, "cancel_requested": false,
        "steps_total": 1, "steps_done": 1, "queue_position": null,
        "created_at": ended["created_at"], "started_at": ended["started_at"], "ended_at": ended["ended_at"],
        "labels": labels, "last_seq": ended["last_seq"],
        "log_path": fixture.data.path().canonicalize().unwrap().join(format!("tasks/{id}/agent.log")),
        "status_url": format!("{url}/status/{id}"), "events_url": format!("{url}/jobs/{id}/events"),
        "log_url": format!("{url}/jobs/{id}/log"), "files_url": format!("{url}/jobs/{id}/files"),
        "download_url": format!("{url}/jobs/{id}/download"),
    });
    assert_eq!(ended, expected);
    for path in [format!("/jobs/{id}"), format!("/status?job_id={id}"), format!("/sandboxes/{id}")] {
        assert_eq!(fixture.get(&path).await, expected, "{path}");
    }
    assert_eq!(fixture.get("/jobs").await, json!({ "jobs": [expected], "next_cursor": null }));
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_are_filtered_and_turned_page_by_page() {
    let fixture = Fixture::with(|settings| settings.jobs_max = Some(0)).await;
    let mut ids = Vec::new();
    for number in 0..7 {
        let labels = json!({ "number": number.to_string(), "parity": if number % 2 == 0 { "even" } else { "odd" } });
        ids.push(fixture.schedule(json!({ "task": "x", "labels": labels })).await);
    }
    fixture.post(&format!("/jobs/{}/cancel", ids[2]), Value::Null).await;
    let list = async |query: &str| -> Vec<usize> {
        let page = fixture.get(&format!("/jobs?{query}")).await;
        let jobs = page["jobs"].as_array().unwrap().clone();
        jobs.iter().map(|job| ids.iter().position(|id| job["job_id"] == **id).unwrap()).collect()
    };
    assert_eq!(list("").await, [6, 5, 4, 3, 2, 1, 0], "newest first");
    assert_eq!(list("label=parity=even").await, [6, 4, 2, 0]);
    assert_eq!(list("label=parity=even,number=4").await, [4]);
    assert_eq!(list("label=parity=even&status=scheduled").await, [6, 4, 0]);
    assert_eq!(list("status=cancelled,failed").await, [2]);
    assert_eq!(list("label=parity=none").await, [0usize; 0]);

    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = fixture.get(&format!("/jobs?limit=3{cursor}")).await;
        seen.extend(page["jobs"].as_array().unwrap().iter().map(|job| job["job_id"].as_str().unwrap().to_owned()));
        // What comes in between is newer than every page to come.
        fixture.schedule(json!({ "task": "in between" })).await;
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(seen, ids.iter().rev().cloned().collect::<Vec<_>>());

    for (query, expected) in [
        ("limit=0", "422 limit | limit: it is between 1 and 1000"),
        (
            "limit=99999999999999999999999",
            "422 limit | the query does not fit: number too large to fit in target type; correct what follows the ? in the URL",
        ),
        (
            "limit=ten",
            "422 limit | the query does not fit: invalid digit found in string; correct what follows the ? in the URL",
        ),
        (
            "status=done",
            "422 status | status: \"done\" is no status; ask for one or more of scheduled, running, completed, failed, cancelled",
        ),
        ("label=x", "422 label | label: a label is asked for as NAME=VALUE"),
        ("cursor=x", "422 cursor | cursor: it is not the next_cursor of an earlier answer; leave it out"),
    ] {
        assert_eq!(fixture.fetch(&format!("/jobs?{query}")).await.refusal(), expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_are_cancelled_in_every_state() {
    let fixture = Fixture::with(|settings| settings.jobs_max = Some(1)).await;
    let cancel = async |id: &str| fixture.post(&format!("/jobs/{id}/cancel"), Value::Null).await;
    let running = fixture.shell(&["echo begun; sleep 60", "echo never"]).await;
    let waiting = fixture.shell(&["echo never"]).await;
    fixture.printed(&running, "begun").await;
    assert_eq!(fixture.get(&format!("/status/{waiting}")).await["queue_position"], 0);

    let cancelled = cancel(&waiting).await;
    let view = cancelled.json();
    assert_eq!((cancelled.status, &view["status"], &view["started_at"]), (200, &json!("cancelled"), &Value::Null));
    assert_eq!(cancel(&waiting).await.status, 200, "again");

    let accepted = cancel(&running).await;
    let view = accepted.json();
    assert_eq!((accepted.status, &view["status"], &view["cancel_requested"]), (202, &json!("running"), &json!(true)));
    let ended = fixture.end(&running).await;
    assert_eq!((&ended["status"], &ended["state"]), (&json!("cancelled"), &json!("error")));
    assert_eq!(ended["reason"], "cancelled by request");
    assert_eq!(cancel(&running).await.status, 200, "again");
    let steps = fixture.get(&format!("/jobs/{running}/steps")).await;
    assert_eq!((&steps["steps"][0]["status"], &steps["steps"][1]["status"]), (&json!("failed"), &json!("skipped")));
    assert_eq!(steps["steps"][0]["result"], "cancelled by request");

    let finished = fixture.ended_with(&["true"]).await;
    assert_eq!(
        cancel(&finished).await.refusal(),
        format!("409 | the job {finished} is completed already; only a job that has not ended can be cancelled")
    );
    let unknown = format!("404 | there is no job {UNKNOWN}; GET /jobs lists those that there are");
    assert_eq!(cancel(UNKNOWN).await.refusal(), unknown);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_repeated_with_what_it_was_given() {
    let fixture = Fixture::with(|settings| settings.jobs_max = Some(1)).await;
    let body = json!({
        "files": [{ "path": "count", "content": "1\n" }], "labels": { "a": "b" },
        "steps": [{ "tool": "shell", "command": "cat count; echo 2 >> count" }],
    });
    let first = fixture.schedule(body.clone()).await;
    fixture.end(&first).await;
    let reply = fixture.post(&format!("/jobs/{first}/retry"), Value::Null).await;
    let again = reply.json();
    assert_eq!((reply.status, &again["labels"]), (202, &json!({ "a": "b" })), "{again}");
    let id = again["job_id"].as_str().unwrap();
    assert_eq!(reply.header("location"), format!("/jobs/{id}"));
    fixture.end(id).await;
    assert_eq!(fixture.text(&format!("/jobs/{id}/log?step=1")).await, "1\n");
    assert_eq!(fixture.text(&format!("/jobs/{id}/files/count")).await, "1\n2\n");

    // The input of a job that never started is not lost either.
    let running = fixture.shell(&["sleep 60"]).await;
    let waiting = fixture.schedule(body).await;
    let busy = fixture.post(&format!("/jobs/{waiting}/retry"), Value::Null).await.refusal();
    assert_eq!(busy, format!("409 | the job {waiting} is scheduled; cancel it first, or wait for its end"));
    fixture.post(&format!("/jobs/{waiting}/cancel"), Value::Null).await;
    let again = fixture.post(&format!("/jobs/{waiting}/retry"), Value::Null).await.json();
    fixture.post(&format!("/jobs/{running}/cancel"), Value::Null).await;
    let id = again["job_id"].as_str().unwrap();
    assert_eq!(fixture.end(id).await["status"], "completed");
    assert_eq!(fixture.text(&format!("/jobs/{id}/log?step=1")).await, "1\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_job_is_gone_with_its_directory() {
    let fixture = Fixture::start().await;
    let running = fixture.shell(&["sleep 60"]).await;
    let refused = fixture.delete(&format!("/jobs/{running}")).await.refusal();
    assert!(refused.starts_with("409 | the job") && refused.ends_with("; cancel it first"), "{refused}");
    fixture.post(&format!("/jobs/{running}/cancel"), Value::Null).await;
    fixture.end(&running).await;

    let id = fixture.ended_with(&["mkdir -p a/b; echo x > a/b/c; chmod 0 a/b; mkfifo pipe"]).await;
    assert!(fixture.directory(&id).join("workspace/a").is_dir());
    assert_eq!(fixture.delete(&format!("/jobs/{id}")).await.status, 204);
    let gone = format!("404 | there is no job {id}; GET /jobs lists those that there are");
    for path in ["", "/events", "/log", "/steps", "/files", "/files/a", "/diff", "/download"] {
        assert_eq!(fixture.fetch(&format!("/jobs/{id}{path}")).await.refusal(), gone, "{path}");
    }
    assert_eq!(fixture.delete(&format!("/jobs/{id}")).await.refusal(), gone);
    eventually("the directory goes", async || !fixture.directory(&id).exists()).await;
    let jobs = fixture.get("/jobs").await;
    assert_eq!(jobs["jobs"].as_array().unwrap().len(), 1, "{jobs}");
}

#[tokio::test(flavor = "multi_thread")]
async fn ids_that_cannot_be() {
    let fixture = Fixture::with(|settings| settings.jobs_max = Some(0)).await;
    let expected = "404 | there is no such job: a job id is 26 letters and digits, as in the answer to POST /schedule; GET /jobs lists those that there are";
    for id in ["a1b2c3d4", "%2e%2e%2f", "%ff", "%00", &"A".repeat(26), &"9".repeat(5000)] {
        assert_eq!(fixture.fetch(&format!("/status/{id}")).await.refusal(), expected, "{id}");
        assert_eq!(fixture.fetch(&format!("/jobs/{id}/files/x")).await.refusal(), expected, "{id}");
        assert_eq!(fixture.fetch(&format!("/status?task_id={id}")).await.status, 404, "{id}");
    }
    let nothing = fixture.fetch("/status").await.refusal();
    assert_eq!(nothing, "422 task_id | task_id: it is missing; ask for /status?task_id=ID");
}
