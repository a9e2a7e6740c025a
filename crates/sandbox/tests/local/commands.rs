//! Commands: input, terminals, environment, signals, ends, and ids.

use std::time::Duration;

use bytes::Bytes;
use cofferdam_protocol::exec::{ExecOutcome, ExecRequest, LimitHit, StartError, TerminalSize};
use cofferdam_sandbox::SandboxError;
use tokio::sync::mpsc;

use crate::support::{Texts, new_id, sandbox, sh, shell, until};

#[tokio::test]
async fn output_and_exit_code_come_back() {
    let sandbox = sandbox().await;
    let finished = sh(&sandbox, "echo out; echo err >&2; exit 3").await;
    assert_eq!(finished.stdout_text(), "out\n");
    assert_eq!(finished.stderr_text(), "err\n");
    assert_eq!(finished.exit_code(), Some(3));
    sandbox.destroy().await.unwrap();
}

#[tokio::test]
async fn input_is_streamed_and_its_end_is_seen() {
    let sandbox = sandbox().await;
    let (id, request) = (new_id(), ExecRequest { stdin: true, ..shell("tr a-z A-Z; echo end") });
    let stream = sandbox.client().exec(&id, &request, 0, false).await.unwrap();
    let (sender, receiver) = mpsc::channel(1);
    let feeding = sandbox.client().stdin(&id, receiver);
    let sending = async move {
        for part in ["hello ", "world\n"] {
            sender.send(Ok(Bytes::from(part))).await.unwrap();
        }
    };
    let mut output = Vec::new();
    let (fed, (), status) = tokio::join!(feeding, sending, stream.follow(|_, data| output.extend_from_slice(data)));
    fed.unwrap();
    assert_eq!(status.unwrap().outcome, Some(ExecOutcome::Exited { code: 0 }));
    assert_eq!(output, b"HELLO WORLD\nend\n");
    sandbox.destroy().await.unwrap();
}

#[tokio::test]
async fn a_terminal_has_a_size_and_can_be_resized() {
    let sandbox = sandbox().await;
    let size = TerminalSize { rows: 40, columns: 100 };
    let script = "tty; stty size; read line; stty size; echo got $line";
    let (id, request) = (new_id(), ExecRequest { terminal: Some(size), ..shell(script) });
    let mut stream = sandbox.client().exec(&id, &request, 0, false).await.unwrap();
    let mut output = String::new();
    while !output.contains("40 100") {
        assert!(stream.next(|_, data| output.push_str(&String::from_utf8_lossy(data))).await.unwrap());
    }
    assert!(output.starts_with("/dev/pts/"), "{output}");
    sandbox.client().resize(&id, TerminalSize { rows: 30, columns: 90 }).await.unwrap();
    let (sender, receiver) = mpsc::channel(1);
    sender.send(Ok(Bytes::from("typed\n"))).await.unwrap();
    drop(sender);
    sandbox.client().stdin(&id, receiver).await.unwrap();
    let status = stream.follow(|_, data| output.push_str(&String::from_utf8_lossy(data))).await.unwrap();
    assert_eq!(status.outcome, Some(ExecOutcome::Exited { code: 0 }));
    assert!(output.contains("30 90") && output.contains("got typed"), "{output}");
    sandbox.destroy().await.unwrap();
}

#[tokio::test]
async fn environment_and_working_directory_are_as_asked() {
    let sandbox = sandbox().await;
    sh(&sandbox, "mkdir -p sub/dir").await;
    for (cwd, expected) in [(None, "/workspace"), (Some("sub/dir"), "/workspace/sub/dir"), (Some("/tmp"), "/tmp")] {
        let mut request = ExecRequest { cwd: cwd.map(str::to_owned), ..shell("pwd; echo $COLOUR") };
        request.env.insert("COLOUR".into(), "blue = green".into());
        let finished = sandbox.client().run(&new_id(), &request).await.unwrap();
        assert_eq!(finished.stdout_text(), format!("{expected}\nblue = green\n"));
    }
    sandbox.destroy().await.unwrap();
}

#[tokio::test]
async fn signals_reach_the_command_and_tell_how_it_ended() {
    let sandbox = sandbox().await;
    let (id, request) = (new_id(), shell("trap 'echo caught; exit 7' TERM; echo ready; while :; do sleep 0.01; done"));
    let mut stream = sandbox.client().exec(&id, &request, 0, false).await.unwrap();
    let mut output = String::new();
    while !output.contains("ready") {
        assert!(stream.next(|_, data| output.push_str(&String::from_utf8_lossy(data))).await.unwrap());
    }
    sandbox.client().signal(&id, 15).await.unwrap();
    let status = stream.follow(|_, data| output.push_str(&String::from_utf8_lossy(data))).await.unwrap();
    assert_eq!((output.as_str(), status.outcome), ("ready\ncaught\n", Some(ExecOutcome::Exited { code: 7 })));

    let finished = sh(&sandbox, "kill -9 $$").await;
    assert_eq!(finished.status.outcome, Some(ExecOutcome::Signalled { signal: 9 }));
    sandbox.destroy().await.unwrap();
}

#[tokio::test]
async fn a_timeout_ends_the_whole_tree_and_only_that() {
    let sandbox = sandbox().await;
    // A bystander of another command, which must survive.
    sh(&sandbox, "setsid sleep 1001 >/dev/null 2>&1 &").await;
    // Deaf to signals, with a daemon in a session of its own whose parent has gone.
    let script = "trap '' TERM INT HUP; (setsid sh -c 'trap \"\" TERM; sleep 1002 & wait' &) ; sleep 1003";
    let request = ExecRequest { timeout_ms: 300, ..shell(script) };
    let finished = sandbox.client().run(&new_id(), &request).await.unwrap();
    let killed = ExecOutcome::Killed { by: LimitHit::Time { limit_ms: 300 } };
    assert_eq!(finished.status.outcome, Some(killed.clone()));
    assert_eq!(killed.to_string(), "killed: time limit 300 ms reached");
    let alive = until(async || {
        let listed = sh(&sandbox, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '").await.stdout_text();
        (!listed.contains("sleep 1002") && !listed.contains("sleep 1003")).then_some(listed)
    });
    assert!(alive.await.contains("sleep 1001"), "the bystander was killed, too");
    sandbox.destroy().await.unwrap();
}

#[tokio::test]
async fn the_same_id_is_the_same_run() {
    let sandbox = sandbox().await;
    let (id, request) =
        (new_id(), shell("echo run >> count; cat count; while [ ! -e go ]; do sleep 0.01; done; echo done"));
    let first = sandbox.client().exec(&id, &request, 0, true).await.unwrap();
    let second_connection = sandbox.connect().await.unwrap();
    let second = second_connection.exec(&id, &request, 0, true).await.unwrap();
    sh(&sandbox, "touch go").await;
    let (mut one, mut two) = (Vec::new(), Vec::new());
    let (a, b) = tokio::join!(
        first.follow(|_, data| one.extend_from_slice(data)),
        second.follow(|_, data| two.extend_from_slice(data))
    );
    assert_eq!(a.unwrap(), b.unwrap());
    assert_eq!((one.as_slice(), two.as_slice()), (&b"run\ndone\n"[..], &b"run\ndone\n"[..]));

    // After its end the answer stays the same until it is acknowledged; another command may not use the id.
    let again = sandbox.client().exec(&id, &request, 0, true).await.unwrap();
    let mut three = Vec::new();
    again.follow(|_, data| three.extend_from_slice(data)).await.unwrap();
    assert_eq!(three, one);
    let other = sandbox.client().exec(&id, &shell("echo other"), 0, true).await.unwrap_err();
    assert!(matches!(other, SandboxError::Refused { status: 409, .. }), "{other}");
    sandbox.client().forget(&id).await.unwrap();
    assert!(matches!(sandbox.client().status(&id).await, Err(SandboxError::Refused { status: 404, .. })));
    sandbox.destroy().await.unwrap();
}

#[tokio::test]
async fn background_processes_neither_hold_a_command_nor_die_with_it() {
    let sandbox = sandbox().await;
    let script = "(while :; do echo tick; sleep 0.01; done) & echo $!";
    let finished = tokio::time::timeout(Duration::from_secs(20), sh(&sandbox, script)).await.expect("it ended at once");
    let output = finished.stdout_text();
    let pid = output.lines().find(|line| *line != "tick").unwrap();
    // It goes on writing into a pipe that somebody must still be reading: many ticks later it lives.
    let ticks = format!("sleep 0.3; kill -0 {pid} && echo alive");
    assert_eq!(sh(&sandbox, &ticks).await.stdout_text(), "alive\n");
    sandbox.destroy().await.unwrap();
}

#[tokio::test]
async fn commands_that_cannot_start_say_why() {
    let sandbox = sandbox().await;
    sh(
        &sandbox,
        "echo data > plain; printf 'no magic' > odd; chmod +x odd; printf '#!/no/such\\n' > lost; chmod +x lost",
    )
    .await;
    let outcome = async |argv: &[&str], cwd: Option<&str>| {
        let argv = argv.iter().map(|word| (*word).to_owned()).collect();
        let request = ExecRequest { argv, cwd: cwd.map(str::to_owned), ..ExecRequest::default() };
        match sandbox.client().run(&new_id(), &request).await.unwrap().status.outcome {
            Some(ExecOutcome::NotStarted { error }) => error,
            other => panic!("{other:?}"),
        }
    };
    assert!(matches!(outcome(&["nosuch"], None).await, StartError::NotFound { .. }));
    for (command, part) in [
        ("./plain", "chmod +x"),
        ("./odd", "begins with #!"),
        ("./lost", "interpreter"),
        ("/workspace", "permission denied"),
        ("/no/such", "no such file"),
    ] {
        let error = outcome(&[command], None).await;
        assert!(
            matches!(error, StartError::NotExecutable { .. }) && error.to_string().contains(part),
            "{command}: {error}"
        );
    }
    let error = outcome(&["true"], Some("missing")).await;
    assert!(error.to_string().starts_with("the working directory \"/workspace/missing\" cannot be entered"), "{error}");
    let error = outcome(&[&"x".repeat(100_000)], None).await;
    assert!(error.to_string().contains("too long") && error.to_string().len() < 5_000, "{error}");
    let refused = sandbox.client().run(&new_id(), &ExecRequest::default()).await.unwrap_err();
    assert_eq!(refused.to_string(), "no command was given; write it after --");
    sandbox.destroy().await.unwrap();
}

#[tokio::test]
async fn refused_system_calls_are_named() {
    let sandbox = sandbox().await;
    let finished = sh(&sandbox, "mount -t tmpfs none /tmp; chroot / true").await;
    let names: Vec<&str> = finished.status.refused_calls.iter().map(|call| call.name.as_str()).collect();
    assert_eq!(names, ["chroot", "mount"]);
    assert!(sh(&sandbox, "true").await.status.refused_calls.is_empty(), "they belong to the command before");
    sandbox.destroy().await.unwrap();
}
