//! Limits that no kernel counts for us here: memory where there is no control group, and the size of a workspace
//! that is a plain directory of the host's. Looked at from time to time, only while a command runs, and therefore
//! approximate; `doctor` says so.

use std::rc::{Rc, Weak};
use std::time::{Duration, Instant};

use cofferdam_linux::files::Workspace;
use cofferdam_protocol::exec::LimitHit;

use super::Shared;
use super::run::Exec;
use crate::usage::estimated_memory_bytes;

/// Memory can be filled at gigabytes a second; a look costs some microseconds per process.
const MEMORY_INTERVAL: Duration = Duration::from_millis(50);
/// The first look at a workspace; then as often as costs a twentieth of the time.
const WORKSPACE_INTERVAL: Duration = Duration::from_millis(250);
const WORKSPACE_SHARE: u32 = 20;
/// The longest look; what was counted by then is what there is at least.
const WORKSPACE_LOOK: Duration = Duration::from_secs(10);

/// Watches on behalf of one command, for as long as it runs.
pub fn begin(shared: &Rc<Shared>, exec: &Rc<Exec>) {
    if !shared.inside.cgroup.limits_memory() {
        tokio::task::spawn_local(watch_memory(shared.clone(), Rc::downgrade(exec)));
    }
    if !shared.inside.temporary_workspace {
        tokio::task::spawn_local(watch_workspace(shared.clone(), Rc::downgrade(exec)));
    }
}

async fn watch_memory(shared: Rc<Shared>, exec: Weak<Exec>) {
    let limit_bytes = shared.inside.limits.memory_bytes;
    loop {
        tokio::time::sleep(MEMORY_INTERVAL).await;
        let Some(exec) = exec.upgrade().filter(|exec| exec.is_running()) else { return };
        let used = estimated_memory_bytes(&shared.inside.processes);
        shared.memory_peak.set(shared.memory_peak.get().max(used));
        if used > limit_bytes {
            return exec.kill_for(LimitHit::Memory { limit_bytes }).await;
        }
    }
}

async fn watch_workspace(shared: Rc<Shared>, exec: Weak<Exec>) {
    let limit_bytes = shared.inside.limits.workspace_bytes;
    let mut interval = WORKSPACE_INTERVAL;
    loop {
        tokio::time::sleep(interval).await;
        let Some(exec) = exec.upgrade().filter(|exec| exec.is_running()) else { return };
        let Ok(directory) = shared.inside.workspace.try_clone() else { return };
        let began = Instant::now();
        // On a thread of its own: a workspace may hold a million files.
        let used = tokio::task::spawn_blocking(move || Workspace::from_fd(directory).usage(WORKSPACE_LOOK)).await;
        interval = WORKSPACE_INTERVAL.max(began.elapsed() * WORKSPACE_SHARE);
        if used.is_ok_and(|used| used.is_ok_and(|used| used.bytes > limit_bytes)) {
            return exec.kill_for(LimitHit::Workspace { limit_bytes }).await;
        }
    }
}
