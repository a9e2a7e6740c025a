//! Commands: the command line as a whole process, a command in a sandbox that lives already, and output in bulk.

use std::process::Command;
use std::time::Instant;

use anyhow::{Result, ensure};

use crate::bench::{Bench, COFFERDAM, Turns, new_id, request};
use crate::peers::{FORK_EXEC, TRUE, time_whole};
use crate::stats::{Section, Unit};

pub const PLAIN_PIPE: &str = "head | cat, no sandbox";
pub const TO_NULL: &str = "cofferdam exec to /dev/null";
pub const TO_PIPE: &str = "cofferdam exec | cat";

/// `cofferdam exec -- true` and the like, from start to end.
pub fn measure_whole(bench: &Bench) -> Result<Section> {
    let mut turns = Turns::new();
    for round in 0..bench.times(100) {
        let mut command = Command::new(&bench.program);
        command.args(["exec", "--"]).args(TRUE);
        turns.add(COFFERDAM, time_whole(command)?);
        for peer in &bench.peers {
            turns.peer(peer, round, || peer.time_whole());
        }
    }
    Ok(Section {
        title: "Run a command line and be gone",
        note: "`cofferdam exec -- /bin/true` and its peers as whole processes, from start to end.".to_owned(),
        unit: Unit::Seconds,
        rows: turns.into_rows(),
    })
}

/// `/bin/true` in a sandbox that lives.
pub async fn measure_exec(bench: &Bench) -> Result<Section> {
    let mut turns = Turns::new();
    let sandbox = bench.runtime.launch(&bench.spec, None).await?;
    for round in 0..bench.times(300) {
        let start = Instant::now();
        sandbox.client().run(&new_id(), &request(&TRUE)).await?;
        turns.add(COFFERDAM, start.elapsed());
        let peer = bench.peer(FORK_EXEC);
        turns.peer(peer, round, || tokio::task::block_in_place(|| peer.time_whole()));
    }
    sandbox.destroy().await?;
    Ok(Section {
        title: "A command in a living sandbox",
        note: "`/bin/true`, from the request until its exit status is there.".to_owned(),
        unit: Unit::Seconds,
        rows: turns.into_rows(),
    })
}

/// Two gigabytes of output through the command line.
pub fn measure_throughput(bench: &Bench) -> Result<Section> {
    let bytes: u64 = if bench.quick { 256 << 20 } else { 2 << 30 };
    let program = bench.program.display();
    let head = format!("head -c {bytes} /dev/zero");
    let lines = [
        (PLAIN_PIPE, format!("{head} | cat > /dev/null")),
        (TO_NULL, format!("'{program}' exec -- {head} > /dev/null")),
        (TO_PIPE, format!("'{program}' exec -- {head} | cat > /dev/null")),
    ];
    let mut turns = Turns::new();
    for _ in 0..bench.times(5) {
        for (name, line) in &lines {
            let start = Instant::now();
            let status = Command::new("sh").args(["-c", line]).stdin(std::process::Stdio::null()).status()?;
            ensure!(status.success(), "{line}: {status}");
            turns.add_value(name, bytes as f64 / start.elapsed().as_secs_f64());
        }
    }
    Ok(Section {
        title: "Output in bulk",
        note: format!("`{head}`, the time of the whole process included."),
        unit: Unit::BytesPerSecond,
        rows: turns.into_rows(),
    })
}
