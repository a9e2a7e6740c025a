//! Ends all processes of one command, daemons included. They are known by the UTS namespace that the spawner gave
//! the command, which every descendant inherits and none can leave.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, Mode, OFlags};

use crate::sys;
use crate::usage::process_ids;

/// Each pass kills all that it sees; a pass that sees nothing is the end. A fork bomb can outrun a few passes, not
/// this many: every one of them stops its processes before it kills them.
const PASSES_MAX: usize = 200;

/// True when nothing with this mark is left.
pub async fn end(processes: &OwnedFd, tag: u64) -> bool {
    for pass in 0..PASSES_MAX {
        let members = members(processes, tag);
        if members.is_empty() {
            return true;
        }
        // Stopped first, so that none forks while its siblings are being killed; killing includes the stopped.
        for signal in [libc::SIGSTOP, libc::SIGKILL] {
            for member in &members {
                let _ = sys::send_signal(member.as_fd(), signal);
            }
        }
        if pass < 3 {
            tokio::task::yield_now().await;
        } else {
            // The kernel needs a moment to take them away.
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    }
    false
}

/// Open directories of /proc, which stand for their process and never for a later one with the same number.
fn members(processes: &OwnedFd, tag: u64) -> Vec<OwnedFd> {
    let belongs = |pid: u32| {
        if pid == 1 {
            return None;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let process = rustix::fs::openat(processes, pid.to_string(), flags, Mode::empty()).ok()?;
        match rustix::fs::statat(&process, "ns/uts", AtFlags::empty()) {
            Ok(found) if found.st_ino == tag => Some(process),
            Ok(_) => None,
            // No namespace: it has ended and waits to be reaped. Unreadable: it has hidden itself (a program that
            // may be executed but not read), and is taken along.
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::SRCH) => None,
            Err(_) => Some(process),
        }
    };
    process_ids(processes).into_iter().filter_map(belongs).collect()
}
