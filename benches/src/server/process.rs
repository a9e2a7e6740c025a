//! A server as a process: started on a free port, waited for, watched from outside, ended. Which server it is and what
//! is asked of it is others' business.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use super::http::{Connection, get};
use super::load::block_on;
use crate::processes::{children, cpu_seconds, field};

const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Between two looks at a server that starts: small beside what is measured.
const START_POLL: Duration = Duration::from_millis(1);
const REST_WINDOW: Duration = Duration::from_millis(400);
/// Processor time within the window that counts as rest: one tick of the kernel's clock.
const REST_CPU_SECONDS: f64 = 0.011;
const REST_TIMEOUT: Duration = Duration::from_secs(300);

#[derive(Debug)]
pub struct ServerProcess {
    child: Child,
    pub address: SocketAddr,
    /// From the start of the process until it said that it is ready.
    pub ready_after: Duration,
}

/// What /proc says about memory, in bytes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Memory {
    pub resident: f64,
    pub peak: f64,
}

/// `cofferdam serve` with a fresh or known data directory, and settings besides.
pub fn cofferdam(program: &Path, data: &Path, settings: &[&str]) -> Result<ServerProcess> {
    let address = free_address()?;
    let mut command = Command::new(program);
    command.arg("serve").arg("--listen").arg(address.to_string()).arg("--data").arg(data).args(settings);
    // Settings of whoever runs this must not be measured.
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("COFFERDAM_")) {
        command.env_remove(name);
    }
    command.env("COFFERDAM_CONFIG", "/dev/null");
    ServerProcess::start(command, address, "/readyz", &data.with_extension("log"))
}

pub fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

impl ServerProcess {
    /// Starts it and waits until a request for `ready` succeeds; what it prints goes to the file `log`.
    pub fn start(mut command: Command, address: SocketAddr, ready: &str, log: &Path) -> Result<Self> {
        let output = File::create(log)?;
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let start = Instant::now();
        let child = command.spawn().with_context(|| format!("starting {}", command.get_program().display()))?;
        let mut server = Self { child, address, ready_after: Duration::ZERO };
        let request = get(ready);
        block_on(async {
            loop {
                let answer = async { Connection::open(address).await?.ask(&request).await.map(drop) };
                let Err(error) = answer.await else { break };
                let ended = server.child.try_wait()?;
                if ended.is_some() || start.elapsed() > START_TIMEOUT {
                    bail!("the server did not start: {error:#}\n{}", end_of(log));
                }
                tokio::time::sleep(START_POLL).await;
            }
            server.ready_after = start.elapsed();
            Ok(())
        })?;
        Ok(server)
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Processor time so far, of the process alone.
    pub fn cpu(&self) -> f64 {
        cpu_seconds(self.id())
    }

    /// The same with its children, for servers that have workers.
    pub fn family_cpu(&self) -> f64 {
        self.cpu() + children(self.id()).into_iter().map(cpu_seconds).sum::<f64>()
    }

    /// Until it has nothing left to do.
    pub fn rest(&self) -> Result<()> {
        let deadline = Instant::now() + REST_TIMEOUT;
        let mut last = self.family_cpu();
        loop {
            std::thread::sleep(REST_WINDOW);
            let now = self.family_cpu();
            if now - last < REST_CPU_SECONDS {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("the server is still busy {REST_TIMEOUT:?} after its load");
            }
            last = now;
        }
    }

    pub fn memory(&self) -> Memory {
        let status = fs::read_to_string(format!("/proc/{}/status", self.id())).unwrap_or_default();
        let read = |name| field(&status, name).unwrap_or_default();
        Memory { resident: read("VmRSS:"), peak: read("VmHWM:") }
    }

    /// From now on the peak is that of what follows.
    pub fn forget_peak(&self) -> Result<()> {
        Ok(fs::write(format!("/proc/{}/clear_refs", self.id()), "5")?)
    }

    /// Asks it to stop and waits for that.
    pub fn stop(self) -> Result<()> {
        self.end(Signal::TERM)
    }

    /// As a crash would.
    pub fn kill(self) -> Result<()> {
        self.end(Signal::KILL)
    }

    fn end(mut self, signal: Signal) -> Result<()> {
        kill_process(Pid::from_child(&self.child), signal)?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // After `end` there is nothing left to do; before it an error is on its way up, and workers must not stay.
        for worker in children(self.id()) {
            if let Some(worker) = Pid::from_raw(worker as i32) {
                let _ = kill_process(worker, Signal::KILL);
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn end_of(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(5)..].join("\n")
}

/// A name for a data directory that was not there before.
pub fn fresh(scratch: &Path) -> PathBuf {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    scratch.join(format!("data-{}", NEXT.fetch_add(1, Ordering::Relaxed)))
}
