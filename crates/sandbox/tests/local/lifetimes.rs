//! Beginnings and ends: tied and leased sandboxes, the pool, and that nothing is left.

use std::path::Path;
use std::sync::Arc;

use cofferdam_protocol::exec::{ExecOutcome, ExecRequest};
use cofferdam_protocol::{Limits, NetworkPolicy};
use cofferdam_sandbox::SandboxError;
use cofferdam_sandbox::local::{LocalConfig, LocalRuntime, Sandbox, SandboxSpec};
use cofferdam_sandbox::pool::Pool;

use crate::support::{Texts, new_id, runtime, sandbox, sh, shell, until};

fn is_alive(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}/cmdline")).exists()
}

/// Every process that descends from the guest, as the host sees them.
fn descendants(pid: u32) -> Vec<u32> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    children
        .split_whitespace()
        .map(|child| child.parse().unwrap())
        .flat_map(|child| [vec![child], descendants(child)].concat())
        .collect()
}

fn groups_of(pid: u32) -> Vec<std::path::PathBuf> {
    let plan = match runtime().cgroup_plan() {
        Some(cofferdam_protocol::launch::CgroupPlan::V1 { memory, pids, cpu }) => {
            [memory, pids, cpu].into_iter().flatten().cloned().collect()
        }
        Some(cofferdam_protocol::launch::CgroupPlan::V2 { directory }) => vec![directory.clone()],
        None => vec![],
    };
    let entries = plan.into_iter().flat_map(std::fs::read_dir).flatten().flatten();
    entries
        .map(|entry| entry.path())
        .filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with(&format!("{pid}-")))
        .collect()
}

async fn assert_gone(pid: u32, family: Vec<u32>) {
    until(async || (!is_alive(pid) && family.iter().all(|member| !is_alive(*member))).then_some(())).await;
    assert_eq!(groups_of(pid), Vec::<std::path::PathBuf>::new());
}

#[tokio::test]
async fn a_destroyed_sandbox_leaves_nothing() {
    let sandbox = sandbox().await;
    sh(&sandbox, "setsid sleep 1000 >/dev/null 2>&1 & (sleep 1001 >/dev/null 2>&1 &)").await;
    let pid = sandbox.guest_pid().unwrap();
    let family = descendants(pid);
    assert!(family.len() >= 3, "spawner, reaper and commands: {family:?}");
    sandbox.destroy().await.unwrap();
    assert_gone(pid, family).await;
}

#[tokio::test]
async fn a_dropped_sandbox_ends_by_itself() {
    let sandbox = sandbox().await;
    let pid = sandbox.guest_pid().unwrap();
    let family = descendants(pid);
    drop(sandbox);
    assert_gone(pid, family).await;
}

#[tokio::test]
async fn a_killed_guest_takes_everything_with_it() {
    let sandbox = sandbox().await;
    let (id, request) = (new_id(), shell("sleep 1000"));
    let stream = sandbox.client().exec(&id, &request, 0, false).await.unwrap();
    let pid = sandbox.guest_pid().unwrap();
    let family = until(async || Some(descendants(pid)).filter(|family| family.len() >= 3)).await;
    rustix::process::kill_process(rustix::process::Pid::from_raw(pid as i32).unwrap(), rustix::process::Signal::KILL)
        .unwrap();
    assert!(stream.follow(|_, _| ()).await.is_err(), "its end was reported as success");
    sandbox.destroy().await.unwrap();
    assert_gone(pid, family).await;
}

#[tokio::test]
async fn commands_are_lost_with_their_sandbox_and_say_so() {
    let sandbox = sandbox().await;
    let (id, request) = (new_id(), shell("sleep 1000"));
    let stream = sandbox.client().exec(&id, &request, 0, false).await.unwrap();
    let pid = sandbox.guest_pid().unwrap();
    let family = until(async || Some(descendants(pid)).filter(|family| family.len() >= 3)).await;
    // The reaper is the one whose number inside is 1; killed from outside, as the kernel might.
    let reaper = family.iter().find(|member| {
        let status = std::fs::read_to_string(format!("/proc/{member}/status")).unwrap_or_default();
        status.lines().any(|line| line.starts_with("NSpid:") && line.ends_with("\t1"))
    });
    let reaper = rustix::process::Pid::from_raw(*reaper.unwrap() as i32).unwrap();
    rustix::process::kill_process(reaper, rustix::process::Signal::KILL).unwrap();
    let status = stream.follow(|_, _| ()).await.unwrap();
    assert!(
        matches!(&status.outcome, Some(ExecOutcome::Lost { .. } | ExecOutcome::Signalled { signal: 9 })),
        "{status:?}"
    );
    let after = until(async || {
        let status = sandbox.client().run(&new_id(), &shell("true")).await.unwrap().status;
        matches!(status.outcome, Some(ExecOutcome::Lost { .. })).then_some(status)
    });
    assert!(after.await.outcome.unwrap().to_string().contains("own processes ended"));
    sandbox.destroy().await.unwrap();
}

fn leased_runtime(state: &Path) -> LocalRuntime {
    LocalRuntime::new(&LocalConfig { state_directory: Some(state.to_owned()), ..LocalConfig::default() }).unwrap()
}

#[tokio::test]
async fn a_leased_sandbox_outlives_its_launcher_and_is_attached_to() {
    let state = tempfile::tempdir().unwrap();
    let first = leased_runtime(state.path());
    let sandbox: Sandbox = first.launch(&SandboxSpec::default(), None).await.unwrap();
    let (name, id) = (sandbox.id().to_owned(), new_id());
    let pid = sandbox.guest_pid().unwrap();
    sandbox.client().renew_lease(60_000).await.unwrap();
    let request: ExecRequest = shell("echo begun; while [ ! -e go ]; do sleep 0.01; done; echo ended");
    let mut stream = sandbox.client().exec(&id, &request, 0, true).await.unwrap();
    let mut before = Vec::new();
    while before.is_empty() {
        stream.next(|_, data| before.extend_from_slice(data)).await.unwrap();
    }
    let position = stream.position();
    drop((stream, sandbox, first));

    // A new process would do exactly this; its start sweeps, and must not sweep the living.
    let second = leased_runtime(state.path());
    assert_eq!(second.leased(), std::slice::from_ref(&name));
    let sandbox = second.attach(&name, &NetworkPolicy::None, None).await.unwrap();
    sh(&sandbox, "touch go").await;
    let stream = sandbox.client().exec(&id, &request, position, true).await.unwrap();
    let mut after = Vec::new();
    let status = stream.follow(|_, data| after.extend_from_slice(data)).await.unwrap();
    assert_eq!((before.as_slice(), after.as_slice()), (&b"begun\n"[..], &b"ended\n"[..]));
    assert_eq!(status.outcome, Some(ExecOutcome::Exited { code: 0 }));
    sandbox.destroy().await.unwrap();
    assert_gone(pid, vec![]).await;
    assert_eq!(std::fs::read_dir(state.path()).unwrap().count(), 0);
    assert!(matches!(second.attach(&name, &NetworkPolicy::None, None).await, Err(SandboxError::NotFound { .. })));
}

#[tokio::test]
async fn a_lease_that_is_not_renewed_ends_the_sandbox() {
    let state = tempfile::tempdir().unwrap();
    let runtime = leased_runtime(state.path());
    let sandbox = runtime.launch(&SandboxSpec::default(), None).await.unwrap();
    let pid = sandbox.guest_pid().unwrap();
    let family = descendants(pid);
    sandbox.client().renew_lease(300).await.unwrap();
    drop(sandbox);
    assert_gone(pid, family).await;
    assert_eq!(runtime.leased(), Vec::<String>::new());
    // What it left is swept by the next start.
    drop(leased_runtime(state.path()));
    assert_eq!(std::fs::read_dir(state.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn the_pool_hands_out_working_sandboxes_and_refills_itself() {
    let pool_runtime = Arc::new(LocalRuntime::new(&LocalConfig::default()).unwrap());
    let pool = Pool::new(pool_runtime, Limits::default(), 3);
    until(async || (pool.ready() == 3).then_some(())).await;
    let mut taken = Vec::new();
    for _ in 0..5 {
        taken.push(pool.take(&SandboxSpec::default(), None).await.unwrap());
    }
    for (number, sandbox) in taken.iter().enumerate() {
        sh(sandbox, &format!("echo {number} > mine")).await;
    }
    for (number, sandbox) in taken.into_iter().enumerate() {
        assert_eq!(sh(&sandbox, "cat mine").await.stdout_text(), format!("{number}\n"));
        sandbox.destroy().await.unwrap();
    }
    until(async || (pool.ready() == 3).then_some(())).await;
    // Other limits than the pool's are made to measure.
    let mut limits = Limits::default();
    limits.set("files=77").unwrap();
    let special = pool.take(&SandboxSpec { limits, ..SandboxSpec::default() }, None).await.unwrap();
    assert_eq!(sh(&special, "ulimit -n").await.stdout_text(), "77\n");
    special.destroy().await.unwrap();
}

#[tokio::test]
async fn many_at_once_all_succeed() {
    let launches: Vec<_> = (0..30).map(|_| tokio::spawn(async { sandbox().await })).collect();
    for launch in launches {
        let sandbox = launch.await.unwrap();
        assert_eq!(sh(&sandbox, "echo up").await.stdout_text(), "up\n");
        sandbox.destroy().await.unwrap();
    }
}
