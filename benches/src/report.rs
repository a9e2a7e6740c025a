//! `docs/benchmarks.md`: the machine, the promises and whether they were kept, every table. The judging is `targets`'.

use std::fmt::Write;

use crate::crowd::{CROWD, IdleMemory, Thousand};
use crate::server::ServerMeasured;
use crate::stats::{Row, Samples, Section, Table, Unit};
use crate::targets::{Measured, SandboxMeasured, judge};

/// Beside the report.
pub const SANDBOX_CHART: &str = "benchmarks.svg";
pub const SERVER_CHART: &str = "benchmarks-server.svg";

const HEAD: &str = "# Benchmarks

Written by `make bench` (`cargo run --release -p cofferdam-bench`); do not edit. As root all rows can be measured;
without it memory in use by a sandbox cannot be read.

Everything is measured in one run on one machine, and what is compared takes turns (A B C A B C …), so that the
machine's noise hits all alike. Read the ratios: they carry over to other machines better than the milliseconds do.
";

const SANDBOX_HEAD: &str = "
## Sandboxes

fork+exec is the floor that no sandbox can go below; bwrap makes comparable namespaces and neither sets limits nor
filters system calls by itself.
";

const SERVER_HEAD: &str = "
## The job server

`cofferdam serve`, asked over HTTP from the same machine, which shares its cores with the load. Each load has a server
of its own, on fresh data on a disk; “durable” is an fsync, whose time on this disk stands above. The other server is
`benches/yardstick/server.py`: FastAPI with a directory for each task, whose files are synced before the answer.
";

pub fn markdown(facts: &[(&str, String)], measured: &Measured) -> String {
    let mut text = HEAD.to_owned();
    text.push_str("\n## Machine\n\n| | |\n|---|---|\n");
    for (name, value) in facts {
        line(&mut text, &[name, value]);
    }
    text.push_str("\n## Targets\n\n| Target | Measured | Bound | Measured ÷ bound | |\n|---|---:|---:|---:|---|\n");
    for target in judge(measured) {
        let ratio = target.ratio.map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.2}"));
        let met = target.met.map_or("not measured", |met| if met { "met" } else { "**missed**" });
        line(&mut text, &[target.promise, &target.measured, &target.bound, &ratio, met]);
    }
    if let Some(measured) = &measured.sandbox {
        sandboxes(&mut text, measured);
    }
    if let Some(measured) = &measured.server {
        server(&mut text, measured);
    }
    text
}

fn sandboxes(text: &mut String, measured: &SandboxMeasured) {
    text.push_str(SANDBOX_HEAD);
    chart(text, SANDBOX_CHART);
    let SandboxMeasured { start, burst, whole, exec, throughput, idle, thousand } = measured;
    for of_time in [&start.cold, &start.pool, burst, whole, exec, &start.destroy, throughput] {
        section(text, of_time);
    }
    memory(text, idle);
    many(text, thousand);
}

fn server(text: &mut String, measured: &ServerMeasured) {
    text.push_str(SERVER_HEAD);
    chart(text, SERVER_CHART);
    let ServerMeasured { submissions, whole_jobs, first_output, readers, queue, restart, download, .. } = measured;
    section(text, &submissions.rates);
    table(text, &submissions.table);
    table(text, &whole_jobs.table);
    section(text, first_output);
    table(text, &readers.table);
    section(text, &queue.times);
    table(text, &queue.table);
    section(text, &restart.times);
    section(text, &download.speeds);
    table(text, &download.table);
}

fn chart(text: &mut String, name: &str) {
    let _ = write!(text, "\n![Medians, and the 95th percentile or the slowest]({name})\n");
}

fn table(text: &mut String, table: &Table) {
    let _ = write!(text, "\n### {}\n\n{}\n\n", table.title, table.note);
    line(text, table.head);
    let _ = writeln!(text, "|---|{}", "---:|".repeat(table.head.len() - 1));
    for row in &table.rows {
        let cells: Vec<&str> = (0..table.head.len()).map(|column| row.get(column).map_or("", String::as_str)).collect();
        line(text, &cells);
    }
}

fn section(text: &mut String, section: &Section) {
    let _ = write!(text, "\n### {}\n\n{}\n\n", section.title, section.note);
    if section.unit.is_speed() {
        text.push_str("| | n | median | slowest |\n|---|---:|---:|---:|\n");
    } else {
        text.push_str("| | n | p50 | p95 | p99 |\n|---|---:|---:|---:|---:|\n");
    }
    for Row { name, outcome } in &section.rows {
        let name = &name.replace('|', "\\|");
        let show = |value| section.unit.show(value);
        match outcome {
            Ok(samples) if section.unit.is_speed() => {
                line(text, &[name, &samples.len().to_string(), &show(samples.p50()), &show(samples.quantile(0.0))]);
            }
            Ok(samples) => quantiles(text, name, samples, section.unit),
            Err(absent) if section.unit.is_speed() => line(text, &[name, absent, "", ""]),
            Err(absent) => line(text, &[name, absent, "", "", ""]),
        }
    }
}

fn quantiles(text: &mut String, name: &str, samples: &Samples, unit: Unit) {
    if samples.len() == 0 {
        return line(text, &[name, "not measured", "", "", ""]);
    }
    let [p50, p95, p99] = [samples.p50(), samples.p95(), samples.p99()].map(|value| unit.show(value));
    line(text, &[name, &samples.len().to_string(), &p50, &p95, &p99]);
}

fn memory(text: &mut String, idle: &IdleMemory) {
    let _ = write!(
        text,
        "\n### Memory of an idle sandbox\n\nPSS is that of the guest, its spawner and its reaper together; the guest's \
         program, about 1.4 MB, is shared by all {CROWD}. The fall \
         of MemAvailable while {CROWD} idle sandboxes are made, divided by {CROWD}, has the kernel's part and this \
         program's in it, and whatever else happened on the machine.\n\n\
         | | n | p50 | p95 | p99 |\n|---|---:|---:|---:|---:|\n"
    );
    quantiles(text, "PSS", &idle.pss, Unit::Bytes);
    quantiles(text, "MemAvailable", &idle.available, Unit::Bytes);
}

fn many(text: &mut String, thousand: &Thousand) {
    let Thousand { asked, alive, first_error, create, commands_run, commands_asked, destroy, available_each } =
        thousand;
    let show = |time: &std::time::Duration| format!("{:.1} s", time.as_secs_f64());
    let _ = write!(text, "\n### {asked} alive at once\n\nMade 16 at a time, all kept, all destroyed at the end.\n\n");
    text.push_str("| | |\n|---|---:|\n");
    line(text, &["alive at once", &format!("{alive} of {asked}")]);
    line(text, &["time to make them", &show(create)]);
    line(text, &["commands run in a sample of them", &format!("{commands_run} of {commands_asked}")]);
    let each = available_each.map_or_else(|| "not measured".to_owned(), |bytes| Unit::Bytes.show(bytes));
    line(text, &["fall of MemAvailable, each", &each]);
    line(text, &["time to destroy them all", &show(destroy)]);
    if let Some(error) = first_error {
        line(text, &["first failure", error]);
    }
}

fn line(text: &mut String, cells: &[&str]) {
    let _ = writeln!(text, "| {} |", cells.join(" | "));
}
