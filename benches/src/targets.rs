//! The project's promises about speed, each as a bound made of what was measured beside it in the same run.

use crate::bench::COFFERDAM;
use crate::commands::{PLAIN_PIPE, TO_NULL, TO_PIPE};
use crate::crowd::{IdleMemory, Thousand};
use crate::peers::{BWRAP, FORK_EXEC};
use crate::server::{FIRST_OUTPUT, INFO_ZIP, ServerMeasured};
use crate::start::{POOL, Start};
use crate::stats::{Samples, Section, Unit};

#[derive(Debug)]
pub struct Target {
    pub promise: &'static str,
    pub measured: String,
    pub bound: String,
    /// The measured value as a share of the bound.
    pub ratio: Option<f64>,
    /// Absent where something needed for the comparison is.
    pub met: Option<bool>,
}

/// Both halves, or the one that was asked for.
#[derive(Debug)]
pub struct Measured {
    pub sandbox: Option<SandboxMeasured>,
    pub server: Option<ServerMeasured>,
}

#[derive(Debug)]
pub struct SandboxMeasured {
    pub start: Start,
    pub burst: Section,
    pub whole: Section,
    pub exec: Section,
    pub throughput: Section,
    pub idle: IdleMemory,
    pub thousand: Thousand,
}

enum Bound {
    AtMost,
    AtLeast,
}

fn compare(promise: &'static str, unit: Unit, direction: Bound, measured: Option<f64>, bound: Option<f64>) -> Target {
    let show = |value: Option<f64>| value.map_or_else(|| "not measured".to_owned(), |value| unit.show(value));
    let pair = measured.zip(bound);
    let sign = if matches!(direction, Bound::AtMost) { "≤" } else { "≥" };
    Target {
        promise,
        measured: show(measured),
        bound: format!("{sign} {}", show(bound)),
        ratio: pair.map(|(measured, bound)| measured / bound),
        met: pair.map(|(measured, bound)| match direction {
            Bound::AtMost => measured <= bound,
            Bound::AtLeast => measured >= bound,
        }),
    }
}

pub fn judge(measured: &Measured) -> Vec<Target> {
    let sandbox = measured.sandbox.iter().flat_map(judge_sandbox);
    sandbox.chain(measured.server.iter().flat_map(judge_server)).collect()
}

fn judge_sandbox(measured: &SandboxMeasured) -> Vec<Target> {
    let SandboxMeasured { start, burst, whole, exec, throughput, idle, thousand } = measured;
    let at_most = |promise, measured, bound| compare(promise, Unit::Seconds, Bound::AtMost, measured, bound);
    let output = |promise, name| {
        let bound = throughput.p50(PLAIN_PIPE).map(|speed| 0.4 * speed);
        compare(promise, Unit::BytesPerSecond, Bound::AtLeast, throughput.p50(name), bound)
    };
    let bytes = |promise, measured, bound| compare(promise, Unit::Bytes, Bound::AtMost, measured, Some(bound));
    let median = |samples: &Samples| (samples.len() > 0).then(|| samples.p50());
    // The worse of the two: a few sandboxes are partly made of memory that earlier ones have left in the kernel.
    let fall = [median(&idle.available), thousand.available_each].into_iter().flatten().reduce(f64::max);
    let all_alive = thousand.alive == thousand.asked && thousand.commands_run == thousand.commands_asked;
    vec![
        at_most("create → first output: p50 ≤ 1.0 × bwrap", start.cold.p50(COFFERDAM), start.cold.p50(BWRAP)),
        at_most(
            "from the pool → first output: p50 ≤ 2 × fork+exec + 1 ms",
            start.pool.p50(POOL),
            start.pool.p50(FORK_EXEC).map(|fork| 2.0 * fork + 1e-3),
        ),
        at_most(
            "50 at once: all succeed, the last ready ≤ 0.8 × 50 bwraps",
            burst.p50(COFFERDAM),
            burst.p50(BWRAP).map(|bwrap| 0.8 * bwrap),
        ),
        at_most(
            "exec in a living sandbox: p50 ≤ 1.5 × fork+exec + 0.5 ms",
            exec.p50(COFFERDAM),
            exec.p50(FORK_EXEC).map(|fork| 1.5 * fork + 0.5e-3),
        ),
        at_most(
            "`cofferdam exec -- true` ≤ 2 × `bwrap … true`",
            whole.p50(COFFERDAM),
            whole.p50(BWRAP).map(|bwrap| 2.0 * bwrap),
        ),
        output("output to /dev/null ≥ 0.4 × `cmd \\| cat`", TO_NULL),
        output("output into a pipe ≥ 0.4 × `cmd \\| cat`", TO_PIPE),
        bytes("idle sandbox: PSS ≤ 1.5 MB", median(&idle.pss), 1.5e6),
        bytes("idle sandbox: MemAvailable falls by ≤ 3 MB", fall, 3e6),
        Target {
            promise: "1,000 alive at once, each answering (24 GiB, 2 cores)",
            measured: format!("{} of {} alive", thousand.alive, thousand.asked),
            bound: "all".to_owned(),
            ratio: Some(thousand.alive as f64 / thousand.asked as f64),
            // A quick run does not ask for so many.
            met: (thousand.asked >= 1000).then_some(all_alive),
        },
    ]
}

const JOBS_PER_SECOND: f64 = 150.0;

fn judge_server(measured: &ServerMeasured) -> Vec<Target> {
    let ServerMeasured { submissions, whole_jobs, first_output, readers, queue, restart, download, .. } = measured;
    let at_least = |promise, unit, measured, bound| compare(promise, unit, Bound::AtLeast, measured, bound);
    let at_most = |promise, measured, bound| compare(promise, Unit::Seconds, Bound::AtMost, measured, Some(bound));
    // A quick run is not held to what is promised of many.
    let only_of = |is_whole: bool, target: Target| Target { met: target.met.filter(|_| is_whole), ..target };
    let slowest = |section: &Section| {
        section.rows.iter().filter_map(|row| Some(row.outcome.as_ref().ok()?.quantile(1.0))).reduce(f64::max)
    };
    let asking = queue.times.rows.first().and_then(|row| Some(row.outcome.as_ref().ok()?.p99()));
    let rate = submissions.rates.p50(COFFERDAM);
    vec![
        at_least(
            "`POST /schedule`, durable ≥ 5,000/s (2 cores, the load on the same)",
            Unit::PerSecond,
            rate,
            Some(5e3),
        ),
        at_least(
            "`POST /schedule` ≥ 5 × FastAPI, equally durable",
            Unit::PerSecond,
            rate,
            submissions.yardstick().map(|theirs| 5.0 * theirs),
        ),
        Target {
            measured: format!("{}, {} failed", Unit::PerSecond.show(whole_jobs.rate), whole_jobs.failed),
            met: Some(whole_jobs.rate >= JOBS_PER_SECOND && whole_jobs.failed == 0),
            ..at_least("whole jobs ≥ 150/s, none fails", Unit::PerSecond, Some(whole_jobs.rate), Some(JOBS_PER_SECOND))
        },
        at_most("schedule → first output seen: p50 ≤ 15 ms", first_output.p50(FIRST_OUTPUT), 15e-3),
        Target {
            promise: "1,000 readers of a busy job get every event once, in order",
            measured: format!("{} of {}", readers.complete, readers.asked),
            bound: "all".to_owned(),
            ratio: Some(readers.complete as f64 / readers.asked as f64),
            met: (readers.asked >= 1000).then_some(readers.complete == readers.asked),
        },
        only_of(queue.waiting >= 10_000, at_most("`GET /status` with 10,000 waiting: p99 ≤ 20 ms", asking, 20e-3)),
        only_of(
            restart.jobs >= 100_000,
            at_most("restart with 100,000 finished jobs: ready in ≤ 1 s, always", slowest(&restart.times), 1.0),
        ),
        at_least(
            "zip of a workspace ≥ 1.0 × Info-ZIP",
            Unit::BytesPerSecond,
            download.speeds.p50(COFFERDAM),
            download.speeds.p50(INFO_ZIP),
        ),
    ]
}
