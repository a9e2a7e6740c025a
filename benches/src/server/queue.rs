//! Asking after jobs while many wait and more come.

use std::time::Duration;

use anyhow::{Context, Result};

use super::http::{Connection, get, schedule};
use super::load::{Amount, Load, block_on};
use super::process::{cofferdam, fresh};
use super::{CpuEach, Setup};
use crate::bench::COFFERDAM;
use crate::stats::{Row, Section, Table, Unit};

const CLIENTS: usize = 8;
/// Between two submissions that go on meanwhile.
const SUBMISSION_PAUSE: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub struct Queue {
    pub waiting: usize,
    pub times: Section,
    pub table: Table,
}

pub fn measure(setup: &Setup) -> Result<Queue> {
    let waiting = setup.sized(10_000, 1_000);
    let time = setup.sized(Duration::from_secs(10), Duration::from_secs(2));
    let data = fresh(setup.scratch());
    let server = cofferdam(&setup.program, &data, &["--jobs-max", "0"])?;
    let load =
        |connections, requests, amount, pause| Load { address: server.address, connections, requests, amount, pause };
    let fill = load(64, vec![schedule("true")], Amount::Requests(waiting), Duration::ZERO);
    let requests = block_on(async {
        fill.drive().await?;
        status_requests(&mut Connection::open(server.address).await?).await
    })?;
    server.rest()?;
    let cpu = server.cpu();
    let asking = load(CLIENTS, requests, Amount::Time(time), Duration::ZERO);
    let submitting = load(1, vec![schedule("true")], Amount::Time(time), SUBMISSION_PAUSE);
    let (asked, submitted) = block_on(async { tokio::try_join!(asking.drive(), submitting.drive()) })?;
    let cpu = server.cpu() - cpu;
    server.stop()?;
    let row = |name: &str, value| vec![name.to_owned(), value];
    let table = Table {
        title: "Asking after a job: what it costs",
        note: "Under the load above.".to_owned(),
        head: &["", ""],
        rows: vec![
            row("answers a second", Unit::PerSecond.show(asked.rate())),
            row("jobs submitted meanwhile", submitted.times.len().to_string()),
            row("a submission meanwhile, p99", Unit::Seconds.show(submitted.times.p99())),
            row("processor time of the server, each answer", CpuEach(cpu / asked.times.len() as f64).to_string()),
        ],
    };
    let times = Section {
        title: "Asking after a job while many wait",
        note: format!(
            "`GET /status/ID` of {waiting} jobs that wait, by {CLIENTS} clients without pause, while a job is \
             submitted every {} ms.",
            SUBMISSION_PAUSE.as_millis()
        ),
        unit: Unit::Seconds,
        rows: vec![Row { name: COFFERDAM.to_owned(), outcome: Ok(asked.times) }],
    };
    Ok(Queue { waiting, times, table })
}

/// One for each job, mixed so that neighbours in time are not neighbours in the store.
async fn status_requests(connection: &mut Connection) -> Result<Vec<Vec<u8>>> {
    let (mut requests, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = connection.ask_json(&get(&format!("/jobs?limit=1000{cursor}"))).await?;
        for job in page["jobs"].as_array().context("a page has jobs")? {
            let id = job["job_id"].as_str().context("a job has an id")?;
            requests.push(get(&format!("/status/{id}")));
        }
        let Some(next) = page["next_cursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    // A step that has no factor in common with the length visits everything.
    let step = (requests.len() / 3..).find(|step| greatest_common_divisor(*step, requests.len()) == 1);
    let step = step.unwrap_or(1);
    Ok((0..requests.len()).map(|index| requests[index * step % requests.len()].clone()).collect())
}

fn greatest_common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}
