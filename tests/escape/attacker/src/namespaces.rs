//! New namespaces, other processes' namespaces, and the rights that would come with them.

use std::fs::{self, File};
use std::os::fd::AsRawFd;

use libc::c_int;

use crate::Act;
use crate::guard::Place::{Anywhere, Sandbox};
use crate::outcome::{Outcome, any, tried};
use crate::sys;

pub const ACTS: &[Act] = &[
    ("clone", Anywhere, |a| in_child_tried("clone", || clone(flag(&a[0])))),
    ("clone3", Anywhere, |a| in_child_tried("clone3", || clone3(flag(&a[0])))),
    ("unshare", Anywhere, |a| {
        in_child_tried("unshare", || sys::call(libc::SYS_unshare, &[flag(&a[0]) as usize]).is_ok())
    }),
    ("join-namespaces", Anywhere, join_namespaces),
    ("join-by-pidfd", Anywhere, join_by_pidfd),
    ("map-users", Sandbox, |_| {
        any(["uid_map", "gid_map", "setgroups", "projid_map"]
            .map(|name| tried(name, fs::write(format!("/proc/self/{name}"), "0 0 1"))))
    }),
    ("become-root", Sandbox, become_root),
    ("status", Anywhere, status),
    ("raise-capabilities", Anywhere, raise_capabilities),
    ("undo-no-new-privileges", Anywhere, |_| {
        let undone = sys::call(libc::SYS_prctl, &[libc::PR_SET_NO_NEW_PRIVS as usize, 0, 0, 0, 0]);
        tried("taking no_new_privs back", undone)
    }),
    ("replace-filter", Anywhere, replace_filter),
    ("hijack-listener", Anywhere, hijack_listener),
];

fn flag(name: &str) -> c_int {
    match name {
        "user" => libc::CLONE_NEWUSER,
        "mount" => libc::CLONE_NEWNS,
        "pid" => libc::CLONE_NEWPID,
        "net" => libc::CLONE_NEWNET,
        "ipc" => libc::CLONE_NEWIPC,
        "uts" => libc::CLONE_NEWUTS,
        "cgroup" => libc::CLONE_NEWCGROUP,
        _ => 0x80, // CLONE_NEWTIME
    }
}

/// In a child, so that this process stays where it is.
fn in_child_tried(what: &str, act: impl FnOnce() -> bool) -> Outcome {
    match sys::in_child(|| if act() { 42 } else { 0 }) {
        Ok(42) => Outcome::Broken(format!("{what} made a namespace")),
        Ok(code) => Outcome::Held(format!("{what} made none (code {code})")),
        Err(error) => Outcome::Held(format!("no child: {error}")),
    }
}

fn clone(flags: c_int) -> bool {
    match sys::call(libc::SYS_clone, &[(flags | libc::SIGCHLD) as usize, 0, 0, 0, 0]) {
        Ok(0) => sys::exit(0),
        Ok(child) => sys::wait(child as c_int).is_ok(),
        Err(_) => false,
    }
}

fn clone3(flags: c_int) -> bool {
    // struct clone_args: flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls.
    let arguments: [u64; 8] = [flags as u64, 0, 0, 0, libc::SIGCHLD as u64, 0, 0, 0];
    match sys::call(libc::SYS_clone3, &[arguments.as_ptr() as usize, 64]) {
        Ok(0) => sys::exit(0),
        Ok(child) => sys::wait(child as c_int).is_ok(),
        Err(_) => false,
    }
}

const NAMESPACES: [&str; 8] = ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup", "time"];

/// Arguments: a process.
fn join_namespaces(arguments: &[String]) -> Outcome {
    any(NAMESPACES.map(|name| {
        let path = format!("/proc/{}/ns/{name}", arguments[0]);
        match File::open(&path) {
            Ok(file) => in_child_tried(&path, || sys::call(libc::SYS_setns, &[file.as_raw_fd() as usize, 0]).is_ok()),
            Err(error) => Outcome::Held(format!("{path}: {error}")),
        }
    }))
}

fn join_by_pidfd(arguments: &[String]) -> Outcome {
    let pid: usize = arguments[0].parse().unwrap_or(1);
    match sys::call(libc::SYS_pidfd_open, &[pid, 0]) {
        Ok(pidfd) => in_child_tried("setns", || {
            let all = libc::CLONE_NEWUTS | libc::CLONE_NEWIPC;
            sys::call(libc::SYS_setns, &[pidfd, all as usize]).is_ok()
        }),
        Err(error) => Outcome::Held(format!("pidfd_open: {error}")),
    }
}

fn become_root(_: &[String]) -> Outcome {
    any([
        tried("setuid", sys::call(libc::SYS_setuid, &[0])),
        tried("setresuid", sys::call(libc::SYS_setresuid, &[0, 0, 0])),
        tried("setgid", sys::call(libc::SYS_setgid, &[0])),
        tried("setgroups", sys::call(libc::SYS_setgroups, &[1, [0u32].as_ptr() as usize])),
        // Answers with the old one and changes nothing when it is not allowed.
        match sys::call(libc::SYS_setfsuid, &[0]).and_then(|_| sys::call(libc::SYS_setfsuid, &[usize::MAX])) {
            Ok(0) => Outcome::Broken("setfsuid made files root's".into()),
            other => Outcome::Held(format!("setfsuid: {other:?}")),
        },
    ])
}

/// What the kernel itself says of this process.
fn status(_: &[String]) -> Outcome {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim).unwrap_or("missing").to_owned()
    };
    let mut wrong = Vec::new();
    for name in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
        if field(name).bytes().any(|digit| digit != b'0') {
            wrong.push(format!("{name} {}", field(name)));
        }
    }
    for (name, wanted) in [("NoNewPrivs:", "1"), ("Seccomp:", "2")] {
        if field(name) != wanted {
            wrong.push(format!("{name} {}", field(name)));
        }
    }
    if wrong.is_empty() {
        Outcome::Held("no capability in any set, no_new_privs set, filtered".into())
    } else {
        Outcome::Broken(wrong.join(", "))
    }
}

fn raise_capabilities(_: &[String]) -> Outcome {
    let header: [u32; 2] = [0x2008_0522, 0];
    let all = [u32::MAX, u32::MAX, u32::MAX, 0x1ff, 0x1ff, 0];
    let ambient = [libc::PR_CAP_AMBIENT as usize, libc::PR_CAP_AMBIENT_RAISE as usize, 21, 0, 0];
    any([
        tried("capset", sys::call(libc::SYS_capset, &[header.as_ptr() as usize, all.as_ptr() as usize])),
        tried("an ambient capability", sys::call(libc::SYS_prctl, &ambient)),
    ])
}

#[repr(C)]
struct Program {
    length: u16,
    instructions: *const u64,
}

/// A filter that allows everything; the kernel must keep the stricter one. Shown with a call that is refused.
fn replace_filter(_: &[String]) -> Outcome {
    // BPF_RET | BPF_K with SECCOMP_RET_ALLOW.
    let allow: [u64; 1] = [0x7fff_0000_0000_0006];
    let program = Program { length: 1, instructions: allow.as_ptr() };
    let _ = sys::call(libc::SYS_prctl, &[libc::PR_SET_NO_NEW_PRIVS as usize, 1, 0, 0, 0]);
    let loaded = sys::call(libc::SYS_seccomp, &[1, 0, &raw const program as usize]);
    match sys::call(libc::SYS_unshare, &[libc::CLONE_NEWUSER as usize]) {
        Ok(_) => Outcome::Broken("the stricter filter is gone".into()),
        Err(error) => Outcome::Held(format!("loaded: {}, still refused: {error}", loaded.is_ok())),
    }
}

/// Becoming the one who decides over refused calls.
fn hijack_listener(_: &[String]) -> Outcome {
    // BPF_RET | BPF_K with SECCOMP_RET_ALLOW: it is the listener that is wanted, not the filter.
    let allow: [u64; 1] = [0x7fff_0000_0000_0006];
    let program = Program { length: 1, instructions: allow.as_ptr() };
    let _ = sys::call(libc::SYS_prctl, &[libc::PR_SET_NO_NEW_PRIVS as usize, 1, 0, 0, 0]);
    let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER as usize;
    tried("a listener of its own", sys::call(libc::SYS_seccomp, &[1, flags, &raw const program as usize]))
}
