//! Measures Cofferdam beside its peers in one run and writes `benchmarks.md` and `benchmarks.svg`. This file owns
//! the order of the sections and the files written; what is measured how stands in the section's own file.

mod bench;
mod chart;
mod commands;
mod crowd;
mod machine;
mod peers;
mod processes;
mod report;
mod start;
mod stats;
mod targets;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use clap::Parser;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use bench::Bench;
use targets::Measured;

/// Measure Cofferdam beside its peers and write benchmarks.md and benchmarks.svg
#[derive(Debug, Parser)]
struct Arguments {
    /// Few repetitions: shows that everything works, not how fast it is
    #[arg(long)]
    quick: bool,
    /// Where the two files go
    #[arg(long, value_name = "DIR", default_value = "docs")]
    out: PathBuf,
    /// The command line to measure; the one built beside this program if it is not named
    #[arg(long, value_name = "FILE")]
    cofferdam: Option<PathBuf>,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    // A thousand sandboxes hold several descriptors each.
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })
        .context("raising the limit of open files")?;
    let facts = machine::facts();
    let program = match arguments.cofferdam {
        Some(program) => program,
        None => std::env::current_exe()?.with_file_name("cofferdam"),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let (bench, measured) = runtime.block_on(async move {
        // In a task: a future that the main thread drives is woken across threads for every event.
        tokio::spawn(async move {
            let bench = Arc::new(Bench::new(program, arguments.quick)?);
            let measured = measure(&bench).await?;
            anyhow::Ok((bench, measured))
        })
        .await?
    })?;
    let targets = targets::judge(&measured);
    let markdown = report::markdown(&facts, &bench.peers, &measured, &targets);
    let times = [&measured.start.cold, &measured.start.pool, &measured.burst, &measured.whole, &measured.exec];
    let chart = chart::svg(&times);
    std::fs::create_dir_all(&arguments.out)?;
    for (name, content) in [("benchmarks.md", markdown), ("benchmarks.svg", chart)] {
        let path = arguments.out.join(name);
        std::fs::write(&path, content).with_context(|| format!("writing {}", path.display()))?;
        eprintln!("wrote {}", path.display());
    }
    Ok(())
}

async fn measure(bench: &Arc<Bench>) -> Result<Measured> {
    let began = Instant::now();
    let say = |what: &str| eprintln!("{:6.1} s  {what}", began.elapsed().as_secs_f64());
    say("create, take from the pool, destroy");
    let start = start::measure(bench).await?;
    say("fifty at once");
    let burst = crowd::measure_burst(bench).await?;
    say("whole processes");
    let whole = tokio::task::block_in_place(|| commands::measure_whole(bench))?;
    say("commands in a living sandbox");
    let exec = commands::measure_exec(bench).await?;
    say("output in bulk");
    let throughput = tokio::task::block_in_place(|| commands::measure_throughput(bench))?;
    say("memory of idle sandboxes");
    let idle = crowd::measure_idle(bench).await?;
    say("a thousand alive");
    let thousand = crowd::measure_thousand(bench).await?;
    say("done");
    Ok(Measured { start, burst, whole, exec, throughput, idle, thousand })
}
