//! The steps of a job and what came of them.

use serde_json::{Value, json};

use crate::support::Fixture;

#[tokio::test(flavor = "multi_thread")]
async fn a_step_is_in_one_of_five_states() {
    let fixture = Fixture::start().await;
    let steps = json!([
        { "tool": "shell", "command": "echo done" },
        { "tool": "shell", "command": "exit 7", "continue_on_error": true },
        { "tool": "shell", "command": "echo begun; until [ -e go ]; do sleep 0.02; done; exit 1" },
        { "tool": "python", "code": "print('never')\nprint('at all')" },
    ]);
    let id = fixture.schedule(json!({ "steps": steps })).await;
    fixture.printed(&id, "begun").await;
    fixture.event(&id, "output").await;
    let states = async || -> Vec<String> {
        let list = fixture.get(&format!("/jobs/{id}/steps")).await;
        let text = |step: &Value| format!("{} {}", step["status"].as_str().unwrap(), step["attempts"]);
        list["steps"].as_array().unwrap().iter().map(text).collect()
    };
    assert_eq!(states().await, ["completed 1", "failed 1", "running 1", "pending 0"]);
    fixture.put(&format!("/jobs/{id}/files/go"), "").await;
    fixture.end(&id).await;
    assert_eq!(states().await, ["completed 1", "failed 1", "failed 1", "skipped 0"]);
    let list = fixture.get(&format!("/jobs/{id}/steps?from=3&limit=5")).await;
    let third = &list["steps"][0];
    assert!(third["duration_ms"].is_u64() && third["started_at"].is_string(), "{third}");
    assert_eq!(
        list,
        json!({
            "steps": [
                {
                    "step": 3, "tool": "shell", "text": "echo begun; until [ -e go ]; do sleep 0.02; done; exit 1",
                    "status": "failed", "attempts": 1, "result": "exited with code 1", "exit_code": 1,
                    "started_at": third["started_at"], "duration_ms": third["duration_ms"],
                    "output": "begun\n", "output_is_cut": false,
                    "log_from": third["log_from"], "log_to": third["log_from"].as_u64().unwrap() + 6,
                },
                {
                    "step": 4, "tool": "python", "text": "print('never') …", "status": "skipped", "attempts": 0,
                    "result": null, "exit_code": null, "started_at": null, "duration_ms": null,
                    "output": "", "output_is_cut": false, "log_from": null, "log_to": null,
                },
            ],
            "total": 4,
        })
    );
    for (query, expected) in [
        ("from=0", "422 from | from: steps are counted from 1"),
        ("limit=1001", "422 limit | limit: it is between 1 and 1000"),
        (
            "from=4294967296",
            "422 from | the query does not fit: number too large to fit in target type; correct what follows the ? in the URL",
        ),
    ] {
        assert_eq!(fixture.fetch(&format!("/jobs/{id}/steps?{query}")).await.refusal(), expected);
    }
    assert_eq!(fixture.get(&format!("/jobs/{id}/steps?from=4294967295")).await, json!({ "steps": [], "total": 4 }));
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_steps_and_no_more() {
    let fixture = Fixture::with(|settings| settings.jobs_max = Some(0)).await;
    let steps = |count: usize| -> Vec<Value> {
        (1..=count).map(|number| json!({ "tool": "shell", "command": format!("echo {number}") })).collect()
    };
    let id = fixture.schedule(json!({ "steps": steps(10_000) })).await;
    assert_eq!(fixture.get(&format!("/status/{id}")).await["steps_total"], 10_000);
    let mut seen = 0;
    loop {
        let list = fixture.get(&format!("/jobs/{id}/steps?from={}", seen + 1)).await;
        let page = list["steps"].as_array().unwrap();
        if page.is_empty() {
            break;
        }
        for step in page {
            seen += 1;
            assert_eq!((&step["step"], &step["text"]), (&json!(seen), &json!(format!("echo {seen}"))));
        }
    }
    assert_eq!(seen, 10_000);
    fixture.post(&format!("/jobs/{id}/cancel"), Value::Null).await;
    assert_eq!(fixture.get(&format!("/jobs/{id}/steps?limit=1")).await["steps"][0]["status"], "skipped");
    let refused = fixture.post("/schedule", json!({ "steps": steps(10_001) })).await.refusal();
    assert_eq!(refused, "422 steps | steps: there are 10001, the most is 10000; put them into a script and run that");
}
