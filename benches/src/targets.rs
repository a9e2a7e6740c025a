//! The project's promises about speed, each as a bound made of what was measured beside it in the same run.

use crate::bench::COFFERDAM;
use crate::commands::{PLAIN_PIPE, TO_NULL, TO_PIPE};
use crate::crowd::{IdleMemory, Thousand};
use crate::peers::{BWRAP, FORK_EXEC};
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

#[derive(Debug)]
pub struct Measured {
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
    let Measured { start, burst, whole, exec, throughput, idle, thousand } = measured;
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
