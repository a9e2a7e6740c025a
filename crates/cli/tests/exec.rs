//! `cofferdam exec` and `doctor` as whole processes: what a person types, reads and gets as an exit code.

use std::io::Write;
use std::process::{Command, Output, Stdio};

fn cofferdam(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_cofferdam")).args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn exec(arguments: &[&str]) -> (String, String, Option<i32>) {
    let output = cofferdam(&[&["exec"], arguments].concat());
    (text(output.stdout), text(output.stderr), output.status.code())
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

#[test]
fn a_command_runs_with_input_output_and_its_own_exit_code() {
    assert_eq!(exec(&["--", "python3", "-c", "print(1)"]), ("1\n".into(), String::new(), Some(0)));
    assert_eq!(exec(&["sh", "-c", "echo oh >&2; exit 42"]), (String::new(), "oh\n".into(), Some(42)));
    let mut child = Command::new(env!("CARGO_BIN_EXE_cofferdam"))
        .args(["exec", "--", "wc", "-c"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&vec![b'x'; 3_000_000]).unwrap();
    assert_eq!(text(child.wait_with_output().unwrap().stdout), "3000000\n");
}

/// Arguments, exit code, and the one sentence that names the thing and the remedy.
#[test]
fn mistakes_end_in_one_sentence_and_a_code_of_their_own() {
    let path =
        "/home/agent/.local/bin:/home/agent/.npm/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    let cases: &[(&[&str], i32, &str)] = &[
        (&[], 2, "no command was given; write it after --"),
        (
            &["--limit", "ram=1GiB", "--", "true"],
            110,
            "there is no limit called \"ram\"; the limits are cpu, memory, processes, files, workspace, tmp, time",
        ),
        (
            &["--limit", "memory=1KiB", "--", "true"],
            110,
            "the limit memory must be between 16 MiB and 64 TiB; got 1KiB",
        ),
        (
            &["--net", "http://x.org", "--", "true"],
            111,
            "\"http://x.org\" is not a network pattern (it is a URL, not a name); write none, open, or names such as example.org, *.example.org or example.org:443",
        ),
        (
            &["--workspace", "/no/such/place", "--", "true"],
            112,
            "the workspace /no/such/place does not exist; create it first: mkdir -p /no/such/place",
        ),
        (
            &["--read-only", "/no/such", "--", "true"],
            112,
            "the read-only directory /no/such cannot be offered: No such file or directory (os error 2)",
        ),
        (&["--lang", "python", "/no/such.py"], 113, "/no/such.py: \"such.py\" does not exist"),
        (
            &["--cwd", "/no/such", "--", "true"],
            114,
            "the working directory \"/no/such\" cannot be entered: No such file or directory (os error 2); it must be a directory in the sandbox, such as /workspace",
        ),
        (
            &["--limit", "memory=32MiB", "--", "python3", "-c", "x = bytearray(10**9)"],
            118,
            "killed: memory limit 32 MiB reached; raise it with --limit memory=SIZE",
        ),
        (
            &["--limit", "time=200ms", "--", "sleep", "60"],
            124,
            "killed: time limit 200 ms reached; raise it with --limit time=DURATION",
        ),
        (
            &["--", "/etc/passwd"],
            126,
            "\"/etc/passwd\" cannot be executed: permission denied; it must be a file with its executable bit set (chmod +x)",
        ),
        (&["--", "nosuch"], 127, &format!("there is no command \"nosuch\" in the sandbox; its PATH is {path}")),
    ];
    for (arguments, code, sentence) in cases {
        let (stdout, stderr, ended) = exec(arguments);
        let expected =
            if arguments.contains(&"/no/such.py") { stderr.clone() } else { format!("cofferdam: {sentence}\n") };
        assert_eq!((stdout.as_str(), stderr.as_str(), ended), ("", expected.as_str(), Some(*code)), "{arguments:?}");
        assert_eq!(stderr.lines().count(), 1, "{arguments:?}: {stderr}");
    }
    // A place for temporary files that is not there: every time the same sentence, however the start is timed.
    for _ in 0..5 {
        let output = Command::new(env!("CARGO_BIN_EXE_cofferdam"))
            .args(["exec", "--", "true"])
            .env("TMPDIR", "/no/such")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert_eq!(
            text(output.stderr),
            "cofferdam: opening the spool directory /no/such: No such file or directory (os error 2); set TMPDIR to a directory that exists and that you may write to\n"
        );
    }
    let (_, stderr, code) = exec(&["--", "chroot", "/", "true"]);
    assert_ne!(code, Some(0));
    assert!(stderr.ends_with("cofferdam: the sandbox refused system calls that it made: chroot (1×); what is forbidden and why: docs/security.md\n"), "{stderr}");
}

#[test]
fn languages_run_from_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, content: &str| std::fs::write(directory.path().join(name), content).unwrap();
    write("main.py", "import sys, os\nprint('python', sys.argv[1:], os.getcwd())\n");
    write("main.js", "console.log('javascript', process.argv.slice(2))\n");
    write("helper.ts", "export enum Level { Low = 1, High }\nexport interface Unused { x: number }\n");
    write(
        "main.ts",
        "import { Level, Unused } from './helper';\nconst level: Level = Level.High;\nconsole.log('typescript', level as number);\ntype T = {\n  a: string;\n};\nfunction fail(message: string): never {\n  throw new Error(message);\n}\nif (process.argv[2] === 'fail') fail('broken');\n",
    );
    let file = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let workspace = directory.path().to_str().unwrap();
    // Alone, and from a workspace.
    for (language, name, expected) in [
        ("python", "main.py", "python ['a', 'b'] /workspace\n"),
        ("javascript", "main.js", "javascript [ 'a', 'b' ]\n"),
        ("typescript", "main.ts", "typescript 2\n"),
    ] {
        assert_eq!(exec(&["--lang", language, &file(name), "a", "b"]).0, expected);
        assert_eq!(exec(&["--workspace", workspace, "--lang", language, name, "a", "b"]).0, expected);
    }
    // A single module goes another, shorter way; it must not be seen.
    write(
        "alone.ts",
        "import { basename } from 'node:path';\ntype Name = string;\nconst name: Name = basename(import.meta.url);\nconsole.log(name, process.argv.slice(1), import.meta.dirname ?? '/workspace');\nawait Promise.resolve();\nif (process.argv[3]) throw new Error('alone');\n",
    );
    let (stdout, stderr, _) = exec(&["--workspace", workspace, "--lang", "ts", "alone.ts", "a", "-b"]);
    assert_eq!(stdout, "alone.ts [ '/workspace/alone.ts', 'a', '-b' ] /workspace\n", "{stderr}");
    assert!(stderr.contains("/workspace/alone.ts:6:"), "{stderr}");
    // The line of the source is the line of the error, and nothing is left in the workspace.
    let (_, stderr, code) = exec(&["--workspace", workspace, "--lang", "ts", "main.ts", "fail"]);
    assert_eq!(code, Some(1));
    assert!(stderr.contains("/workspace/main.ts:8"), "{stderr}");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 5);
    write("wrong.ts", "const x: number = ;\n");
    let (_, stderr, code) = exec(&["--workspace", workspace, "--lang", "typescript", "wrong.ts"]);
    assert_eq!(code, Some(113));
    assert!(stderr.contains("wrong.ts:1:"), "{stderr}");
}

#[test]
fn a_terminal_is_offered_and_a_pipe_that_closes_ends_the_command() {
    let (stdout, _, code) = exec(&["--tty", "--", "sh", "-c", "tty; echo $TERM"]);
    assert_eq!((stdout.as_str(), code), ("/dev/pts/0\r\nxterm-256color\r\n", Some(0)));
    let script = format!("echo typed | {} exec -t -- cat", env!("CARGO_BIN_EXE_cofferdam"));
    let output = Command::new("timeout").args(["60", "bash", "-c", &script]).output().unwrap();
    assert_eq!((text(output.stdout).as_str(), output.status.code()), ("typed\r\ntyped\r\n", Some(0)));
    // `yes | head`: the writer must end when nobody reads any more.
    let script = format!("{} exec -- yes | head -n 1; exit ${{PIPESTATUS[0]}}", env!("CARGO_BIN_EXE_cofferdam"));
    let output = Command::new("timeout").args(["60", "bash", "-c", &script]).output().unwrap();
    assert_eq!((text(output.stdout).as_str(), output.status.code()), ("y\n", Some(141)));
    assert_eq!(text(output.stderr), "");
    // Output that cannot be kept is not success.
    let script = format!("{} exec -- echo hi > /dev/full", env!("CARGO_BIN_EXE_cofferdam"));
    let output = Command::new("bash").args(["-c", &script]).output().unwrap();
    assert_eq!(output.status.code(), Some(116));
    assert!(text(output.stderr).contains("the output could not be written: No space left on device"));
}

/// What the launcher's own parents had open must not be open inside.
#[test]
fn descriptors_of_the_caller_stay_outside() {
    let script = format!(
        "exec 3</etc/passwd 4</etc/passwd 7</etc/passwd; {} exec -- sh -c 'ls /proc/self/fd; cat <&3'",
        env!("CARGO_BIN_EXE_cofferdam")
    );
    let output = Command::new("bash").args(["-c", &script]).stdin(Stdio::null()).output().unwrap();
    // 0 to 2, and the directory that ls itself reads.
    assert_eq!(text(output.stdout), "0\n1\n2\n3\n");
    assert_ne!(output.status.code(), Some(0), "descriptor 3 was there");
}

#[test]
fn signals_are_passed_on() {
    use std::io::{BufRead, BufReader};
    let mut child = Command::new(env!("CARGO_BIN_EXE_cofferdam"))
        .args(["exec", "--", "sh", "-c", "trap 'echo caught; exit 9' TERM; echo ready; while :; do sleep 0.01; done"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    let pid = rustix::process::Pid::from_raw(child.id() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "caught");
    assert_eq!(child.wait().unwrap().code(), Some(9));
}

#[test]
fn doctor_tells_people_and_scripts() {
    let output = cofferdam(&["doctor"]);
    let table = text(output.stdout);
    for feature in ["kernel", "user namespaces", "Landlock", "seccomp", "memory limit", "sandbox"] {
        assert!(table.contains(feature), "{table}");
    }
    assert!(matches!(output.status.code(), Some(0 | 1)), "{table}");
    let json: serde_json::Value = serde_json::from_slice(&cofferdam(&["doctor", "--json"]).stdout).unwrap();
    let sandbox = json.as_array().unwrap().iter().find(|finding| finding["feature"] == "sandbox").unwrap();
    assert_eq!(sandbox["state"], "good");
}

#[test]
fn version_help_and_completions_are_there() {
    assert_eq!(text(cofferdam(&["--version"]).stdout), format!("cofferdam {}\n", env!("CARGO_PKG_VERSION")));
    let help = text(cofferdam(&["exec", "--help"]).stdout);
    assert!(help.contains("memory     1 GiB") && help.contains("124  killed: time limit reached"), "{help}");
    for shell in ["bash", "zsh", "fish"] {
        assert!(text(cofferdam(&["completions", shell]).stdout).contains("net-log"), "{shell}");
    }
}
