//! Limits: each is kept, and each says that it was the reason.

use cofferdam_protocol::Limits;
use cofferdam_protocol::exec::{ExecOutcome, LimitHit};
use cofferdam_protocol::limits::MIB;
use cofferdam_sandbox::local::{Sandbox, SandboxSpec, Workspace};

use crate::support::{Texts, sh, with};

async fn limited(assignments: &[&str]) -> Sandbox {
    let mut limits = Limits::default();
    assignments.iter().for_each(|assignment| limits.set(assignment).unwrap());
    with(SandboxSpec { limits, ..SandboxSpec::default() }).await
}

#[tokio::test]
async fn memory() {
    let sandbox = limited(&["memory=64MiB"]).await;
    let finished = sh(&sandbox, "python3 -c 'x = bytearray(400_000_000); import time; time.sleep(60)'").await;
    let killed = ExecOutcome::Killed { by: LimitHit::Memory { limit_bytes: 64 * MIB } };
    assert_eq!(finished.status.outcome, Some(killed.clone()));
    assert_eq!(killed.to_string(), "killed: memory limit 64 MiB reached");
    let after = sh(&sandbox, "echo still here").await;
    assert_eq!(after.stdout_text(), "still here\n", "{:?}", after.status);
    sandbox.destroy().await.unwrap();
}

#[tokio::test]
async fn processes() {
    let sandbox = limited(&["processes=20"]).await;
    let bomb = "import os, sys\nmade = 0\ntry:\n  for _ in range(100):\n    if os.fork() == 0:\n      import signal; signal.pause()\n    made += 1\nexcept OSError as error:\n  print(made, error.errno, flush=True)\nos.kill(-1, 9)";
    let finished = sh(&sandbox, &format!("python3 -c '{bomb}'")).await;
    let text = finished.stdout_text();
    let made: u32 = text.split(' ').next().unwrap().parse().unwrap();
    assert!((10..=20).contains(&made) && text.ends_with("11\n"), "{text}");
    sandbox.destroy().await.unwrap();
}

#[tokio::test]
async fn open_files_and_file_sizes() {
    let sandbox = limited(&["files=64", "tmp=16MiB"]).await;
    let script = "python3 -c 'import os\ntry:\n  while True: os.dup(0)\nexcept OSError as error: print(error.strerror)'; ulimit -n; ulimit -Hn";
    assert_eq!(sh(&sandbox, script).await.stdout_text(), "Too many open files\n64\n64\n");
    let filled = sh(&sandbox, "head -c 100M /dev/zero > /tmp/big; stat -c %s /tmp/big; rm /tmp/big").await;
    assert!(filled.stderr_text().contains("No space left on device"), "{}", filled.stderr_text());
    let size: u64 = filled.stdout_text().trim().parse().unwrap();
    assert!((15 * MIB..=16 * MIB).contains(&size), "{size}");
    // Empty files cost as well: their number is bounded by the same figure.
    let inodes = sh(&sandbox, "cd /tmp && seq 1 10000 | xargs touch 2>/dev/null; ls | wc -l").await.stdout_text();
    assert!(inodes.trim().parse::<u64>().unwrap() < 4096, "{inodes}");
    sandbox.destroy().await.unwrap();
}

#[tokio::test]
async fn a_workspace_in_memory() {
    let sandbox = limited(&["workspace=8MiB"]).await;
    let filled = sh(&sandbox, "head -c 100M /dev/zero > big; stat -c %s big").await;
    assert!(filled.stderr_text().contains("No space left on device"), "{}", filled.stderr_text());
    assert!(filled.stdout_text().trim().parse::<u64>().unwrap() <= 8 * MIB);
    sandbox.destroy().await.unwrap();
}

#[tokio::test]
async fn a_workspace_that_is_a_directory() {
    let directory = tempfile::tempdir().unwrap();
    let mut limits = Limits::default();
    limits.set("workspace=8MiB").unwrap();
    let workspace = Workspace::Directory(directory.path().to_owned());
    let sandbox = with(SandboxSpec { workspace, limits, ..SandboxSpec::default() }).await;
    // In a directory that its owner may not read, which must not hide it.
    let script = "mkdir d; cd d; chmod 300 .; for n in 1 2 3 4; do head -c 4M /dev/zero > big$n; done; sleep 60";
    let finished = sh(&sandbox, script).await;
    let killed = ExecOutcome::Killed { by: LimitHit::Workspace { limit_bytes: 8 * MIB } };
    assert_eq!(finished.status.outcome, Some(killed.clone()));
    assert_eq!(killed.to_string(), "killed: workspace limit 8 MiB reached");
    sh(&sandbox, "chmod 700 d").await;
    sandbox.destroy().await.unwrap();
}

#[tokio::test]
async fn usage_is_measured() {
    let sandbox = limited(&[]).await;
    sh(&sandbox, "python3 -c 'sum(range(20_000_000))'").await;
    sh(&sandbox, "sleep 1000 >/dev/null 2>&1 &").await;
    let usage = sandbox.client().usage().await.unwrap();
    assert!(usage.cpu_ms >= 50, "{usage:?}");
    assert!(usage.memory_bytes > 0 && usage.memory_peak_bytes >= usage.memory_bytes, "{usage:?}");
    assert_eq!(usage.processes, 1, "{usage:?}");
    sandbox.destroy().await.unwrap();
}

#[tokio::test]
async fn processor_time() {
    if !crate::support::runtime().limits_cpu() {
        return; // `doctor` says so, and the command line when asked for it.
    }
    let sandbox = limited(&["cpu=0.2"]).await;
    let script =
        "import time, os\nbegan = time.time()\nwhile time.time() - began < 1: pass\nprint(sum(os.times()[:2]))";
    let used: f64 = sh(&sandbox, &format!("python3 -c '{script}'")).await.stdout_text().trim().parse().unwrap();
    // A fifth of a second, and what a busy machine's accounting adds to it; without the limit it is a whole one.
    assert!(used < 0.5, "{used} s of processor time in one second");
    sandbox.destroy().await.unwrap();
}
