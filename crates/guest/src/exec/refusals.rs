//! System calls that the seccomp policy refuses are reported here before they fail, so that a command's failure can
//! be explained. After a number of reports the listener is closed, and the kernel refuses without asking: a program
//! that calls in a loop wears out its own reports, not the guest.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use cofferdam_protocol::exec::RefusedCall;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::io::unix::AsyncFd;

use crate::sys;

/// Reports per sandbox. Past this, refused calls fail with "function not implemented" and are not counted.
const REPORTS_MAX: u64 = 10_000;
/// Reports answered before other tasks get a turn.
const REPORTS_PER_TURN: usize = 16;

#[derive(Default)]
pub struct Refusals {
    counts: RefCell<BTreeMap<i32, u64>>,
}

/// The counts at one moment, to tell later what was added.
#[derive(Clone, Default)]
pub struct Snapshot(BTreeMap<i32, u64>);

impl Refusals {
    pub fn watch(listener: Option<OwnedFd>) -> io::Result<Rc<Self>> {
        let refusals = Rc::new(Self::default());
        if let Some(listener) = listener {
            let listener = sys::watch(listener)?;
            tokio::task::spawn_local(answer(listener, refusals.clone()));
        }
        Ok(refusals)
    }

    pub fn snapshot(&self) -> Snapshot {
        Snapshot(self.counts.borrow().clone())
    }

    pub fn since(&self, earlier: &Snapshot) -> Vec<RefusedCall> {
        let before = |call: &i32| earlier.0.get(call).copied().unwrap_or(0);
        let counts = self.counts.borrow();
        let added = counts.iter().map(|(call, times)| (*call, times - before(call)));
        added.filter(|(_, times)| *times > 0).map(|(call, times)| RefusedCall { name: name(call), times }).collect()
    }
}

async fn answer(listener: AsyncFd<OwnedFd>, refusals: Rc<Refusals>) {
    let mut reports = 0;
    while reports < REPORTS_MAX {
        let Ok(mut ready) = listener.readable().await else { return };
        for _ in 0..REPORTS_PER_TURN {
            match state(listener.get_ref()) {
                PollFlags::IN => {}
                flags if flags.is_empty() => {
                    ready.clear_ready();
                    break;
                }
                // Nobody is left who could call.
                _ => return,
            }
            match sys::receive_seccomp_notification(&listener) {
                Ok(notification) => {
                    *refusals.counts.borrow_mut().entry(notification.call).or_default() += 1;
                    sys::refuse_seccomp_notification(&listener, notification.id, libc::EPERM);
                    reports += 1;
                }
                // The caller was killed in between.
                Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINTR)) => {}
                Err(_) => return,
            }
        }
        tokio::task::yield_now().await;
    }
}

fn state(listener: &OwnedFd) -> PollFlags {
    let mut watched = [PollFd::new(listener, PollFlags::IN)];
    match poll(&mut watched, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
        Ok(_) => watched[0].revents(),
        Err(_) => PollFlags::ERR,
    }
}

/// Names of the calls that people meet; others by number.
fn name(call: i32) -> String {
    const NAMES: &[(libc::c_long, &str)] = &[
        (libc::SYS_mount, "mount"),
        (libc::SYS_umount2, "umount2"),
        (libc::SYS_pivot_root, "pivot_root"),
        (libc::SYS_chroot, "chroot"),
        (libc::SYS_unshare, "unshare"),
        (libc::SYS_setns, "setns"),
        (libc::SYS_clone, "clone"),
        (libc::SYS_open_tree, "open_tree"),
        (libc::SYS_move_mount, "move_mount"),
        (libc::SYS_fsopen, "fsopen"),
        (libc::SYS_fsmount, "fsmount"),
        (libc::SYS_fspick, "fspick"),
        (libc::SYS_mount_setattr, "mount_setattr"),
        (libc::SYS_bpf, "bpf"),
        (libc::SYS_perf_event_open, "perf_event_open"),
        (libc::SYS_userfaultfd, "userfaultfd"),
        (libc::SYS_keyctl, "keyctl"),
        (libc::SYS_add_key, "add_key"),
        (libc::SYS_request_key, "request_key"),
        (libc::SYS_kexec_load, "kexec_load"),
        (libc::SYS_kexec_file_load, "kexec_file_load"),
        (libc::SYS_init_module, "init_module"),
        (libc::SYS_finit_module, "finit_module"),
        (libc::SYS_delete_module, "delete_module"),
        (libc::SYS_reboot, "reboot"),
        (libc::SYS_swapon, "swapon"),
        (libc::SYS_swapoff, "swapoff"),
        (libc::SYS_clock_settime, "clock_settime"),
        (libc::SYS_settimeofday, "settimeofday"),
        (libc::SYS_sethostname, "sethostname"),
        (libc::SYS_setdomainname, "setdomainname"),
        (libc::SYS_syslog, "syslog"),
        (libc::SYS_quotactl, "quotactl"),
        (libc::SYS_acct, "acct"),
        (libc::SYS_open_by_handle_at, "open_by_handle_at"),
        (libc::SYS_fanotify_init, "fanotify_init"),
        (libc::SYS_socket, "socket"),
        (libc::SYS_socketpair, "socketpair"),
        (libc::SYS_ioctl, "ioctl"),
        (libc::SYS_personality, "personality"),
        (libc::SYS_prlimit64, "prlimit64"),
        (libc::SYS_fchmod, "fchmod"),
        (libc::SYS_fchmodat, "fchmodat"),
        (libc::SYS_openat, "openat"),
        (libc::SYS_mknodat, "mknodat"),
        (libc::SYS_vhangup, "vhangup"),
        (libc::SYS_migrate_pages, "migrate_pages"),
        (libc::SYS_move_pages, "move_pages"),
        (libc::SYS_lookup_dcookie, "lookup_dcookie"),
        (libc::SYS_nfsservctl, "nfsservctl"),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_iopl, "iopl"),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_ioperm, "ioperm"),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_chmod, "chmod"),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_open, "open"),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_mknod, "mknod"),
    ];
    let known = NAMES.iter().find(|(number, _)| *number == libc::c_long::from(call));
    known.map_or_else(|| format!("system call {call}"), |(_, name)| (*name).to_owned())
}
