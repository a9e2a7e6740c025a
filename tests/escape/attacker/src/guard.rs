//! Where an act may be performed. This program is also run outside of sandboxes, possibly by root, so everything that
//! would change a machine refuses to run there: in a sandbox, or in namespaces of this program's own, or not at all.

use std::fs;
use std::io;

use crate::sys;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Harmless: touches only what its arguments name, which is the runner's own.
    Anywhere,
    /// Changes mounts, names or routes: in a sandbox, or in fresh namespaces.
    Namespaced,
    /// Would harm the machine or its processes: only in a sandbox.
    Sandbox,
}

impl Place {
    pub fn permits(self, in_namespaces: bool) -> Result<(), String> {
        let permitted = match self {
            Self::Anywhere => true,
            Self::Namespaced => in_namespaces || is_sandbox(),
            Self::Sandbox => is_sandbox(),
        };
        if permitted { Ok(()) } else { Err("not tried: outside of a sandbox it would harm this machine".to_owned()) }
    }
}

/// All of it must be true: the name, the user, the root directory, and a parent that cannot be seen.
fn is_sandbox() -> bool {
    let is = |path: &str, text: &str| fs::read_to_string(path).is_ok_and(|found| found.trim() == text);
    // SAFETY: neither call takes an argument or can fail.
    let (user, parent) = unsafe { (libc::getuid(), libc::getppid()) };
    is("/proc/sys/kernel/hostname", "sandbox") && is("/etc/hostname", "sandbox") && user == 1000 && {
        // A child of an act has a parent inside; its own first process has none.
        parent == 0 || fs::read_to_string("/proc/1/comm").is_ok_and(|name| name.starts_with("cofferdam-"))
    }
}

/// Makes this process the root of user, mount, network, UTS, IPC and pid namespaces that end with it. Returns in a
/// child that is process 1 of them; the parent waits and ends with the child's code.
pub fn enter_namespaces() -> io::Result<()> {
    // SAFETY: neither call takes an argument or can fail.
    let (user, group) = unsafe { (libc::getuid(), libc::getgid()) };
    let flags = libc::CLONE_NEWUSER
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWNET
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWPID;
    sys::call(libc::SYS_unshare, &[flags as usize])?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("0 {user} 1"))?;
    fs::write("/proc/self/gid_map", format!("0 {group} 1"))?;
    // Nothing that is mounted from here on is seen outside.
    sys::mount("none", "/", "", libc::MS_REC | libc::MS_PRIVATE)?;
    match sys::fork()? {
        0 => Ok(()),
        child => std::process::exit(sys::wait(child).unwrap_or(1)),
    }
}
