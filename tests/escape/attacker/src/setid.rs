//! Files that would run as somebody else: set-uid and set-gid bits by every call that takes a mode, file
//! capabilities, and the set-uid programs that the system has. The runner looks at the files from outside, too.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;

use crate::Act;
use crate::guard::Place::Anywhere;
use crate::outcome::{Outcome, any};
use crate::sys::{self, CWD, at, text};

pub const ACTS: &[Act] = &[
    ("setid-chmod", Anywhere, |_| made("setid-chmod", |path| drop(sys::call(libc::SYS_chmod, &[path, SET_UID])))),
    ("setid-fchmod", Anywhere, fchmod),
    ("setid-fchmodat", Anywhere, |_| {
        made("setid-fchmodat", |path| drop(sys::call(libc::SYS_fchmodat, &[CWD, path, SET_UID])))
    }),
    ("setid-fchmodat2", Anywhere, |_| {
        made("setid-fchmodat2", |path| drop(sys::call(SYS_FCHMODAT2, &[CWD, path, SET_UID, 0])))
    }),
    ("setid-group", Anywhere, |_| made("setid-group", |path| drop(sys::call(libc::SYS_chmod, &[path, SET_GID])))),
    ("setid-high-bits", Anywhere, |_| {
        // The kernel looks at 16 bits of the mode; a filter that compares all 32 could be led astray by the rest.
        made("setid-high-bits", |path| drop(sys::call(libc::SYS_chmod, &[path, 0xffff_0000_0000 | SET_UID])))
    }),
    ("setid-open", Anywhere, |_| new("setid-open", |path| drop(sys::call(libc::SYS_open, &[path, CREATE, SET_UID])))),
    ("setid-openat", Anywhere, |_| {
        new("setid-openat", |path| drop(sys::call(libc::SYS_openat, &[CWD, path, CREATE, SET_UID])))
    }),
    ("setid-openat2", Anywhere, openat2),
    ("setid-creat", Anywhere, |_| new("setid-creat", |path| drop(sys::call(libc::SYS_creat, &[path, SET_UID])))),
    ("setid-unnamed", Anywhere, unnamed),
    ("setid-mknod", Anywhere, |_| {
        new("setid-mknod", |path| drop(sys::call(libc::SYS_mknod, &[path, REGULAR | SET_UID, 0])))
    }),
    ("setid-mknodat", Anywhere, |_| {
        new("setid-mknodat", |path| drop(sys::call(libc::SYS_mknodat, &[CWD, path, REGULAR | SET_UID, 0])))
    }),
    ("setid-directory", Anywhere, |_| {
        new("setid-directory", |path| {
            let _ = sys::call(libc::SYS_mkdir, &[path, SET_GID]);
            let _ = sys::call(libc::SYS_chmod, &[path, SET_GID]);
        })
    }),
    ("setid-copied", Anywhere, copied),
    ("setid-program", Anywhere, program),
];

const SET_UID: usize = 0o4755;
const SET_GID: usize = 0o2755;
const REGULAR: usize = libc::S_IFREG as usize;
const CREATE: usize = (libc::O_CREAT | libc::O_WRONLY) as usize;
const SYS_FCHMODAT2: libc::c_long = 452;

/// Changes a file that is there.
fn made(name: &str, change: impl FnOnce(usize)) -> Outcome {
    let _ = File::create(name);
    new(name, change)
}

/// Looks at what was made, not at what the call answered.
fn new(name: &str, change: impl FnOnce(usize)) -> Outcome {
    let path = text(name);
    change(at(&path));
    judge(name)
}

fn judge(name: &str) -> Outcome {
    match fs::metadata(name).map(|found| found.permissions().mode()) {
        Ok(mode) if mode & 0o6000 != 0 => Outcome::Broken(format!("{name} has mode {:o}", mode & 0o7777)),
        Ok(mode) => Outcome::Held(format!("{name} has mode {:o}", mode & 0o7777)),
        Err(error) => Outcome::Held(format!("{name} was not made: {error}")),
    }
}

fn fchmod(_: &[String]) -> Outcome {
    if let Ok(file) = File::create("setid-fchmod") {
        let _ = sys::call(libc::SYS_fchmod, &[file.as_raw_fd() as usize, SET_UID]);
    }
    judge("setid-fchmod")
}

fn openat2(_: &[String]) -> Outcome {
    // struct open_how: flags, mode, resolve.
    let how: [u64; 3] = [CREATE as u64, SET_UID as u64, 0];
    new("setid-openat2", |path| {
        let _ = sys::call(libc::SYS_openat2, &[CWD, path, how.as_ptr() as usize, 24]);
    })
}

/// An unnamed file with the bit, given a name afterwards.
fn unnamed(_: &[String]) -> Outcome {
    let here = text(".");
    let flags = (libc::O_TMPFILE | libc::O_WRONLY) as usize;
    if let Ok(file) = sys::call(libc::SYS_openat, &[CWD, at(&here), flags, SET_UID]) {
        let (from, to) = (text(&format!("/proc/self/fd/{file}")), text("setid-unnamed"));
        let follow = libc::AT_SYMLINK_FOLLOW as usize;
        let _ = sys::call(libc::SYS_linkat, &[CWD, at(&from), CWD, at(&to), follow]);
    }
    judge("setid-unnamed")
}

/// A set-uid program of the system's, brought into the workspace by copy, rename and link.
fn copied(arguments: &[String]) -> Outcome {
    let source = &arguments[0];
    // Keeps the mode where it may, as `cp -p` does.
    let _ = fs::copy(source, "setid-copied");
    let moved = fs::rename(source, "setid-moved").is_ok();
    let linked = fs::hard_link(source, "setid-linked").is_ok();
    if moved || linked {
        return Outcome::Broken(format!("{source} itself is in the workspace"));
    }
    any(["setid-copied", "setid-moved", "setid-linked"].map(judge))
}

/// Runs a set-uid program of the system's and looks whose process it becomes.
fn program(arguments: &[String]) -> Outcome {
    // It waits for a password on a pipe that nobody writes to, so it can be looked at while it lives.
    let child = std::process::Command::new(&arguments[0])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) => return Outcome::Held(format!("{}: {error}", arguments[0])),
    };
    let status = format!("/proc/{}/status", child.id());
    let field = |name: &str| {
        let text = fs::read_to_string(&status).unwrap_or_default();
        text.lines().find_map(|line| Some(line.strip_prefix(name)?.trim().to_owned())).unwrap_or_default()
    };
    // SAFETY: takes no argument and cannot fail.
    let own = unsafe { libc::getuid() }.to_string();
    let mut gained = None;
    sys::until(std::time::Duration::from_millis(300), || {
        let (users, capabilities) = (field("Uid:"), field("CapEff:"));
        let foreign = users.split_whitespace().any(|user| user != own);
        if foreign || capabilities.bytes().any(|digit| digit != b'0') {
            gained = Some(format!("it ran with users {users} and capabilities {capabilities}"));
        }
        gained.is_some() || matches!(child.try_wait(), Ok(Some(_)))
    });
    let _ = child.kill();
    let _ = child.wait();
    gained.map_or(Outcome::Held("it ran as the one who called it".into()), Outcome::Broken)
}
