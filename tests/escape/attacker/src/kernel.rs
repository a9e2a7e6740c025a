//! Kernel interfaces that a sandboxed program has no business with, other ways to make a system call, and what is
//! the whole machine's: clock, name, power, counters.

use std::fs;
use std::io;

use libc::c_long;

use crate::Act;
use crate::guard::Place::{Anywhere, Namespaced, Sandbox};
use crate::outcome::{Outcome, any, tried};
use crate::sys::{self, CWD, at, call, text};

pub const ACTS: &[Act] = &[
    ("bpf", Anywhere, |_| bpf()),
    ("add-key", Anywhere, |_| {
        let (kind, name) = (text("user"), text("cofferdam-attacker"));
        // Into the thread's own keyring, which ends with it.
        tried("add_key", call(libc::SYS_add_key, &[at(&kind), at(&name), at(&name), 4, usize::MAX]))
    }),
    ("request-key", Anywhere, |_| {
        let (kind, name) = (text("user"), text("cofferdam-attacker"));
        reached("request_key", call(libc::SYS_request_key, &[at(&kind), at(&name), 0, 0]), libc::ENOKEY)
    }),
    ("keyctl", Anywhere, |_| tried("keyctl", call(libc::SYS_keyctl, &[0, usize::MAX - 2, 0]))),
    ("io-uring", Anywhere, |_| {
        let parameters = [0u8; 120];
        tried("io_uring_setup", call(libc::SYS_io_uring_setup, &[1, parameters.as_ptr() as usize]))
    }),
    ("userfaultfd", Anywhere, |_| tried("userfaultfd", call(libc::SYS_userfaultfd, &[1]))),
    ("perf-events", Anywhere, |_| perf_events()),
    ("fanotify", Anywhere, |_| {
        // With and without FAN_REPORT_FID, which needs no privilege.
        any([0, 0x200].map(|flags| tried("fanotify_init", call(libc::SYS_fanotify_init, &[flags, 0]))))
    }),
    ("kernel-log", Anywhere, |_| {
        let mut buffer = [0u8; 256];
        tried("syslog", call(libc::SYS_syslog, &[3, buffer.as_mut_ptr() as usize, 256]))
    }),
    ("load-module", Sandbox, |_| {
        let options = text("");
        any([
            tried("init_module", call(libc::SYS_init_module, &[at(&options), 0, at(&options)])),
            tried("finit_module", call(libc::SYS_finit_module, &[0, at(&options), 0])),
            tried("delete_module", call(libc::SYS_delete_module, &[at(&text("nothing")), 0])),
        ])
    }),
    ("kexec", Sandbox, |_| {
        any([
            tried("kexec_load", call(libc::SYS_kexec_load, &[0, 0, 0, 0])),
            tried("kexec_file_load", call(libc::SYS_kexec_file_load, &[0, 0, 0, 0, 0])),
        ])
    }),
    ("reboot", Sandbox, |_| {
        // "Ctrl-Alt-Del off", which would do no more than that.
        tried("reboot", call(libc::SYS_reboot, &[0xfee1_dead, 672_274_793, 0, 0]))
    }),
    ("ports", Sandbox, |_| {
        any([tried("iopl", call(libc::SYS_iopl, &[3])), tried("ioperm", call(libc::SYS_ioperm, &[0x80, 1, 1]))])
    }),
    ("swap", Sandbox, |_| {
        let path = text("swap");
        any([
            tried("swapon", call(libc::SYS_swapon, &[at(&path), 0])),
            tried("swapoff", call(libc::SYS_swapoff, &[at(&path)])),
        ])
    }),
    ("accounting", Sandbox, |_| tried("acct", call(libc::SYS_acct, &[0]))),
    ("quota", Sandbox, |_| tried("quotactl", call(libc::SYS_quotactl, &[0x80_0001 << 8, 0, 0, 0]))),
    ("hang-up", Sandbox, |_| tried("vhangup", call(libc::SYS_vhangup, &[]))),
    ("move-pages", Sandbox, |_| {
        any([
            tried("move_pages", call(libc::SYS_move_pages, &[1, 0, 0, 0, 0, 0])),
            tried("migrate_pages", call(libc::SYS_migrate_pages, &[1, 0, 0, 0])),
        ])
    }),
    ("set-clock", Sandbox, |_| set_clock()),
    ("set-names", Namespaced, |_| {
        let name = text("owned");
        any([
            tried("sethostname", call(libc::SYS_sethostname, &[at(&name), 5])),
            tried("setdomainname", call(libc::SYS_setdomainname, &[at(&name), 5])),
        ])
    }),
    ("make-device", Anywhere, |_| make_device()),
    ("x32-calls", Anywhere, |_| x32_calls()),
    ("compat-calls", Anywhere, |_| compat_calls()),
    ("personality", Anywhere, |_| {
        // READ_IMPLIES_EXEC and MMAP_PAGE_ZERO make kernel bugs easier to use.
        tried("personality", call(libc::SYS_personality, &[0x040_0000 | 0x010_0000]))
    }),
    ("exhaust-asynchronous-io", Anywhere, exhaust_asynchronous_io),
];

/// Some calls answer with an error that only somebody who got through would see.
fn reached(what: &str, result: io::Result<usize>, inner: i32) -> Outcome {
    match result {
        Err(error) if error.raw_os_error() == Some(inner) => Outcome::Broken(format!("{what} got through: {error}")),
        result => tried(what, result),
    }
}

fn bpf() -> Outcome {
    // BPF_MAP_CREATE of an array with one element of four bytes; struct bpf_attr begins with these.
    let attributes: [u32; 32] = {
        let mut all = [0; 32];
        all[..4].copy_from_slice(&[2, 4, 4, 1]);
        all
    };
    tried("bpf", call(libc::SYS_bpf, &[0, attributes.as_ptr() as usize, 128]))
}

fn perf_events() -> Outcome {
    // A software event (the task's clock) of one's own process: the least that can be asked for.
    let mut attributes = [0u32; 32];
    attributes[0] = 1;
    attributes[1] = 128;
    attributes[2] = 1;
    // exclude_kernel and exclude_hv, so that an ordinary user may.
    attributes[10] = 0x60;
    let pointer = attributes.as_ptr() as usize;
    tried("perf_event_open", call(libc::SYS_perf_event_open, &[pointer, 0, usize::MAX, usize::MAX, 0]))
}

fn set_clock() -> Outcome {
    let now = [1_000_000_000i64, 0];
    // struct timex with ADJ_OFFSET; the rest zero.
    let mut adjustment = [0u64; 32];
    adjustment[0] = 1;
    let (now, adjustment) = (now.as_ptr() as usize, adjustment.as_ptr() as usize);
    any([
        tried("clock_settime", call(libc::SYS_clock_settime, &[0, now])),
        tried("settimeofday", call(libc::SYS_settimeofday, &[now, 0])),
        tried("adjtimex", call(libc::SYS_adjtimex, &[adjustment])),
        tried("clock_adjtime", call(libc::SYS_clock_adjtime, &[0, adjustment])),
    ])
}

fn make_device() -> Outcome {
    let device = |name: &str, kind: libc::mode_t, major: u32, minor: u32| {
        let _ = fs::remove_file(name);
        let path = text(name);
        let mode = (kind | 0o600) as usize;
        let made = call(libc::SYS_mknodat, &[CWD, at(&path), mode, libc::makedev(major, minor) as usize]);
        let _ = fs::remove_file(name);
        tried(name, made)
    };
    any([
        device("device-null", libc::S_IFCHR, 1, 3),
        device("device-mem", libc::S_IFCHR, 1, 1),
        device("device-sda", libc::S_IFBLK, 8, 0),
        device("device-vda", libc::S_IFBLK, 254, 0),
    ])
}

/// The numbers of the x32 interface, which a filter for x86_64 may forget: getpid is harmless and always allowed,
/// unshare is what one would want.
fn x32_calls() -> Outcome {
    const X32: c_long = 0x4000_0000;
    any([
        tried("getpid by its x32 number", call(X32 | libc::SYS_getpid, &[])),
        tried("unshare by its x32 number", call(X32 | libc::SYS_unshare, &[libc::CLONE_NEWUSER as usize])),
    ])
}

/// The numbers of the 32-bit interface, through interrupt 0x80. In a child: the filter ends who tries.
fn compat_calls() -> Outcome {
    #[cfg(target_arch = "x86_64")]
    {
        let ended = sys::in_child(|| {
            let result: i64;
            // SAFETY: interrupt 0x80 with 20 in eax is getpid of the 32-bit interface: no arguments, one result.
            // Registers that the kernel may change on this path are named.
            unsafe {
                std::arch::asm!("int 0x80", inlateout("rax") 20i64 => result,
                    lateout("r8") _, lateout("r9") _, lateout("r10") _, lateout("r11") _);
            }
            if result > 0 { 42 } else { 0 }
        });
        match ended {
            Ok(42) => Outcome::Broken("a 32-bit call was answered".into()),
            Ok(code) if code == 128 + libc::SIGSYS => Outcome::Held("the caller was ended by SIGSYS".into()),
            other => Outcome::Held(format!("no answer: {other:?}")),
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    Outcome::Held("this architecture has no second interface here".into())
}

/// Requests for asynchronous IO are counted for the whole machine: who takes them all takes them from everybody.
/// The argument is how many to take at most.
fn exhaust_asynchronous_io(arguments: &[String]) -> Outcome {
    let wanted: usize = arguments[0].parse().unwrap_or(1024);
    let mut taken = 0;
    while taken < wanted {
        let mut context = 0usize;
        match call(libc::SYS_io_setup, &[128, &raw mut context as usize]) {
            Ok(_) => taken += 128,
            Err(error) if taken == 0 => return Outcome::Held(format!("io_setup: {error}")),
            Err(_) => break,
        }
    }
    if taken >= wanted {
        Outcome::Broken(format!("{taken} of the machine's requests were taken"))
    } else {
        Outcome::Held(format!("only {taken} could be taken"))
    }
}
