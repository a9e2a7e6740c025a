//! Many sandboxes: fifty created at the same moment, what an idle one costs in memory, a thousand alive at once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use cofferdam_sandbox::local::Sandbox;
use tokio::io::AsyncReadExt;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::bench::{Bench, COFFERDAM, Turns, first_output};
use crate::peers::{BWRAP, ECHO, FORK_EXEC};
use crate::processes::{family_pss, memory_available};
use crate::stats::{Samples, Section, Unit};

/// How many are created at once, and how many idle ones are weighed.
pub const CROWD: usize = 50;
/// A thousand are not asked for in the same moment: so many are on their way at a time.
const ON_THE_WAY: usize = 16;
/// The kernel takes network namespaces away in the background: memory is read when it changes by less than this much
/// in this time, or when there is no more hope for that.
const REST_BYTES: f64 = 1e6;
const REST_WINDOW: Duration = Duration::from_millis(400);
const REST_TIMEOUT: Duration = Duration::from_secs(6);

/// Until the last of fifty has given its first output.
pub async fn measure_burst(bench: &Arc<Bench>) -> Result<Section> {
    let mut turns = Turns::new();
    for _ in 0..bench.times(10) {
        let start = Instant::now();
        let mut starting = JoinSet::new();
        for _ in 0..CROWD {
            let bench = bench.clone();
            starting.spawn(async move {
                let sandbox = bench.runtime.launch(&bench.spec, None).await?;
                let first = first_output(&sandbox, start).await?;
                anyhow::Ok((sandbox, first))
            });
        }
        let started = collect(starting).await?;
        turns.add(COFFERDAM, started.iter().map(|(_, first)| *first).max().unwrap_or_default());
        destroy_all(started.into_iter().map(|(sandbox, _)| sandbox).collect()).await?;
        for name in [FORK_EXEC, BWRAP] {
            // The turn is decided by whether the peer is here; its work is not blocking.
            let time =
                if bench.peer(name).version.is_ok() { peer_burst(bench, name).await } else { Ok(Duration::ZERO) };
            turns.peer(bench.peer(name), 0, || time);
        }
    }
    Ok(Section {
        title: "Fifty at once",
        note: format!("{CROWD} asked for at the same moment, until the last has given its first output."),
        unit: Unit::Seconds,
        rows: turns.into_rows(),
    })
}

async fn peer_burst(bench: &Arc<Bench>, name: &'static str) -> Result<Duration> {
    let start = Instant::now();
    let mut starting = JoinSet::new();
    for _ in 0..CROWD {
        let bench = bench.clone();
        starting.spawn(async move {
            let mut command = tokio::process::Command::from(bench.peer(name).command(&ECHO));
            let mut child = command.stdout(std::process::Stdio::piped()).spawn()?;
            child.stdout.as_mut().context("its output is a pipe")?.read_u8().await?;
            let first = start.elapsed();
            child.wait().await?;
            anyhow::Ok(first)
        });
    }
    Ok(collect(starting).await?.into_iter().max().unwrap_or_default())
}

#[derive(Debug, Default)]
pub struct IdleMemory {
    /// One sample for each sandbox; none without root.
    pub pss: Samples,
    /// One sample for each crowd: the fall of MemAvailable divided by the number of sandboxes.
    pub available: Samples,
}

pub async fn measure_idle(bench: &Arc<Bench>) -> Result<IdleMemory> {
    let mut memory = IdleMemory::default();
    for _ in 0..bench.times(3) {
        let before = rested_memory().await;
        let sandboxes = launch_many(bench, CROWD).await.0;
        if let (Some(before), Some(after)) = (before, rested_memory().await) {
            memory.available.push((before - after) / sandboxes.len() as f64);
        }
        let pids = sandboxes.iter().filter_map(Sandbox::guest_pid);
        pids.filter_map(family_pss).for_each(|pss| memory.pss.push(pss));
        destroy_all(sandboxes).await?;
    }
    Ok(memory)
}

#[derive(Debug)]
pub struct Thousand {
    pub asked: usize,
    pub alive: usize,
    pub first_error: Option<String>,
    pub create: Duration,
    pub commands_run: usize,
    pub commands_asked: usize,
    pub destroy: Duration,
    pub available_each: Option<f64>,
}

pub async fn measure_thousand(bench: &Arc<Bench>) -> Result<Thousand> {
    let asked = if bench.quick { 100 } else { 1000 };
    let before = rested_memory().await;
    let start = Instant::now();
    let (sandboxes, first_error) = launch_many(bench, asked).await;
    let create = start.elapsed();
    let alive = sandboxes.len();
    let fall = before.zip(rested_memory().await).map(|(before, after)| before - after);
    let sample: Vec<_> = sandboxes.iter().step_by((alive / 50).max(1)).collect();
    let mut commands_run = 0;
    for sandbox in &sample {
        commands_run += usize::from(first_output(sandbox, Instant::now()).await.is_ok());
    }
    let commands_asked = sample.len();
    let start = Instant::now();
    destroy_all(sandboxes).await?;
    Ok(Thousand {
        asked,
        alive,
        first_error,
        create,
        commands_run,
        commands_asked,
        destroy: start.elapsed(),
        available_each: fall.map(|fall| fall / alive.max(1) as f64),
    })
}

/// MemAvailable, once it has come to rest.
async fn rested_memory() -> Option<f64> {
    let deadline = Instant::now() + REST_TIMEOUT;
    let mut last = memory_available()?;
    loop {
        tokio::time::sleep(REST_WINDOW).await;
        let now = memory_available()?;
        if (now - last).abs() < REST_BYTES || Instant::now() > deadline {
            return Some(now);
        }
        last = now;
    }
}

/// As many as could be made, and why the first that could not be made was not.
async fn launch_many(bench: &Arc<Bench>, count: usize) -> (Vec<Sandbox>, Option<String>) {
    let turn = Arc::new(Semaphore::new(ON_THE_WAY));
    let mut starting = JoinSet::new();
    for _ in 0..count {
        let (bench, turn) = (bench.clone(), turn.clone());
        starting.spawn(async move {
            let _turn = turn.acquire().await?;
            anyhow::Ok(bench.runtime.launch(&bench.spec, None).await?)
        });
    }
    let (mut sandboxes, mut first_error) = (Vec::new(), None);
    while let Some(joined) = starting.join_next().await {
        match joined.map_err(anyhow::Error::from).and_then(|launched| launched) {
            Ok(sandbox) => sandboxes.push(sandbox),
            Err(error) => first_error = first_error.or_else(|| Some(format!("{error:#}"))),
        }
    }
    (sandboxes, first_error)
}

async fn destroy_all(sandboxes: Vec<Sandbox>) -> Result<()> {
    let mut ending = JoinSet::new();
    for sandbox in sandboxes {
        ending.spawn(async move { anyhow::Ok(sandbox.destroy().await?) });
    }
    collect(ending).await.map(drop)
}

async fn collect<T: 'static>(mut tasks: JoinSet<Result<T>>) -> Result<Vec<T>> {
    let mut results = Vec::new();
    while let Some(joined) = tasks.join_next().await {
        results.push(joined??);
    }
    Ok(results)
}
