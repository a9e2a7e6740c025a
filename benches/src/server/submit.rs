//! How fast jobs are taken in, durably and without being started, beside the yardstick: a server of the usual kind that
//! keeps a directory for each task. Both get the same load, in turns, each time on fresh data.

use std::time::Duration;

use anyhow::Result;

use super::http::schedule;
use super::load::{Amount, Load, block_on};
use super::process::{ServerProcess, cofferdam, fresh};
use super::yardstick::Workers;
use super::{CpuEach, Setup};
use crate::bench::{COFFERDAM, Turns};
use crate::stats::{Samples, Section, Table, Unit};

const CONNECTIONS: usize = 64;
/// For caches, imports and threads that come into being with the first requests.
const WARM_UP: Amount = Amount::Requests(500);

#[derive(Debug)]
pub struct Submissions {
    pub rates: Section,
    pub table: Table,
}

impl Submissions {
    /// The rate of the faster one of the yardstick's two ways to run.
    pub fn yardstick(&self) -> Option<f64> {
        Workers::ALL.into_iter().filter_map(|workers| self.rates.p50(workers.name())).reduce(f64::max)
    }
}

#[derive(Default)]
struct Runs {
    times: Samples,
    rates: Samples,
    /// Seconds for each request: of the server during the load, of the server until it rested, of the load.
    cpu: [Samples; 3],
}

pub fn measure(setup: &Setup) -> Result<Submissions> {
    let mut turns = Turns::new();
    let (mut ours, mut theirs) = (Runs::default(), Workers::ALL.map(|workers| (workers, Runs::default())));
    for _ in 0..setup.sized(3, 1) {
        let data = fresh(setup.scratch());
        // Jobs are only taken in, and as many as come.
        let server = cofferdam(&setup.program, &data, &["--jobs-max", "0", "--queue-max", "100000000"])?;
        turns.add_value(COFFERDAM, run(setup, server, &mut ours)?);
        for (workers, runs) in &mut theirs {
            match &setup.yardstick {
                Err(absent) => turns.absent(workers.name(), absent),
                Ok(yardstick) => {
                    let data = fresh(setup.scratch());
                    let server = yardstick.start(*workers, &data)?;
                    turns.add_value(workers.name(), run(setup, server, runs)?);
                }
            }
        }
    }
    let rates = Section {
        title: "Jobs taken in",
        note: format!(
            "`POST /schedule` over {CONNECTIONS} connections that are kept, a job of one step `true`, answered when \
             it is durable; no job is started. The load comes from the same machine."
        ),
        unit: Unit::PerSecond,
        rows: turns.into_rows(),
    };
    let table = Table {
        title: "Jobs taken in: what a request costs",
        note: "Processor time for each request. Cofferdam writes the files of a job, which are for people, after the \
               answer and with low priority; “until rest” has that in it. The load's part is that of the thread which \
               made it."
            .to_owned(),
        head: &["", "p50", "p99", "server, during the load", "server, until rest", "load"],
        rows: std::iter::once(ours.row(COFFERDAM))
            .chain(theirs.iter().map(|(workers, runs)| runs.row(workers.name())))
            .collect(),
    };
    Ok(Submissions { rates, table })
}

fn run(setup: &Setup, server: ServerProcess, runs: &mut Runs) -> Result<f64> {
    let load = |amount| Load {
        address: server.address,
        connections: CONNECTIONS,
        requests: vec![schedule("true")],
        amount,
        pause: Duration::ZERO,
    };
    block_on(load(WARM_UP).drive())?;
    server.rest()?;
    let before = server.family_cpu();
    let loaded = block_on(load(Amount::Time(setup.sized(Duration::from_secs(5), Duration::from_secs(2)))).drive())?;
    let during = server.family_cpu() - before;
    server.rest()?;
    let in_all = server.family_cpu() - before;
    server.stop()?;
    let requests = loaded.times.len() as f64;
    for (samples, seconds) in runs.cpu.iter_mut().zip([during, in_all, loaded.own_cpu]) {
        samples.push(seconds / requests);
    }
    let rate = loaded.rate();
    runs.rates.push(rate);
    runs.times.extend(loaded.times);
    Ok(rate)
}

impl Runs {
    fn row(&self, name: &str) -> Vec<String> {
        if self.rates.len() == 0 {
            return vec![name.to_owned(), "not measured".to_owned()];
        }
        let times = [self.times.p50(), self.times.p99()].map(|time| Unit::Seconds.show(time));
        let cpu = self.cpu.iter().map(|samples| CpuEach(samples.p50()).to_string());
        std::iter::once(name.to_owned()).chain(times).chain(cpu).collect()
    }
}
