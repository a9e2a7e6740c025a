//! What all sections share: the runtime, the peers, how often to measure, and the one way to get a command's first
//! output out of a sandbox.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use cofferdam_protocol::exec::{ExecId, ExecRequest};
use cofferdam_sandbox::local::{LocalConfig, LocalRuntime, Sandbox, SandboxSpec};

use crate::peers::{self, Peer};
use crate::stats::{Row, Samples};

pub const COFFERDAM: &str = "cofferdam";

#[derive(Debug)]
pub struct Bench {
    pub runtime: Arc<LocalRuntime>,
    pub spec: SandboxSpec,
    pub peers: Vec<Peer>,
    /// The command line that is measured.
    pub program: PathBuf,
    pub quick: bool,
    /// Holds runc's bundles for as long as they are needed.
    _scratch: tempfile::TempDir,
}

impl Bench {
    pub fn new(program: PathBuf, quick: bool) -> Result<Self> {
        ensure!(program.is_file(), "{} is missing; run: cargo build --release -p cofferdam", program.display());
        let scratch = tempfile::tempdir()?;
        Ok(Self {
            runtime: Arc::new(LocalRuntime::new(&LocalConfig::default())?),
            spec: SandboxSpec::default(),
            peers: peers::all(scratch.path()),
            program,
            quick,
            _scratch: scratch,
        })
    }

    /// How often to do something, in a full run.
    pub fn times(&self, full: usize) -> usize {
        if self.quick { (full / 20).max(2) } else { full }
    }

    pub fn peer(&self, name: &str) -> &Peer {
        self.peers.iter().find(|peer| peer.name == name).expect("all peers are listed, installed or not")
    }
}

/// Rows that fill up in turns: everybody meets the same noise of the machine.
#[derive(Debug)]
pub struct Turns(Vec<Row>);

impl Turns {
    pub fn new() -> Self {
        Self(Vec::new())
    }

    pub fn add(&mut self, name: &str, time: Duration) {
        self.add_value(name, time.as_secs_f64());
    }

    pub fn add_value(&mut self, name: &str, value: f64) {
        if let Ok(samples) = &mut self.row(name).outcome {
            samples.push(value);
        }
    }

    /// There is nothing to measure, for this reason.
    pub fn absent(&mut self, name: &str, reason: &str) {
        self.row(name).outcome = Err(reason.to_owned());
    }

    /// A peer's turn in round `round`, if it is here and its turn has come.
    pub fn peer(&mut self, peer: &Peer, round: usize, run: impl FnOnce() -> Result<Duration>) {
        if let Err(absent) = &peer.version {
            self.absent(peer.name, absent);
        } else if round.is_multiple_of(peer.every) {
            match run() {
                Ok(time) => self.add(peer.name, time),
                Err(error) => self.absent(peer.name, &format!("failed: {error:#}")),
            }
        }
    }

    fn row(&mut self, name: &str) -> &mut Row {
        let index = self.0.iter().position(|row| row.name == name).unwrap_or_else(|| {
            self.0.push(Row { name: name.to_owned(), outcome: Ok(Samples::default()) });
            self.0.len() - 1
        });
        &mut self.0[index]
    }

    pub fn into_rows(self) -> Vec<Row> {
        self.0
    }
}

pub fn new_id() -> ExecId {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    ExecId::try_from(format!("bench-{}", NEXT.fetch_add(1, Ordering::Relaxed))).expect("it is a valid id")
}

pub fn request(argv: &[&str]) -> ExecRequest {
    ExecRequest { argv: argv.iter().map(|word| (*word).to_owned()).collect(), ..ExecRequest::default() }
}

/// Runs `echo` and returns when its first output was there, as seen from `start`.
pub async fn first_output(sandbox: &Sandbox, start: Instant) -> Result<Duration> {
    let mut stream = sandbox.client().exec(&new_id(), &request(&peers::ECHO), 0, false).await?;
    let mut first = None;
    while stream.next(|_, _| first = first.or_else(|| Some(start.elapsed()))).await? && first.is_none() {}
    let Some(first) = first else { anyhow::bail!("the command gave no output") };
    stream.follow(|_, _| ()).await?;
    Ok(first)
}
