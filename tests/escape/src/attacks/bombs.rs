//! Using things up. Each has a sandbox of its own with small limits; afterwards that sandbox must still answer and
//! start a command, and nothing of the bomb may be left.

use std::fs;
use std::time::{Duration, Instant};

use cofferdam_protocol::exec::{ExecOutcome, ExecRequest, LimitHit};
use cofferdam_protocol::limits::{Limits, MIB};
use cofferdam_sandbox::local::{Sandbox, SandboxSpec, Workspace};

use crate::attack::{Attack, Finding, HARMFUL, Outside, Scene};
use crate::stage::{Stage, line, new_id};
use crate::verdict::Category;

const fn scene(name: &'static str, description: &'static str, scene: Scene) -> Attack {
    Attack::scene(Category::Bombs, name, description, scene, HARMFUL)
}

pub(super) const ATTACKS: &[Attack] = &[
    scene("fork-bomb", "3,000 forks where 64 processes are allowed", |stage| {
        Box::pin(small(stage, &["fork-bomb", "3000", "64"]))
    }),
    scene("thread-bomb", "3,000 threads where 64 are allowed", |stage| {
        Box::pin(small(stage, &["thread-bomb", "3000", "64"]))
    }),
    scene("fork-daemons", "processes that multiply and leave their session, until time is up", |stage| {
        Box::pin(ended_by_time(stage, &["fork-daemons", "15"]))
    }),
    scene("memory-bomb", "256 MiB where 64 are allowed", |stage| Box::pin(memory(stage, "private"))),
    scene("shared-memory-bomb", "the same in memory that processes share", |stage| Box::pin(memory(stage, "shared"))),
    scene("memory-file-bomb", "the same in files that nobody has mapped", |stage| Box::pin(memory(stage, "file"))),
    scene("tmp-bomb", "64 MiB into a /tmp of 16", |stage| Box::pin(small(stage, &["fill", "/tmp/bomb", "64", "16"]))),
    scene("shared-memory-file-bomb", "64 MiB into /dev/shm, which is the same 16", |stage| {
        Box::pin(small(stage, &["fill", "/dev/shm/bomb", "64", "16"]))
    }),
    scene("inode-bomb", "50,000 empty files in /tmp", |stage| {
        Box::pin(small(stage, &["make-files", "/tmp", "50000", "4096"]))
    }),
    scene("workspace-bomb", "64 MiB into a workspace of 16, in memory", |stage| {
        Box::pin(small(stage, &["fill", "/workspace/bomb", "64", "16"]))
    }),
    scene("workspace-directory-bomb", "64 MiB into a directory of the host's with 16 allowed", |stage| {
        Box::pin(workspace_directory(stage))
    }),
    scene("descriptor-bomb", "10,000 open files where 256 are allowed", |stage| {
        Box::pin(small(stage, &["open-files", "10000", "256"]))
    }),
    scene("output-bomb", "200 MiB of output that nobody reads", |stage| Box::pin(output(stage))),
    scene("zombies", "2,000 ended orphans", |stage| Box::pin(zombies(stage))),
    Attack::scene(
        Category::Bombs,
        "ignore-signals",
        "ignores every signal when its time is up",
        |stage| Box::pin(ended_by_time(stage, &["ignore-signals"])),
        Outside::Never("nobody ends it there"),
    ),
    scene("daemon", "forks twice and leaves its session before its time is up", |stage| {
        Box::pin(ended_by_time(stage, &["daemon"]))
    }),
];

fn limits() -> Limits {
    Limits {
        processes: 64,
        open_files: 256,
        memory_bytes: 256 * MIB,
        tmp_bytes: 16 * MIB,
        workspace_bytes: 16 * MIB,
        ..Limits::default()
    }
}

async fn with_limits(stage: &Stage<'_>, limits: Limits) -> Result<Sandbox, String> {
    stage.launch(&SandboxSpec { limits, ..SandboxSpec::default() }).await
}

async fn destroy(sandbox: Sandbox) -> Result<(), String> {
    sandbox.destroy().await.map_err(|error| error.to_string())
}

/// A bomb that finds its bound by itself.
async fn small(stage: &Stage<'_>, act: &[&str]) -> Finding {
    let sandbox = with_limits(stage, limits()).await?;
    let said = stage.judge(&sandbox, &stage.request(act)).await?;
    nothing_left(&sandbox).await?;
    destroy(sandbox).await?;
    Ok(said)
}

/// Processes that have been killed take a moment to go.
async fn nothing_left(sandbox: &Sandbox) -> Result<(), String> {
    let mut left = 0;
    for _ in 0..500 {
        left = sandbox.client().usage().await.map_err(|error| error.to_string())?.processes;
        if left == 0 {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Err(format!("{left} processes are left"))
}

/// Killed for it, or refused it: either is a limit that holds.
async fn memory(stage: &Stage<'_>, kind: &str) -> Finding {
    let limits = Limits { memory_bytes: 64 * MIB, ..Limits::default() };
    let sandbox = with_limits(stage, limits).await?;
    let finished = stage.act(sandbox.client(), &stage.request(&["memory-bomb", kind, "256"])).await?;
    let said = match &finished.status.outcome {
        Some(outcome @ ExecOutcome::Killed { by: LimitHit::Memory { .. } }) => outcome.to_string(),
        _ => line(&finished)?,
    };
    stage.look_around(&sandbox, &finished.stdout).await?;
    nothing_left(&sandbox).await?;
    destroy(sandbox).await?;
    Ok(said)
}

async fn workspace_directory(stage: &Stage<'_>) -> Finding {
    let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
    let spec = SandboxSpec {
        workspace: Workspace::Directory(directory.path().to_owned()),
        limits: limits(),
        ..SandboxSpec::default()
    };
    let sandbox = stage.launch(&spec).await?;
    let finished = stage.act(sandbox.client(), &stage.request(&["fill", "bomb", "64", "16"])).await?;
    let said = match &finished.status.outcome {
        Some(outcome @ ExecOutcome::Killed { by: LimitHit::Workspace { .. } }) => outcome.to_string(),
        _ => line(&finished)?,
    };
    for number in 0..16 {
        let _ = sandbox.client().remove(format!("bomb-{number}").as_bytes(), false).await;
    }
    stage.look_around(&sandbox, &finished.stdout).await?;
    destroy(sandbox).await?;
    Ok(said)
}

/// The guest keeps what it may and lets the command wait for the rest; it can be killed all the same.
async fn output(stage: &Stage<'_>) -> Finding {
    const GUEST_MAX_BYTES: u64 = 32 * MIB;
    let sandbox = with_limits(stage, limits()).await?;
    let guest = sandbox.guest_pid().ok_or("the guest has no number")?;
    let id = new_id();
    let request = ExecRequest { timeout_ms: 0, ..stage.request(&["print", "200"]) };
    // Asked for and never read.
    let stream = sandbox.client().exec(&id, &request, 0, true).await.map_err(|error| error.to_string())?;
    let control = sandbox.connect().await.map_err(|error| error.to_string())?;
    let (mut end, mut same, mut largest) = (0, 0, 0);
    // Until it has stopped growing: fifty looks in a row.
    while same < 50 {
        let now = control.status(&id).await.map_err(|error| error.to_string())?.output_end;
        same = if now == end { same + 1 } else { 0 };
        end = now;
        largest = largest.max(resident_bytes(guest));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    if end >= 200 * MIB {
        return Err(format!("{end} bytes were kept"));
    }
    if largest > GUEST_MAX_BYTES {
        return Err(format!("the guest grew to {} MiB", largest / MIB));
    }
    control.kill(&id).await.map_err(|error| error.to_string())?;
    nothing_left(&sandbox).await?;
    let began = Instant::now();
    while control.status(&id).await.map_err(|error| error.to_string())?.outcome.is_none() {
        if began.elapsed() > Duration::from_secs(3) {
            return Err("killed, it is still said to run: its end waits for a reader".to_owned());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    drop(stream);
    stage.look_around(&sandbox, &[]).await?;
    destroy(sandbox).await?;
    Ok(format!("waits at {} MiB, the guest has {} MiB", end / MIB, largest / MIB))
}

fn resident_bytes(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
}

async fn zombies(stage: &Stage<'_>) -> Finding {
    let sandbox = with_limits(stage, Limits::default()).await?;
    let said = stage.judge(&sandbox, &stage.request(&["zombies", "2000"])).await?;
    nothing_left(&sandbox).await?;
    destroy(sandbox).await?;
    Ok(said)
}

/// Given a second; ended then, with everything it has started.
async fn ended_by_time(stage: &Stage<'_>, act: &[&str]) -> Finding {
    let sandbox = with_limits(stage, limits()).await?;
    let began = Instant::now();
    let request = ExecRequest { timeout_ms: 700, ..stage.request(act) };
    let finished = stage.act(sandbox.client(), &request).await?;
    let took = began.elapsed();
    match &finished.status.outcome {
        Some(ExecOutcome::Killed { by: LimitHit::Time { .. } }) if took < Duration::from_secs(8) => {}
        other => return Err(format!("after {took:?} it ended with {other:?}")),
    }
    nothing_left(&sandbox).await?;
    stage.look_around(&sandbox, &finished.stdout).await?;
    destroy(sandbox).await?;
    Ok(format!("ended after {} ms, nothing is left", took.as_millis()))
}
