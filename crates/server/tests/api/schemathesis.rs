//! The API against its own document: schemathesis makes requests of all kinds out of /openapi.json, and no answer may
//! be one that the document does not know, or a failure of the server.

use std::path::Path;
use std::process::Command;

use reqwest::Method;
use serde_json::{Value, json};

use super::support::Fixture;

/// Requests per operation and phase. More find more, and this already takes half a minute on two slow cores.
const EXAMPLES: u32 = 12;
/// The same requests every time; another number is worth a try after a larger change of the API.
const SEED: u32 = 1;

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_is_in_the_document() {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/schemathesis/bin/schemathesis");
    assert!(program.exists(), "schemathesis is not installed; run `make test`, which installs it");
    let (mut fixture, jobs) = seeded().await;
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("schemathesis.toml"), settings(&jobs)).unwrap();
    let mut command = Command::new(program);
    command.args(["run", &format!("{}/openapi.json", fixture.url)]);
    // Where it looks for its settings, and leaves what it remembers.
    command.current_dir(directory.path()).env("HOME", directory.path()).env("NO_PROXY", "*");
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    fixture.stop().await;
}

/// The jobs of a server where most names that requests are made of mean something.
#[derive(Debug)]
struct Seeds {
    ended: Vec<String>,
    running: Vec<String>,
    /// For requests that end jobs or forget them, so that the others stay.
    spare: Vec<String>,
}

async fn seeded() -> (Fixture, Seeds) {
    let fixture = Fixture::with(|settings| {
        // What requests leave running makes room for the next, and streams end with it.
        settings.job_timeout_ms = 500;
        settings.drain_timeout_ms = 0;
        settings.sandbox_lease_ms = 30_000;
        settings.upload_max_bytes = 1 << 20;
    })
    .await;
    let mut ended = Vec::new();
    for command in ["echo hello | tee a.txt", "mkdir -p b/c && echo deep > b/c/d.txt", "exit 3"] {
        ended.push(fixture.shell(&[command]).await);
    }
    let mut spare = vec![fixture.shell(&["true"]).await, fixture.shell(&["false"]).await];
    for job in ended.iter().chain(&spare) {
        fixture.end(job).await;
    }
    let mut running = Vec::new();
    for _ in 0..4 {
        let limits = json!({ "cpu": 0.1, "memory": "64MiB" });
        let body = json!({ "ttl": "10m", "limits": limits, "files": [{ "path": "a.txt", "content": "hello" }] });
        let response = fixture.request(Method::POST, "/sandboxes").json(&body).send().await.unwrap();
        let sandbox: Value = response.json().await.unwrap();
        running.push(sandbox["job_id"].as_str().unwrap().to_owned());
    }
    spare.extend(running.split_off(2));
    (fixture, Seeds { ended, running, spare })
}

fn settings(Seeds { ended, running, spare }: &Seeds) -> String {
    let all: Vec<_> = ended.iter().chain(running).collect();
    format!(
        r#"
seed = {SEED}
request-timeout = 40
max-stream-events = 5
continue-on-failure = true
warnings = false

[generation]
max-examples = {EXAMPLES}
database = "none"

[dictionaries]
all.values = {all:?}
ended.values = {ended:?}
running.values = {running:?}
spare.values = {spare:?}
times.values = [0.2, "300ms"]
paths.values = ["a.txt", "b", "b/c/d.txt", "new/file"]

[parameters]
"path.id" = {{ dictionary = "all", probability = 0.9 }}
"path.path" = {{ dictionary = "paths", probability = 0.7 }}

[[operations]]
include-operation-id = ["exec", "pty"]
parameters = {{ "path.id" = {{ dictionary = "running", probability = 0.9 }} }}

[[operations]]
include-operation-id = "create_sandbox"
parameters = {{ "body.ttl" = {{ dictionary = "times" }}, "body.timeout" = {{ dictionary = "times" }} }}

# They can be followed, and what runs is followed for long.
[[operations]]
include-operation-id = ["job_events", "job_log"]
parameters = {{ "path.id" = {{ dictionary = "ended", probability = 0.9 }} }}

[[operations]]
include-operation-id = ["cancel_job", "delete_job", "end_sandbox"]
parameters = {{ "path.id" = {{ dictionary = "spare", probability = 0.9 }} }}

# That something else is missing, the file to be moved, is taken for the job's being gone.
[[operations]]
include-operation-id = ["move_file", "sandboxes_move_file"]
checks.ensure_resource_availability.enabled = false

[checks]
# The schema does not say everything that is refused: that a path stays in the workspace, for one.
positive_data_acceptance.enabled = false
"#
    )
}
