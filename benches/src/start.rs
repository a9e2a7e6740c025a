//! From nothing to the first output of a command: cold, out of the pool, and the end of a sandbox.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use cofferdam_sandbox::pool::Pool;

use crate::bench::{Bench, COFFERDAM, Turns, first_output};
use crate::peers::{BWRAP, FORK_EXEC};
use crate::processes::resting_sandboxes;
use crate::stats::{Section, Unit};

pub const POOL: &str = "cofferdam, pool";
const POOL_SIZE: usize = 8;
/// For a refill; far more than it takes.
const REFILL_TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub struct Start {
    pub cold: Section,
    pub pool: Section,
    pub destroy: Section,
}

pub async fn measure(bench: &Bench) -> Result<Start> {
    let (mut cold, mut destroy) = (Turns::new(), Turns::new());
    for round in 0..bench.times(200) {
        let start = Instant::now();
        let sandbox = bench.runtime.launch(&bench.spec, None).await?;
        cold.add(COFFERDAM, first_output(&sandbox, start).await?);
        let start = Instant::now();
        sandbox.destroy().await?;
        destroy.add(COFFERDAM, start.elapsed());
        for peer in &bench.peers {
            cold.peer(peer, round, || tokio::task::block_in_place(|| peer.time_to_first_byte()));
        }
    }
    Ok(Start {
        cold: Section {
            title: "Create a sandbox and get the first output",
            note: "From the call (or the start of the peer's process) to the first byte of `/bin/echo x`; one after \
                   the other, destroyed each time."
                .to_owned(),
            unit: Unit::Seconds,
            rows: cold.into_rows(),
        },
        pool: measure_pool(bench).await?,
        destroy: Section {
            title: "Destroy a sandbox",
            note: "From the call until nothing of it is left: processes, mounts, control groups.".to_owned(),
            unit: Unit::Seconds,
            rows: destroy.into_rows(),
        },
    })
}

async fn measure_pool(bench: &Bench) -> Result<Section> {
    let mut turns = Turns::new();
    let pool = Pool::new(bench.runtime.clone(), bench.spec.limits, POOL_SIZE);
    for round in 0..bench.times(200) {
        wait_until_prepared(&pool).await?;
        let start = Instant::now();
        let sandbox = pool.take(&bench.spec, None).await?;
        turns.add(POOL, first_output(&sandbox, start).await?);
        sandbox.destroy().await?;
        // The refill's work must not fall into the peers' turn either.
        wait_until_prepared(&pool).await?;
        for peer in bench.peers.iter().filter(|peer| [FORK_EXEC, BWRAP].contains(&peer.name)) {
            turns.peer(peer, round, || tokio::task::block_in_place(|| peer.time_to_first_byte()));
        }
    }
    Ok(Section {
        title: "Take a prepared sandbox and get the first output",
        note: format!(
            "The same out of a pool of {POOL_SIZE}, which is given the time to refill itself before each take."
        ),
        unit: Unit::Seconds,
        rows: turns.into_rows(),
    })
}

/// Until the pool is full and all that is in it has come to rest, seen twice: preparing must not be measured.
async fn wait_until_prepared(pool: &Pool) -> Result<()> {
    let deadline = Instant::now() + REFILL_TIMEOUT;
    let mut seen = 0;
    while seen < 2 {
        ensure!(Instant::now() < deadline, "the pool did not refill itself in {REFILL_TIMEOUT:?}");
        let prepared = pool.ready() == POOL_SIZE && resting_sandboxes(std::process::id()) == POOL_SIZE;
        seen = if prepared { seen + 1 } else { 0 };
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Ok(())
}
