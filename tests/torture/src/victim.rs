//! The server under torture, as a process: started, killed, stopped, and found wherever it listens now. Knows nothing of
//! jobs.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::time::Instant;

/// A server on a loaded machine, with many jobs to take up, begins to listen within this time.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Longer than a server waits for its jobs when it is stopped in order.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);
const LOOK_INTERVAL: Duration = Duration::from_millis(2);

#[derive(Debug)]
pub struct Victim {
    command: Vec<OsString>,
    pub data: PathBuf,
    child: Option<Child>,
    url: watch::Sender<Option<String>>,
}

impl Victim {
    /// `command` is completed with `--listen` and `--data`.
    pub fn new(command: Vec<OsString>, data: PathBuf) -> Self {
        Self { command, data, child: None, url: watch::Sender::new(None) }
    }

    /// Where it listens; nothing while it does not.
    pub fn url(&self) -> watch::Receiver<Option<String>> {
        self.url.subscribe()
    }

    pub fn spawn(&mut self) -> Result<()> {
        let (program, arguments) = self.command.split_first().context("there is no command to start a server with")?;
        let mut command = Command::new(program);
        command.args(arguments).args(["--listen", "127.0.0.1:0"]).arg("--data").arg(&self.data);
        command.stdin(Stdio::null()).stdout(Stdio::null()).kill_on_drop(true);
        self.child = Some(command.spawn().with_context(|| format!("{} cannot be started", program.display()))?);
        Ok(())
    }

    /// Waits until it takes requests.
    pub async fn is_up(&mut self) -> Result<String> {
        let child = self.child.as_mut().context("no server was started")?;
        let pid = child.id().context("the server has ended")?;
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            if let Some(server) = cofferdam_server::running_server(&self.data)
                && server.pid == pid
                && is_ready(&server.url).await
            {
                self.url.send_replace(Some(server.url.clone()));
                return Ok(server.url);
            }
            if let Some(status) = child.try_wait()? {
                bail!("the server has ended by itself: {status}");
            }
            if Instant::now() >= deadline {
                bail!("the server does not listen after {START_TIMEOUT:?}");
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }

    /// At once, whatever it is doing.
    pub async fn kill(&mut self) -> Result<()> {
        let mut child = self.child.take().context("no server was started")?;
        child.start_kill()?;
        self.url.send_replace(None);
        child.wait().await?;
        Ok(())
    }

    /// In order, as an init system does it.
    pub async fn stop(&mut self) -> Result<ExitStatus> {
        let mut child = self.child.take().context("no server was started")?;
        let pid = child.id().and_then(|pid| Pid::from_raw(pid as i32)).context("the server has ended")?;
        rustix::process::kill_process(pid, Signal::TERM)?;
        self.url.send_replace(None);
        Ok(tokio::time::timeout(STOP_TIMEOUT, child.wait()).await.context("the server does not stop")??)
    }
}

async fn is_ready(url: &str) -> bool {
    let address = url.trim_start_matches("http://");
    tokio::net::TcpStream::connect(address).await.is_ok()
}

/// The guests of sandboxes of this data directory: each holds the lock of its directory there. Only root sees what
/// a guest has open; others see none.
pub fn guests(data: &Path) -> Vec<Pid> {
    let sandboxes = data.join("sandboxes");
    let holds_ours = |process: &Path| {
        let open = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
        open.filter_map(|file| fs::read_link(file.path()).ok()).any(|file| file.starts_with(&sandboxes))
    };
    let is_guest =
        |process: &Path| fs::read(process.join("cmdline")).is_ok_and(|command| command.starts_with(b"cofferdam-guest"));
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten().map(|process| process.path());
    processes
        .filter(|process| is_guest(process) && holds_ours(process))
        .filter_map(|process| process.file_name()?.to_str()?.parse().ok().and_then(Pid::from_raw))
        .collect()
}
