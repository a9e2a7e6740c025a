//! Data directories that cannot be used, or only in part.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use cofferdam_server::{Server, ServerError, Settings};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::support::Fixture;

const INSIDE: &str = "COFFERDAM_TEST_SMALL_DISK";
const NO_SPACE: &str = "no space is left for the database; free some space on the disk of the data directory";

async fn refusal(data: &Path) -> ServerError {
    Server::start(Settings::new("127.0.0.1:0".parse().unwrap(), data.to_owned())).await.expect_err("it does not start")
}

/// Runs the test of this name again where `directory` is a small file system in memory, prepared by a script that
/// calls it `$1`. Whether this is that second run. Where the kernel does not let us do that, nothing is checked.
fn on_a_small_disk(test: &str, script: &str) -> Option<PathBuf> {
    if let Some(disk) = std::env::var_os(INSIDE) {
        return Some(PathBuf::from(disk));
    }
    let directory = tempfile::tempdir().unwrap();
    let unshare = |script: &str| {
        let mut command = Command::new("unshare");
        if !rustix::process::geteuid().is_root() {
            command.args(["--user", "--map-root-user"]);
        }
        command.args(["--mount", "sh", "-ec", script, "sh"]).arg(directory.path());
        command
    };
    if !unshare(script).output().is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: no file system can be mounted here, not even in a user namespace");
        return None;
    }
    let output = unshare(&format!("{script}; exec \"$2\" --exact --nocapture {test}"))
        .arg(std::env::current_exe().unwrap())
        .env(INSIDE, directory.path())
        .output()
        .unwrap();
    let told = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}\n{}", told(&output.stdout), told(&output.stderr));
    None
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_is_said_and_waited_for() {
    let mount = "mount -t tmpfs -o size=24m small \"$1\"";
    let Some(disk) = on_a_small_disk("places::a_full_disk_is_said_and_waited_for", mount) else { return };
    let data = tempfile::tempdir_in(&disk).unwrap();
    let fixture = Fixture::on(data, |_| ()).await;
    let long = "i=0; while [ $i -lt 60 ]; do i=$((i+1)); echo \"line $i\"; sleep 0.05; done";
    let running = fixture.shell(&[long, "echo behind it"]).await;
    fixture.printed(&running, "line 2").await;

    let ballast = disk.join("ballast");
    fill(&ballast);
    let mut accepted = Vec::new();
    let problem: Value = loop {
        let job = json!({ "steps": [{ "tool": "shell", "command": "echo made it" }] });
        let answer = fixture.request(Method::POST, "/schedule").json(&job).send().await.unwrap();
        let status = answer.status();
        let body: Value = answer.json().await.unwrap();
        match status {
            StatusCode::ACCEPTED => accepted.push(body["job_id"].as_str().unwrap().to_owned()),
            _ => break body,
        }
    };
    assert_eq!((&problem["status"], &problem["detail"]), (&json!(507), &json!(NO_SPACE)), "{problem}");
    // What is running is shown as before.
    assert_eq!(fixture.get(&format!("/status/{running}")).await["status"], "running");

    fs::remove_file(ballast).unwrap();
    accepted.push(fixture.shell(&["echo made it"]).await);
    for id in &accepted {
        let status = fixture.end(id).await;
        assert_eq!(status["status"], "completed", "{status}");
        assert_eq!(fixture.text(&format!("/jobs/{id}/log?step=1")).await, "made it\n");
    }
    let status = fixture.end(&running).await;
    assert_eq!(status["status"], "completed", "{status}");
    let lines: String = (1..=60).map(|line| format!("line {line}\n")).collect();
    assert_eq!(fixture.text(&format!("/jobs/{running}/log?step=1")).await, lines);
}

/// To the last block: pieces get smaller as they stop fitting.
fn fill(path: &Path) {
    use std::io::Write;
    let mut file = fs::File::create(path).unwrap();
    for size in [1 << 20, 4096, 1] {
        while file.write_all(&vec![0; size]).is_ok() {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_directory_is_refused() {
    let mount = "mount -t tmpfs small \"$1\"; mkdir \"$1\"/data; mount -o remount,ro \"$1\"";
    let Some(disk) = on_a_small_disk("places::a_read_only_directory_is_refused", mount) else { return };
    let data = disk.join("data");
    assert_eq!(
        refusal(&data).await.to_string(),
        format!(
            "the data directory {} cannot be used: Read-only file system (os error 30); name another one with --data",
            data.display()
        )
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_of_garbage_is_refused_and_left_alone() {
    let data = tempfile::tempdir().unwrap();
    let database = data.path().join("cofferdam.db");
    fs::write(&database, "this is no database\n".repeat(1_000)).unwrap();
    let refusal = refusal(data.path()).await.to_string();
    assert_eq!(
        refusal,
        "the database is damaged: file is not a database; restore it from a backup, or move it away and start afresh"
    );
    assert_eq!(fs::read_to_string(database).unwrap(), "this is no database\n".repeat(1_000));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_second_server_is_told_of_the_first() {
    let fixture = Fixture::start().await;
    let data = fixture.data.path().canonicalize().unwrap();
    assert_eq!(
        refusal(&data).await.to_string(),
        format!(
            "the data directory {} is in use by the server at {} (process {}); use that one, or name another directory \
             with --data",
            data.display(),
            fixture.url,
            std::process::id()
        )
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn broken_job_directories_break_nobody_else() {
    // The first server takes jobs in and starts none.
    let mut fixture = Fixture::with(|settings| settings.jobs_max = Some(0)).await;
    let mut ids = Vec::new();
    for _ in 0..4 {
        ids.push(fixture.shell(&["echo fine"]).await);
    }
    fixture.stop().await;
    let directory = |index: usize| fixture.data.path().join("tasks").join(&ids[index]);
    fs::write(directory(0).join("workspace"), "a file").unwrap();
    fs::create_dir(directory(1).join("agent.log")).unwrap();
    fs::write(directory(2).join("task.json"), "garbage").unwrap();
    fs::write(directory(2).join("status.json"), "garbage").unwrap();

    let fixture = Fixture::on(fixture.data, |_| ()).await;
    let mut ends = Vec::new();
    for id in &ids {
        let status = fixture.end(id).await;
        ends.push((status["status"].as_str().unwrap().to_owned(), status["reason"].as_str().map(str::to_owned)));
    }
    let failed = |reason: &str| ("failed".to_owned(), Some(reason.to_owned()));
    let completed = || ("completed".to_owned(), None);
    assert_eq!(
        ends,
        [
            failed("its directory could not be made: File exists (os error 17)"),
            failed("its log could not be opened: Is a directory (os error 21)"),
            completed(),
            completed(),
        ]
    );
}
