//! Jobs from being scheduled to being taken home.

use serde_json::json;

use crate::support::Fixture;

#[tokio::test(flavor = "multi_thread")]
async fn the_example_runs_and_its_parts_can_be_seen() {
    let fixture = Fixture::start().await;
    let id = fixture
        .schedule(json!({ "steps": [
            { "tool": "shell", "command": "ls -la /app" },
            { "tool": "python", "code": "with open(\"hello.txt\", \"w\") as f: f.write(\"Hello from the agent!\")" },
            { "tool": "shell", "command": "cat hello.txt" },
        ] }))
        .await;
    let status = fixture.end(&id).await;
    assert_eq!(
        (&status["status"], &status["state"], &status["sandbox_status"], &status["steps_done"]),
        (&json!("completed"), &json!("complete"), &json!("exited"), &json!(3)),
        "{status}"
    );
    let steps = fixture.get(&format!("/jobs/{id}/steps")).await;
    assert_eq!(steps["steps"][2]["output"], "Hello from the agent!", "{steps}");
    assert_eq!(fixture.text(&format!("/jobs/{id}/files/hello.txt")).await, "Hello from the agent!");
    assert_eq!(fixture.get(&format!("/status?task_id={id}")).await, status);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_tool_does_what_it_says() {
    let fixture = Fixture::start().await;
    let id = fixture
        .schedule(json!({ "steps": [
            { "tool": "bash", "command": "[[ a == a ]] && echo bash" },
            { "tool": "javascript", "code": "console.log(require('path').join('java', 'script'))" },
            { "tool": "javascript", "code": "import { join } from 'node:path'; console.log(join('mod', 'ule'))" },
            { "tool": "typescript", "code": "const n: number = 6; console.log(`typescript ${n * 7}`)" },
            { "tool": "write_file", "path": "lib/double.ts", "content": "export const double = (n: number): number => n * 2;" },
            { "tool": "typescript", "code": "import { double } from './lib/double'; console.log('imported', double(21))" },
            { "tool": "read_file", "path": "/workspace/lib/double.ts" },
            { "tool": "shell", "command": "ls -A", "env": { "A": "b" }, "cwd": "lib" },
            { "tool": "xdotool", "command": "click 1", "continue_on_error": true },
            { "tool": "shell", "command": "exit 3", "continue_on_error": true },
        ] }))
        .await;
    let status = fixture.end(&id).await;
    let steps = fixture.get(&format!("/jobs/{id}/steps")).await;
    let shown: Vec<_> = steps["steps"]
        .as_array()
        .unwrap()
        .iter()
        .map(|step| (step["status"].as_str().unwrap(), step["output"].as_str().unwrap()))
        .collect();
    assert_eq!(
        shown,
        [
            ("completed", "bash\n"),
            ("completed", "java/script\n"),
            ("completed", "mod/ule\n"),
            ("completed", "typescript 42\n"),
            ("completed", ""),
            ("completed", "imported 42\n"),
            ("completed", "export const double = (n: number): number => n * 2;"),
            ("completed", "double.ts\n"),
            ("failed", ""),
            ("failed", ""),
        ],
        "{steps:#}"
    );
    assert_eq!(status["status"], "completed", "{status}");
    assert_eq!(status["reason"], "2 steps failed and were allowed to");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_goal_ends_at_once_and_says_what_is_missing() {
    let fixture = Fixture::start().await;
    let id = fixture.schedule(json!({ "prompt": "Create a file named hello.txt" })).await;
    let status = fixture.end(&id).await;
    assert_eq!(status["status"], "failed");
    assert!(status["reason"].as_str().unwrap().contains("no model is configured"), "{status}");
}
