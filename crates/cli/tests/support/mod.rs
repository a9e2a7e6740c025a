//! What the tests of jobs share: a data directory with or without a server on it, commands as whole processes, and waits
//! for conditions.

#![allow(dead_code, reason = "each test program uses its own part")]

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Two slow processors under other tests: far beyond what anything takes.
const DEADLINE: Duration = Duration::from_secs(60);

/// A data directory, and files to work with.
pub struct Home {
    pub directory: TempDir,
}

impl Home {
    pub fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join(name)
    }

    pub fn data(&self) -> std::path::PathBuf {
        self.path("data")
    }

    /// Writes a file and gives its path back.
    pub fn file(&self, name: &str, content: &str) -> String {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// A file of steps that run these commands.
    pub fn steps(&self, commands: &[&str]) -> String {
        let step = |command: &&str| serde_json::json!({"tool": "shell", "command": command});
        self.file("steps.json", &serde_json::to_string(&commands.iter().map(step).collect::<Vec<_>>()).unwrap())
    }

    /// The command with this data directory and nothing of the person's own settings.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cofferdam"));
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("COFFERDAM_")) {
            command.env_remove(name);
        }
        command
            .args(arguments)
            .env("COFFERDAM_DATA", self.data())
            .env("XDG_CONFIG_HOME", self.path("config"))
            .env("HOME", self.directory.path())
            .current_dir(self.directory.path())
            .stdin(Stdio::null());
        command
    }

    /// Standard output, standard error, exit code.
    pub fn run(&self, arguments: &[&str]) -> (String, String, Option<i32>) {
        let output = self.command(arguments).output().unwrap();
        texts(output)
    }

    /// Standard output of a command that has to succeed.
    pub fn ok(&self, arguments: &[&str]) -> String {
        let (stdout, stderr, code) = self.run(arguments);
        assert_eq!((stderr.as_str(), code), ("", Some(0)), "{arguments:?}: {stdout}");
        stdout
    }

    pub fn json(&self, arguments: &[&str]) -> serde_json::Value {
        serde_json::from_str(&self.ok(arguments)).unwrap()
    }

    /// A server that answers.
    pub fn serve(&self, arguments: &[&str]) -> Server {
        self.serve_at("127.0.0.1:0", arguments)
    }

    pub fn serve_at(&self, address: &str, arguments: &[&str]) -> Server {
        let words = [&["serve", "--listen", address], arguments].concat();
        let log = std::fs::File::options().create(true).append(true).open(self.path("server.log")).unwrap();
        let mut command = self.command(&words);
        let child = command.env("COFFERDAM_DRAIN_TIMEOUT", "0s").stdout(Stdio::null()).stderr(log).spawn().unwrap();
        let pid = child.id();
        let server = Server { child };
        wait_until("the server answers", || {
            cofferdam_server::running_server(&self.data()).is_some_and(|running| running.pid == pid)
        });
        server
    }
}

pub fn texts(output: Output) -> (String, String, Option<i32>) {
    (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap(), output.status.code())
}

/// A server process, ended with this.
pub struct Server {
    pub child: Child,
}

impl Server {
    /// As a power failure would.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub fn stop(mut self) -> Option<i32> {
        signal(&self.child, Signal::TERM);
        wait_for(&mut self.child)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_raw(child.id() as i32).unwrap(), signal).unwrap();
}

/// Its exit code, once it has ended.
pub fn wait_for(child: &mut Child) -> Option<i32> {
    let mut code = None;
    wait_until("the command has ended", || {
        code = child.try_wait().unwrap();
        code.is_some()
    });
    code.unwrap().code()
}

pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// What is in a file, nothing if there is none.
pub fn content(path: impl AsRef<Path>) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// With every duration as `T` and every job's id as `ID`.
pub fn masked(text: &str) -> String {
    let line = |line: &str| {
        let mut words: Vec<String> = Vec::new();
        for word in line.split(' ') {
            let bare = word.trim_matches(|c| matches!(c, '(' | ')' | ','));
            let is_unit = matches!(bare, "ms" | "s" | "min" | "h");
            match words.last_mut() {
                Some(number) if is_unit && number.trim_start_matches('(').parse::<f64>().is_ok() => {
                    let open = if number.starts_with('(') { "(" } else { "" };
                    *number = format!("{open}{}", word.replace(bare, "T"));
                }
                _ if bare.len() == 26 && bare.starts_with("01") => words.push(word.replace(bare, "ID")),
                _ => words.push(word.to_owned()),
            }
        }
        words.join(" ")
    };
    text.split('\n').map(line).collect::<Vec<_>>().join("\n")
}
