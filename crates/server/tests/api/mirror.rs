//! The directory of a job: what a person finds in it without asking the server.

use serde_json::{Value, json};

use crate::support::{Fixture, eventually};

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_tells_the_whole_story() {
    let fixture = Fixture::start().await;
    let files = json!([{ "path": "given", "content": "x\n" }]);
    let steps =
        json!([{ "tool": "shell", "command": "cat given" }, { "tool": "python", "code": "import sys; sys.exit(2)" }]);
    let id = fixture.schedule(json!({ "files": files, "steps": steps })).await;
    let status = fixture.end(&id).await;
    let directory = fixture.directory(&id);
    let read = |name: &str| -> Value { serde_json::from_slice(&std::fs::read(directory.join(name)).unwrap()).unwrap() };
    eventually("the files are written", async || directory.join("memory.json").exists()).await;
    assert_eq!(read("status.json"), status, "as GET /status shows it");
    let task = read("task.json");
    assert_eq!(task["work"]["steps"][1]["code"], "import sys; sys.exit(2)");
    assert_eq!((&task["network"], &task["has_input"]), (&json!("none"), &json!(true)));
    let memory = read("memory.json");
    assert_eq!((&memory["job_id"], &memory["status"], &memory["goal"]), (&json!(id), &json!("failed"), &Value::Null));
    assert_eq!(memory["reason"], "step 2 (python) exited with code 2");
    let history = memory["history"].as_array().unwrap();
    assert_eq!((&history[0]["output"], &history[0]["ok"]), (&json!("x\n"), &json!(true)));
    assert_eq!((&history[1]["action"]["tool"], &history[1]["ok"]), (&json!("python"), &json!(false)));
    let log = std::fs::read_to_string(directory.join("agent.log")).unwrap();
    assert_eq!(log, fixture.text(&format!("/jobs/{id}/log")).await);
    assert!(log.contains("── step 1 of 2, shell: cat given\nx\n── exited with code 0"), "{log}");
    for part in ["input/given", "workspace/given"] {
        assert_eq!(std::fs::read_to_string(directory.join(part)).unwrap(), "x\n");
    }
    let mut names: Vec<_> = std::fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["agent.log", "input", "memory.json", "status.json", "task.json", "workspace"]);
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(std::fs::metadata(&directory).unwrap().permissions().mode() & 0o777, 0o700, "for its owner alone");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_waits_has_its_files_too() {
    let fixture = Fixture::with(|settings| settings.jobs_max = Some(0)).await;
    let id = fixture.schedule(json!({ "prompt": "make something" })).await;
    let directory = fixture.directory(&id);
    eventually("the files are written", async || directory.join("status.json").exists()).await;
    let read = |name: &str| -> Value { serde_json::from_slice(&std::fs::read(directory.join(name)).unwrap()).unwrap() };
    assert_eq!(read("status.json")["status"], "scheduled");
    assert_eq!(read("task.json")["work"], json!({ "goal": "make something" }));
}
