//! What a person at a terminal sees and types: progress in colours, the question about a patch, and shells.

mod support;

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::Child;
use std::sync::{Arc, Mutex};

use rustix::fs::{Mode, OFlags};
use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use support::{Home, content, signal, wait_for, wait_until};

/// A command on a terminal of its own, 80 columns wide.
struct Session {
    child: Child,
    terminal: File,
    seen: Arc<Mutex<String>>,
}

impl Session {
    fn new(home: &Home, arguments: &[&str]) -> Self {
        let terminal: OwnedFd = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&terminal).unwrap();
        unlockpt(&terminal).unwrap();
        let name = ptsname(&terminal, Vec::new()).unwrap();
        let inside = rustix::fs::open(&name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
        resize(&inside, 80);
        let end = || File::from(inside.try_clone().unwrap());
        let child = home.command(arguments).stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
        let terminal = File::from(terminal);
        let seen = Arc::new(Mutex::new(String::new()));
        let (mut reader, sink) = (terminal.try_clone().unwrap(), seen.clone());
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = reader.read(&mut buffer) {
                sink.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..length]));
            }
        });
        Self { child, terminal, seen }
    }

    fn seen(&self) -> String {
        self.seen.lock().unwrap().clone()
    }

    fn wait_for(&self, text: &str) {
        wait_until(&format!("{text:?} is seen"), || self.seen().contains(text));
    }

    fn type_in(&mut self, text: &str) {
        self.terminal.write_all(text.as_bytes()).unwrap();
    }
}

fn resize(terminal: impl AsFd, columns: u16) {
    tcsetwinsize(terminal, Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
}

#[test]
fn a_shell_in_a_new_sandbox_has_keys_size_and_exit_code() {
    let home = Home::new();
    let mut shell = Session::new(&home, &["shell", "--new"]);
    shell.type_in("stty size; echo in $PWD\n");
    shell.wait_for("24 80\r\nin /workspace");
    resize(&shell.terminal, 123);
    signal(&shell.child, Signal::WINCH);
    // The size reaches the shell some time after the signal: asked until it is there.
    wait_until("the new size is seen", || {
        shell.type_in("stty size\n");
        shell.seen().contains("24 123")
    });
    // Ctrl-C is for the command in the shell, not for ours.
    shell.type_in("echo wait; sleep 600\n");
    shell.wait_for("wait\r\n");
    shell.type_in("\u{3}");
    shell.type_in("exit 7\n");
    assert_eq!(wait_for(&mut shell.child), Some(7), "{}", shell.seen());
    let sandbox = &home.json(&["ps", "--all", "--json"])["jobs"][0];
    assert_ne!(sandbox["status"], "running");
}

#[test]
fn a_shell_in_the_sandbox_of_a_running_job_sees_its_files() {
    let home = Home::new();
    let _server = home.serve(&[]);
    let steps = home.steps(&["echo made > file.txt; echo on; while ! test -e stop; do sleep 0.02; done"]);
    let job = home.ok(&["run", "-d", &steps]).trim().to_owned();
    wait_until("the job runs", || home.run(&["logs", &job]).0.ends_with("on\n"));
    let mut shell = Session::new(&home, &["shell", &job]);
    shell.type_in("cat file.txt; touch stop; exit\n");
    shell.wait_for("made");
    assert_eq!(wait_for(&mut shell.child), Some(0));
    wait_until("the job has ended", || home.json(&["status", "--json", &job])["status"] == "completed");
    let (_, stderr, code) = home.run(&["shell", &job]);
    assert!(code == Some(105) && stderr.lines().count() == 1, "{stderr}");
}

#[test]
fn a_person_sees_progress_in_colours_and_is_asked_about_the_patch() {
    let home = Home::new();
    let file = home.file("project/file.txt", "one\n");
    let steps = home.steps(&["printf '\\033[2J\\033]0;title\\007hello\\n'; echo two >> file.txt"]);
    for (answer, expected, result) in [("n", "to apply it", "one\n"), ("y", "applied to project", "one\ntwo\n")] {
        let mut run = Session::new(&home, &["run", &steps, "-w", "project"]);
        run.wait_for("Apply to project? [y/N] ");
        run.type_in(&format!("{answer}\n"));
        assert_eq!(wait_for(&mut run.child), Some(0));
        run.wait_for(expected);
        let seen = run.seen();
        assert!(seen.contains("\u{1b}[32m✓\u{1b}[0m 1/1") && seen.contains("│\u{1b}[0m hello\r\n"), "{seen:?}");
        assert!(!seen.contains("\u{1b}[2J") && !seen.contains("title\u{7}"), "{seen:?}");
        assert_eq!(content(&file), result);
    }
}
