//! Ends all processes of one command, daemons included. They are known by the UTS namespace that the spawner gave
//! the command, which every descendant inherits and none can leave.

use std::convert::Infallible;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, Mode, OFlags};

use crate::sys;
use crate::usage::process_ids;

/// Each pass kills all that it sees; a pass that sees nothing is the end. A fork bomb can outrun a few passes, not
/// this many: every one of them stops its processes before it kills them.
const PASSES_MAX: usize = 200;

/// How long a command may take from its creation to its program before something is done about it; how often; and
/// when it is given up.
const NEWBORN_PATIENCE: Duration = Duration::from_millis(100);
const NEWBORN_INTERVAL: Duration = Duration::from_millis(20);
const NEWBORN_LIFETIME: Duration = Duration::from_secs(3);

/// The spawner stands still until its child has become the command. A program inside can stop that child in between,
/// and with it every later command; so it is continued, and if it is stopped again and again, ended. Never returns.
pub async fn keep_newborns_going(processes: &OwnedFd) -> Infallible {
    let began = Instant::now();
    tokio::time::sleep(NEWBORN_PATIENCE).await;
    loop {
        let signal = if began.elapsed() < NEWBORN_LIFETIME { libc::SIGCONT } else { libc::SIGKILL };
        for pid in process_ids(processes) {
            // It shares the spawner's memory, which nobody may look into; so does no program of the work, unless it
            // has hidden itself, and then it has to live with this.
            if let Some((process, Mark::Hidden)) = look(processes, pid) {
                let _ = sys::send_signal(process.as_fd(), signal);
            }
        }
        tokio::time::sleep(NEWBORN_INTERVAL).await;
    }
}

/// As long as another command is being started, a hidden process may be that one; after so many passes it is not.
const PASSES_FOR_NEWBORNS: usize = 100;

/// True when nothing with this mark is left. `spawner_turn` is taken while a command is being started.
pub async fn end(processes: &OwnedFd, tag: u64, spawner_turn: &tokio::sync::Mutex<()>) -> bool {
    // Held, so that the number of the namespace stays this command's until nothing of it is left.
    let mut pin: Option<OwnedFd> = None;
    for pass in 0..PASSES_MAX {
        let spare_hidden = pass < PASSES_FOR_NEWBORNS && spawner_turn.try_lock().is_err();
        let (members, spared) = members(processes, tag, spare_hidden);
        if members.is_empty() && !spared {
            return true;
        }
        if pin.is_none() {
            let flags = OFlags::RDONLY | OFlags::CLOEXEC;
            pin = members.iter().find_map(|member| rustix::fs::openat(member, "ns/uts", flags, Mode::empty()).ok());
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
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    false
}

/// Open directories of /proc, which stand for their process and never for a later one with the same number; and
/// whether there was one that was spared.
fn members(processes: &OwnedFd, tag: u64, spare_hidden: bool) -> (Vec<OwnedFd>, bool) {
    let (mut members, mut spared) = (Vec::new(), false);
    for pid in process_ids(processes) {
        match look(processes, pid) {
            Some((process, Mark::Tag(found))) if found == tag => members.push(process),
            Some((_, Mark::Hidden)) if spare_hidden => spared = true,
            Some((process, Mark::Hidden)) => members.push(process),
            _ => {}
        }
    }
    (members, spared)
}

enum Mark {
    Tag(u64),
    /// It has hidden itself (a program that may be executed but not read), or is not yet a program.
    Hidden,
}

/// Nothing for process 1, and for one that has ended and waits to be reaped: that has no namespace any more.
fn look(processes: &OwnedFd, pid: u32) -> Option<(OwnedFd, Mark)> {
    if pid == 1 {
        return None;
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let process = rustix::fs::openat(processes, pid.to_string(), flags, Mode::empty()).ok()?;
    match rustix::fs::statat(&process, "ns/uts", AtFlags::empty()) {
        Ok(found) => Some((process, Mark::Tag(found.st_ino))),
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::SRCH) => None,
        Err(_) => Some((process, Mark::Hidden)),
    }
}
