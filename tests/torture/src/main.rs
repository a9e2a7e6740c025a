//! `make torture`: many kills, with a line for every fifty and a table at the end.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Parser;
use cofferdam_torture::load::Counts;
use cofferdam_torture::{Options, run};

const PROGRESS_EVERY: u64 = 50;

/// Kills a working server again and again and checks that nothing was lost, doubled or left behind.
#[derive(Debug, Parser)]
struct Arguments {
    #[arg(long, default_value_t = 1_000)]
    kills: u64,
    /// How many use the server at once
    #[arg(long, default_value_t = 8)]
    people: usize,
    /// Of an earlier run, to draw the same numbers again
    #[arg(long)]
    seed: Option<u64>,
    /// Kept, for a look at what went wrong; a temporary one if it is not given
    #[arg(long)]
    data: Option<PathBuf>,
    /// Starts a server when --listen and --data are added, such as: cofferdam serve
    #[arg(trailing_var_arg = true)]
    server: Vec<OsString>,
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let seed = match arguments.seed {
        Some(seed) => seed,
        None => getrandom::u64().map_err(std::io::Error::other)?,
    };
    println!("seed {seed}");
    let temporary = tempfile::tempdir()?;
    let mut command = arguments.server;
    if command.is_empty() {
        let own = std::env::current_exe()?;
        command.push(own.parent().context("a program is in a directory")?.join("torture-server").into());
    }
    let summary = run(Options {
        command,
        data: arguments.data.unwrap_or_else(|| temporary.path().join("data")),
        kills: arguments.kills,
        people: arguments.people,
        seed,
        progress: |kill, counts: &Counts| {
            if kill % PROGRESS_EVERY == 0 {
                println!("{kill} kills, {} jobs, {} steps", counts.jobs, counts.steps);
            }
        },
    })
    .await?;
    print!("{summary}");
    if !summary.wrong.is_empty() {
        bail!("{} things are wrong; seed {seed}", summary.wrong.len());
    }
    Ok(())
}
