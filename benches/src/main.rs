//! Measures Cofferdam beside its peers in one run and writes `benchmarks.md` and its charts: first sandboxes, then the
//! job server. This file owns the order of the sections and the files written; what is measured how stands in the
//! section's own file.

mod bench;
mod chart;
mod commands;
mod crowd;
mod machine;
mod peers;
mod processes;
mod report;
mod server;
mod start;
mod stats;
mod targets;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use clap::{Parser, ValueEnum};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use bench::Bench;
use targets::{Measured, SandboxMeasured};

/// Measure Cofferdam beside its peers and write benchmarks.md and its charts
#[derive(Debug, Parser)]
struct Arguments {
    /// Few repetitions: shows that everything works, not how fast it is
    #[arg(long)]
    quick: bool,
    /// Measure one half
    #[arg(long, value_name = "HALF")]
    only: Option<Half>,
    /// Where the files go
    #[arg(long, value_name = "DIR", default_value = "docs")]
    out: PathBuf,
    /// The command line to measure; the one built beside this program if it is not named
    #[arg(long, value_name = "FILE")]
    cofferdam: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Half {
    Sandbox,
    Server,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    // A thousand sandboxes hold several descriptors each, and a thousand readers one on either side.
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })
        .context("raising the limit of open files")?;
    let mut facts = machine::facts();
    let program = match arguments.cofferdam {
        Some(program) => program,
        None => std::env::current_exe()?.with_file_name("cofferdam"),
    };
    let mut measured = Measured { sandbox: None, server: None };
    if arguments.only != Some(Half::Server) {
        let (peers, sandbox) = measure_sandboxes(&program, arguments.quick)?;
        facts.extend(peers);
        measured.sandbox = Some(sandbox);
    }
    if arguments.only != Some(Half::Sandbox) {
        let server = server::measure(&program, arguments.quick)?;
        facts.extend(server.facts.iter().cloned());
        measured.server = Some(server);
    }
    std::fs::create_dir_all(&arguments.out)?;
    let write = |name: &str, content: String| {
        let path = arguments.out.join(name);
        std::fs::write(&path, content).with_context(|| format!("writing {}", path.display()))?;
        eprintln!("wrote {}", path.display());
        anyhow::Ok(())
    };
    write("benchmarks.md", report::markdown(&facts, &measured))?;
    if let Some(SandboxMeasured { start, burst, whole, exec, .. }) = &measured.sandbox {
        write(report::SANDBOX_CHART, chart::svg(&[&start.cold, &start.pool, burst, whole, exec]))?;
    }
    if let Some(server) = &measured.server {
        write(report::SERVER_CHART, chart::svg(&server.charted()))?;
    }
    Ok(())
}

/// The versions of the peers, and what was measured.
fn measure_sandboxes(program: &Path, quick: bool) -> Result<(Vec<(&'static str, String)>, SandboxMeasured)> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let program = program.to_owned();
    runtime.block_on(async move {
        // In a task: a future that the main thread drives is woken across threads for every event.
        tokio::spawn(async move {
            let bench = Arc::new(Bench::new(program, quick)?);
            let measured = measure(&bench).await?;
            let peers =
                bench.peers.iter().map(|peer| (peer.name, peer.version.clone().unwrap_or_else(|absent| absent)));
            Ok((peers.collect(), measured))
        })
        .await?
    })
}

async fn measure(bench: &Arc<Bench>) -> Result<SandboxMeasured> {
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
    Ok(SandboxMeasured { start, burst, whole, exec, throughput, idle, thousand })
}
