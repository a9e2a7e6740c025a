//! Jobs from the command line as whole processes: with a server that runs, and with the one that a command starts for
//! itself.

mod support;

use std::io::Read;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::json;
use support::{Home, content, masked, signal, texts, wait_for, wait_until};

#[test]
fn a_job_is_shown_as_it_runs_and_ends_the_command_with_its_outcome() {
    let home = Home::new();
    let shown = "job ID\n▸ 1/2 shell echo hello; echo oh >&2\n  │ hello\n  │ oh\n✓ 1/2 T\n▸ 2/2 shell printf 'no line end'\n  │ no line end\n✓ 2/2 T\n✓ completed (T)\n";
    let failed = "job ID\n▸ 1/2 shell exit 42\n✗ 1/2 exited with code 42, T\n";
    for with_server in [false, true] {
        let server = with_server.then(|| home.serve(&[]));
        let steps = home.steps(&["echo hello; echo oh >&2", "printf 'no line end'"]);
        assert_eq!(masked(&home.ok(&["run", &steps])), shown);
        let steps = home.steps(&["exit 42", "echo never"]);
        let (stdout, stderr, code) = home.run(&["run", &steps]);
        assert_eq!((stderr.as_str(), code), ("", Some(42)), "{stdout}");
        assert!(masked(&stdout).starts_with(failed) && !stdout.contains("never"), "{stdout}");
        assert_eq!(home.run(&["run", "--quiet", &steps]), (String::new(), String::new(), Some(42)));
        let steps = home.steps(&["sleep 600"]);
        let (stdout, _, code) = home.run(&["run", &steps, "--timeout", "1s"]);
        assert_eq!(code, Some(1), "{stdout}");
        drop(server);
    }
}

/// Output of which events carry only a part is shown whole.
#[test]
fn long_output_is_shown_whole() {
    let home = Home::new();
    let steps = home.steps(&["seq 1 20000"]);
    let stdout = home.ok(&["run", &steps]);
    let numbers: Vec<&str> = stdout.lines().filter_map(|line| line.strip_prefix("  │ ")).collect();
    assert_eq!(numbers, (1..=20_000).map(|number| number.to_string()).collect::<Vec<_>>());
}

#[test]
fn json_is_one_whole_document_and_nothing_else() {
    let home = Home::new();
    let _server = home.serve(&[]);
    let steps = home.steps(&["echo hello"]);
    let job = home.json(&["run", "--json", "--label", "kind=test", "-e", "X=1", &steps]);
    assert_eq!(
        [&job["status"], &job["steps_done"], &job["labels"]],
        [&json!("completed"), &json!(1), &json!({"kind": "test"})]
    );
    let id = job["job_id"].as_str().unwrap();
    assert_eq!(home.json(&["status", "--json", id]), job);
    assert_eq!(home.json(&["ps", "--all", "--json", "--label", "kind=test"])["jobs"], json!([job]));
    assert_eq!(home.json(&["ps", "--json"])["jobs"], json!([]));
    let events: Vec<serde_json::Value> =
        home.ok(&["events", "--json", id]).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(events.last().unwrap()["state"], "completed");
    assert_eq!(home.ok(&["events", "--json", "-f", id]), home.ok(&["events", "--json", id]));
    let detached = home.json(&["run", "--json", "--detach", "--idempotency-key", "k", &steps]);
    let again = home.json(&["run", "--json", "--detach", "--idempotency-key", "k", &steps]);
    assert_eq!(detached["job_id"], again["job_id"]);
}

#[test]
fn an_interrupt_cancels_the_job() {
    let home = Home::new();
    for with_server in [false, true] {
        let server = with_server.then(|| home.serve(&[]));
        let steps = home.steps(&["echo on; sleep 600"]);
        let mut run = home.command(&["run", &steps]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdout = run.stdout.take().unwrap();
        let mut seen = String::new();
        while !seen.contains("│ on") {
            let mut buffer = [0; 1024];
            let length = stdout.read(&mut buffer).unwrap();
            assert_ne!(length, 0, "{seen}");
            seen.push_str(&String::from_utf8_lossy(&buffer[..length]));
        }
        signal(&run, Signal::INT);
        assert_eq!(wait_for(&mut run), Some(130));
        stdout.read_to_string(&mut seen).unwrap();
        assert!(seen.contains("✗ cancelled"), "{seen}");
        assert_eq!(home.json(&["status", "--json", "last"])["status"], "cancelled");
        drop(server);
    }
}

/// A directory with a file that changes, one that goes, one that is made executable, and a link.
fn project(home: &Home, name: &str) -> String {
    home.file(&format!("{name}/kept.txt"), "one\n");
    home.file(&format!("{name}/gone.txt"), "gone\n");
    home.file(&format!("{name}/sub/run.sh"), "#!/bin/sh\n");
    let directory = home.path(name);
    std::os::unix::fs::symlink("kept.txt", directory.join("link")).unwrap();
    directory.to_str().unwrap().to_owned()
}

const CHANGE: &str = "test \"$(cat link)\" = one && test -L link && echo two >> kept.txt && rm gone.txt && mkdir new && echo 3 > new/made.txt";

#[test]
fn a_workspace_is_a_copy_whose_changes_are_applied_when_asked() {
    let home = Home::new();
    let _server = home.serve(&[]);
    let steps = home.steps(&[CHANGE]);
    let directory = project(&home, "project");
    let stdout = home.ok(&["run", &steps, "--workspace", &directory]);
    assert!(
        masked(&stdout).ends_with(&format!(
            "\n gone.txt     | +0 -1\n kept.txt     | +1 -0\n new/made.txt | +1 -0\n 3 files changed, +2 -1\nto apply it, in {directory}: cofferdam diff ID | git apply\n"
        )),
        "{stdout}"
    );
    assert_eq!(content(home.path("project/kept.txt")), "one\n");
    let changed = |name: &str| {
        assert_eq!(content(home.path(&format!("{name}/kept.txt"))), "one\ntwo\n");
        assert_eq!(content(home.path(&format!("{name}/new/made.txt"))), "3\n");
        assert!(!home.path(&format!("{name}/gone.txt")).exists());
    };
    // Outside of any repository, at the top of one, and below the top.
    let stdout = home.ok(&["run", &steps, "-w", &directory, "--apply"]);
    assert!(stdout.ends_with(&format!("applied to {directory}\n")), "{stdout}");
    changed("project");
    for (name, top) in [("top", "top"), ("outer/inner", "outer")] {
        let directory = project(&home, name);
        let made = Command::new("git").args(["init", "-q"]).arg(home.path(top)).status().unwrap();
        assert!(made.success());
        let (stdout, stderr, code) = home.run(&["run", &steps, "-w", &directory, "--apply"]);
        assert_eq!((stderr.as_str(), code), ("", Some(0)), "{stdout}");
        changed(name);
    }
    // What a failed job left is not applied.
    let directory = project(&home, "failed");
    let steps = home.steps(&[CHANGE, "exit 3"]);
    let (_, stderr, code) = home.run(&["run", &steps, "-w", &directory, "--apply"]);
    assert_eq!(
        (stderr.as_str(), code),
        ("cofferdam: the patch is not applied, since the job did not complete\n", Some(3))
    );
    assert_eq!(content(home.path("failed/kept.txt")), "one\n");
}

#[test]
fn jobs_are_listed_looked_at_followed_repeated_and_removed() {
    let home = Home::new();
    let server = home.serve(&[]);
    let gate = home.file("gate.txt", "");
    let steps =
        home.steps(&["cat gate.txt; echo first", "echo second; while ! test -e open; do sleep 0.02; done; echo third"]);
    let id = home.ok(&["run", "--detach", "--file", "gate.txt", &steps]).trim().to_owned();
    assert!(content(gate).is_empty());
    wait_until("the second step runs", || home.run(&["logs", &id]).0.ends_with("second\n"));
    let table = home.ok(&["ps"]);
    let row: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!((row[0], row[1], row[2]), (id.as_str(), "running", "1/2"), "{table}");

    // Followed while it runs: whole, and to its end.
    let mut follow = home.command(&["logs", "-f", &id]).stdout(Stdio::piped()).spawn().unwrap();
    let mut one_step = home.command(&["logs", "-f", "--step", "2", &id]).stdout(Stdio::piped()).spawn().unwrap();
    open_gate(&home, &id);
    assert_eq!(wait_for(&mut follow), Some(0));
    assert_eq!(wait_for(&mut one_step), Some(0));
    let read = |child: std::process::Child| texts(child.wait_with_output().unwrap()).0;
    let whole = read(follow);
    let printed: Vec<&str> = whole.lines().filter(|line| !line.starts_with("──")).collect();
    assert_eq!(printed, ["first", "second", "third"], "{whole}");
    assert_eq!(home.ok(&["logs", &id]), whole);
    assert_eq!(read(one_step), "second\nthird\n");
    assert_eq!(home.ok(&["logs", "--step", "1", &id]), "first\n");

    // Without a server as with one.
    assert_eq!(server.stop(), Some(0));
    let status = home.ok(&["status", &id]);
    assert!(status.contains("✓ completed") && status.contains("✓  1  shell"), "{status}");
    assert!(home.ok(&["events", &id]).lines().last().unwrap().ends_with("ended            completed"));
    let _server = home.serve(&[]);
    let again = home.ok(&["retry", &id]).trim().to_owned();
    assert_ne!(again, id);
    wait_until("it runs again", || home.run(&["logs", &again]).0.ends_with("second\n"));
    let (_, stderr, code) = home.run(&["rm", &again]);
    assert!(code == Some(105) && stderr.contains("cancel it first"), "{stderr}");
    assert_eq!(home.ok(&["cancel", &again]).split_whitespace().next(), Some(again.as_str()));
    wait_until("it is cancelled", || home.json(&["status", "--json", &again])["status"] == "cancelled");
    assert_eq!(home.ok(&["rm", &again, &id]), format!("{again} removed\n{id} removed\n"));
    let (_, stderr, code) = home.run(&["status", &id]);
    assert!(code == Some(106) && stderr.starts_with("cofferdam: "), "{stderr}");
}

/// Lets the job of the test above go on, through the API.
fn open_gate(home: &Home, id: &str) {
    let url = cofferdam_server::running_server(&home.data()).unwrap().url;
    let address = url.strip_prefix("http://").unwrap();
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    let request = format!(
        "PUT /jobs/{id}/files/open HTTP/1.1\r\nHost: {address}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    );
    std::io::Write::write_all(&mut stream, request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 2"), "{answer}");
}

#[test]
fn files_are_downloaded_whole_and_never_over_others() {
    let home = Home::new();
    let steps = home.steps(&["mkdir -p bin && echo run > bin/run && chmod 755 bin/run && ln -s bin/run link && head -c 1000000 /dev/zero > zeros"]);
    let id = home.json(&["run", "--json", &steps])["job_id"].as_str().unwrap().to_owned();
    assert_eq!(home.ok(&["download", &id]), format!("{id}.zip\n"));
    let (_, stderr, code) = home.run(&["download", &id]);
    assert_eq!(
        (stderr, code),
        (
            format!("cofferdam: {id}.zip is there already; name another place with -o, or overwrite it with --force\n"),
            Some(104)
        )
    );
    assert_eq!(home.ok(&["download", "--force", &id]), format!("{id}.zip\n"));
    assert_eq!(home.ok(&["download", "--unpack", "-o", "out", "last"]), "out\n");
    let out = home.path("out");
    assert_eq!(content(out.join("bin/run")), "run\n");
    assert_eq!(std::fs::read_link(out.join("link")).unwrap().to_str(), Some("bin/run"));
    assert_eq!(std::fs::metadata(out.join("zeros")).unwrap().len(), 1_000_000);
    let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(out.join("bin/run")).unwrap());
    assert_eq!(mode & 0o777, 0o755);
    let (_, stderr, code) = home.run(&["download", "--unpack", "-o", "out", "last"]);
    assert!(code == Some(104) && stderr.contains("out is there already"), "{stderr}");
    let left: Vec<_> =
        std::fs::read_dir(home.directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().starts_with(".cofferdam-")), "{left:?}");
}

#[test]
fn an_id_may_be_abbreviated_as_long_as_it_is_one_job() {
    let home = Home::new();
    let _server = home.serve(&["--jobs-max", "0"]);
    let (_, stderr, code) = home.run(&["status", "last"]);
    assert_eq!((stderr.as_str(), code), ("cofferdam: there is no job yet; start one with: cofferdam run\n", Some(106)));
    let steps = home.steps(&["true"]);
    let first = home.ok(&["run", "-d", &steps]).trim().to_owned();
    let second = home.ok(&["run", "-d", &steps]).trim().to_owned();
    for (text, id) in [(&first[14..], &first), (&second, &second), ("last", &second), ("-", &second)] {
        assert_eq!(home.json(&["status", "--json", text])["job_id"], json!(id), "{text}");
    }
    let (_, stderr, code) = home.run(&["status", "01"]);
    assert_eq!(
        (stderr, code),
        (format!("cofferdam: 01 stands for 2 jobs: {second}, {first}; write more of the id\n"), Some(106))
    );
    let (_, stderr, code) = home.run(&["status", "nosuch"]);
    assert_eq!(
        (stderr.as_str(), code),
        ("cofferdam: there is no job nosuch; all of them are shown by: cofferdam ps --all\n", Some(106))
    );
}

/// Killed without a word, with a new one in its place: the job goes on, and what is shown has neither gap nor double.
#[test]
fn a_run_outlives_its_server() {
    let home = Home::new();
    let server = home.serve(&[]);
    let steps =
        home.steps(&["for i in 1 2 3; do echo $i; done; while ! test -e open; do sleep 0.02; done; echo 4", "echo 5"]);
    let run = home.command(&["run", &steps]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("the job runs", || home.run(&["logs", "last"]).0.ends_with("1\n2\n3\n"));
    let id = home.json(&["status", "--json", "last"])["job_id"].as_str().unwrap().to_owned();
    server.kill();
    let _second = home.serve(&[]);
    open_gate(&home, &id);
    let (stdout, stderr, code) = texts(run.wait_with_output().unwrap());
    assert_eq!((stderr.as_str(), code), ("", Some(0)), "{stdout}");
    let lines: Vec<&str> = stdout.lines().filter_map(|line| line.strip_prefix("  │ ")).collect();
    assert_eq!(lines, ["1", "2", "3", "4", "5"], "{stdout}");
    assert!(stdout.contains("✓ completed"), "{stdout}");
}

/// Two commands without a server: the second uses the first one's, and carries on when that is gone.
#[test]
fn a_run_outlives_the_command_whose_server_it_used() {
    let home = Home::new();
    let steps = home.steps(&["echo on; while ! test -e open; do sleep 0.02; done; echo off"]);
    let start = |count: usize| {
        let run = home.command(&["run", &steps]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        wait_until("its job runs", || {
            let jobs = home.json(&["ps", "--json", "--status", "running"])["jobs"].as_array().unwrap().len();
            jobs == count && home.run(&["logs", "last"]).0.ends_with("on\n")
        });
        (run, home.json(&["status", "--json", "last"])["job_id"].as_str().unwrap().to_owned())
    };
    let (first, first_job) = start(1);
    let server = cofferdam_server::running_server(&home.data()).unwrap();
    assert_eq!(server.pid, first.id());
    let (second, second_job) = start(2);
    assert_ne!(first_job, second_job);
    open_gate(&home, &first_job);
    assert_eq!(texts(first.wait_with_output().unwrap()).2, Some(0));
    wait_until("the second has a server of its own", || {
        cofferdam_server::running_server(&home.data()).is_some_and(|server| server.pid == second.id())
    });
    open_gate(&home, &second_job);
    let (stdout, stderr, code) = texts(second.wait_with_output().unwrap());
    assert_eq!((stderr.as_str(), code), ("", Some(0)), "{stdout}");
    let lines: Vec<&str> = stdout.lines().filter_map(|line| line.strip_prefix("  │ ")).collect();
    assert_eq!(lines, ["on", "off"], "{stdout}");
}

/// What is wrong with a request is said before anything is uploaded or started.
#[test]
fn mistakes_end_in_one_sentence_and_a_code_of_their_own() {
    let home = Home::new();
    let steps = home.steps(&["true"]);
    let cases: &[(&[&str], i32, &str)] = &[
        (&["run", "nosuch.json"], 104, "nosuch.json: it cannot be read: No such file or directory (os error 2)"),
        (
            &["run", &steps, "-l", "ram=1"],
            110,
            "there is no limit called \"ram\"; the limits are cpu, memory, processes, files, workspace, tmp, time",
        ),
        (&["run", &steps, "--label", "x"], 2, "--label x: a label is written NAME=VALUE"),
        (&["run", &steps, "--file", "nosuch"], 104, "nosuch cannot be read: No such file or directory (os error 2)"),
    ];
    for (arguments, code, sentence) in cases {
        let expected = (String::new(), format!("cofferdam: {sentence}\n"), Some(*code));
        assert_eq!(home.run(arguments), expected, "{arguments:?}");
    }
    let (_, stderr, code) = home.run(&["run", &steps, "-n", "http://x"]);
    assert!(code == Some(111) && stderr.contains("is not a network pattern"), "{stderr}");
    let wrong = home.file("wrong.json", "[{\"tool\": \"dance\"}]");
    let (_, stderr, code) = home.run(&["run", &wrong]);
    assert!(code == Some(105) && stderr.contains("dance") && stderr.lines().count() == 1, "{stderr}");
}
