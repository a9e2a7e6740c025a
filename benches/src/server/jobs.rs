//! Whole jobs: how many a second when many wait, and how soon a single one is seen to print.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::http::{Connection, get, schedule};
use super::load::{Amount, Load, block_on};
use super::process::{ServerProcess, cofferdam, fresh};
use super::{CpuEach, Setup, metrics};
use crate::bench::COFFERDAM;
use crate::processes::{machine_cpu_seconds, resting_sandboxes};
use crate::stats::{Row, Samples, Section, Table, Unit};

/// The first ones, which do not count; they tell how many are needed.
const WARM_UP_JOBS: usize = 200;
const JOBS_TIMEOUT: Duration = Duration::from_secs(600);
/// Sandboxes kept ready: the default.
const POOL_SIZE: usize = 4;
const REFILL_TIMEOUT: Duration = Duration::from_secs(20);

pub const FIRST_OUTPUT: &str = "cofferdam, first output";

#[derive(Debug)]
pub struct WholeJobs {
    pub rate: f64,
    /// Of all that ran, those before the clock too.
    pub failed: usize,
    pub table: Table,
}

pub fn measure_rate(setup: &Setup) -> Result<WholeJobs> {
    let data = fresh(setup.scratch());
    let server = cofferdam(&setup.program, &data, &[])?;
    let least_seconds = setup.sized(10.0, 1.0);
    let (mut earlier, mut count) = (0, WARM_UP_JOBS);
    let (cpu, machine, own_cpu, took, failed) = loop {
        server.rest()?;
        let (cpu, machine) = (server.cpu(), machine_cpu_seconds());
        let (own_cpu, took, failed) = run(&server, count, earlier)?;
        let seconds = took.as_secs_f64();
        if seconds >= least_seconds && earlier > 0 {
            break (server.cpu() - cpu, machine_cpu_seconds() - machine, own_cpu, took, failed);
        }
        // As many as keep it busy for longer than that, going by the speed so far.
        earlier += count;
        count = (1.5 * least_seconds * count as f64 / seconds) as usize;
    };
    server.stop()?;
    let rate = count as f64 / took.as_secs_f64();
    let each = |seconds: f64| CpuEach(seconds / count as f64).to_string();
    let row = |name: &str, value| vec![name.to_owned(), value];
    let table = Table {
        title: "Whole jobs",
        note: format!(
            "{count} jobs of one step `true`, each in a sandbox of its own with a durable log of its events, from the \
             first request until the last has ended. The rest of the machine is the sandboxes and commands, the \
             kernel's own threads, and whatever else happened."
        ),
        head: &["", ""],
        rows: vec![
            row("jobs a second", Unit::PerSecond.show(rate)),
            row("failed", failed.to_string()),
            row("time in all", Unit::Seconds.show(took.as_secs_f64())),
            row("processor time of the server, each job", each(cpu)),
            row("of the rest of the machine, each job", each(machine - cpu - own_cpu)),
            row("of the load, each job", each(own_cpu)),
        ],
    };
    Ok(WholeJobs { rate, failed, table })
}

/// Runs so many jobs, after `earlier` others; the load's own processor time, how long all took, how many failed so far.
fn run(server: &ServerProcess, count: usize, earlier: usize) -> Result<(f64, Duration, usize)> {
    let load = Load {
        address: server.address,
        connections: 16,
        requests: vec![schedule("true")],
        amount: Amount::Requests(count),
        pause: Duration::ZERO,
    };
    block_on(async {
        let start = Instant::now();
        let own_cpu = load.drive().await?.own_cpu;
        let mut connection = Connection::open(server.address).await?;
        let failed = metrics::wait_for_ended(&mut connection, count + earlier, JOBS_TIMEOUT).await?;
        Ok((own_cpu, start.elapsed(), failed))
    })
}

pub fn measure_first_output(setup: &Setup) -> Result<Section> {
    let data = fresh(setup.scratch());
    let server = cofferdam(&setup.program, &data, &["--pool", &POOL_SIZE.to_string()])?;
    let (mut accepted, mut output) = (Samples::default(), Samples::default());
    block_on(async {
        let mut connection = Connection::open(server.address).await?;
        for _ in 0..setup.sized(200, 10) {
            wait_until_prepared(&server, &mut connection).await?;
            let times = until_first_output(&server, &mut connection).await?;
            accepted.push(times[0].as_secs_f64());
            output.push(times[1].as_secs_f64());
        }
        Ok(())
    })?;
    server.stop()?;
    let row = |name: &str, samples| Row { name: name.to_owned(), outcome: Ok(samples) };
    Ok(Section {
        title: "Schedule a job and see its first output",
        note: format!(
            "`POST /schedule` with `echo x`, then `GET /jobs/ID/events` over a connection of its own until the first \
             event of type `output`; one after the other, with {POOL_SIZE} sandboxes ready. The first row is when the \
             job was durable and its answer there."
        ),
        unit: Unit::Seconds,
        rows: vec![row(&format!("{COFFERDAM}, accepted"), accepted), row(FIRST_OUTPUT, output)],
    })
}

/// When the job was accepted, and when its first output was there.
async fn until_first_output(server: &ServerProcess, connection: &mut Connection) -> Result<[Duration; 2]> {
    let start = Instant::now();
    let job = connection.ask_json(&schedule("echo x")).await?;
    let accepted = start.elapsed();
    let id = job["job_id"].as_str().context("a job has an id")?;
    let (mut seen, mut first) = (Vec::new(), None);
    let events = Connection::open(server.address).await?;
    events
        .follow(&get(&format!("/jobs/{id}/events")), |bytes| {
            seen.extend_from_slice(bytes);
            if first.is_none() && seen.windows(14).any(|part| part == b"event: output\n") {
                first = Some(start.elapsed());
            }
            ControlFlow::Continue(())
        })
        .await?;
    Ok([accepted, first.with_context(|| format!("the job gave no output: {}", String::from_utf8_lossy(&seen)))?])
}

/// Until the pool is full and the server and all of its sandboxes rest, seen twice: preparing must not be measured.
async fn wait_until_prepared(server: &ServerProcess, connection: &mut Connection) -> Result<()> {
    metrics::wait_for(connection, metrics::POOL_READY, POOL_SIZE as f64, REFILL_TIMEOUT).await?;
    let deadline = Instant::now() + REFILL_TIMEOUT;
    let mut seen = 0;
    while seen < 2 {
        ensure!(Instant::now() < deadline, "the pool did not refill itself in {REFILL_TIMEOUT:?}");
        seen = if resting_sandboxes(server.id()) == POOL_SIZE { seen + 1 } else { 0 };
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}
