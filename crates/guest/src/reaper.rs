//! Process 1 of the sandbox: mounts /proc (only a process inside may), then collects orphans until it is killed.
//! It reads nothing and holds nothing, so there is nothing in it to attack; when it ends, the kernel ends everything
//! in its namespace.

use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use rustix::thread::CapabilitySet;

use crate::error::{Result, Step};
use crate::{root, seal};

/// Mounts /proc, reports through `ready` (a byte, or the text of what failed), and reaps.
/// `guest` is the socket to the guest, looked at once: closed means that the guest died before it could be watched.
pub fn run(ready: OwnedFd, guest: OwnedFd) -> ! {
    close_all_but(ready.as_raw_fd(), guest.as_raw_fd());
    let mut ready = std::fs::File::from(ready);
    let prepared = prepare(guest);
    let report = match &prepared {
        Ok(()) => b"+".to_vec(),
        Err(error) => format!("{}\0{}", error.source.raw_os_error().unwrap_or(0), error.step).into_bytes(),
    };
    let _ = ready.write_all(&report);
    drop(ready);
    if prepared.is_err() {
        std::process::exit(1);
    }
    reap()
}

/// The spawner had a good deal open when it was forked, the host's root directory among it. This process can be seen
/// from inside, so it must not have it.
fn close_all_but(one: RawFd, other: RawFd) {
    let (low, high) = (one.min(other), one.max(other));
    for (first, last) in [(3, low - 1), (low + 1, high - 1), (high + 1, RawFd::MAX)] {
        if first <= last {
            // SAFETY: closes copies of descriptors whose owners are in frames that this process never returns to.
            unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
        }
    }
}

fn prepare(guest: OwnedFd) -> Result<()> {
    use rustix::event::{PollFd, PollFlags, poll};
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)).step("tying the reaper")?;
    let mut watched = [PollFd::new(&guest, PollFlags::empty())];
    let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    if poll(&mut watched, Some(&now)).is_ok_and(|closed| closed > 0) {
        std::process::exit(1);
    }
    root::mount_proc()?;
    seal::forbid_user_namespaces()?;
    seal::limit_shared_counts();
    root::mask_proc()?;
    seal::drop_capabilities(CapabilitySet::empty())
}

fn reap() -> ! {
    // SAFETY: plain signal and wait calls on values of this frame. SIGCHLD stays blocked, so one that arrives
    // between the wait and the sigwait is pending and not lost.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGCHLD);
        libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
        loop {
            while libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) > 0 {}
            let mut signal = 0;
            libc::sigwait(&set, &mut signal);
        }
    }
}
