//! System calls by number, and the few shapes that many acts share. Raw on purpose: a library between an attack and
//! the kernel would choose another call, or refuse by itself.

use std::ffi::CString;
use std::io;
use std::time::{Duration, Instant};

use libc::{c_int, c_long};

/// Any system call. Arguments are numbers, or addresses of things that outlive the call.
pub fn call(number: c_long, arguments: &[usize]) -> io::Result<usize> {
    let at = |index: usize| arguments.get(index).copied().unwrap_or(0);
    // SAFETY: this program exists to make calls that should not work. Addresses passed by its acts point to live
    // buffers of the size that the call expects, or are invalid on purpose, which the kernel answers with EFAULT.
    let result = unsafe { libc::syscall(number, at(0), at(1), at(2), at(3), at(4), at(5)) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as usize) }
}

pub fn text(value: &str) -> CString {
    CString::new(value).unwrap_or_default()
}

/// The address of a string that outlives the statement it is used in.
pub fn at(value: &CString) -> usize {
    value.as_ptr() as usize
}

pub const CWD: usize = libc::AT_FDCWD as usize;

pub fn mount(source: &str, target: &str, kind: &str, flags: libc::c_ulong) -> io::Result<usize> {
    let (source, target, kind) = (text(source), text(target), text(kind));
    call(libc::SYS_mount, &[at(&source), at(&target), at(&kind), flags as usize, 0])
}

/// 0 in the child.
pub fn fork() -> io::Result<c_int> {
    // SAFETY: this program has one thread, so the child may do anything.
    let pid = unsafe { libc::fork() };
    if pid < 0 { Err(io::Error::last_os_error()) } else { Ok(pid) }
}

/// Exit code of a child, or 128 and the signal that ended it.
pub fn wait(child: c_int) -> io::Result<c_int> {
    let mut status = 0;
    // SAFETY: `status` outlives the call.
    if unsafe { libc::waitpid(child, &mut status, 0) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(if libc::WIFSIGNALED(status) { 128 + libc::WTERMSIG(status) } else { libc::WEXITSTATUS(status) })
}

/// Runs `act` in a child of its own, for acts that may end their process. The child's code is what `act` returns.
pub fn in_child(act: impl FnOnce() -> c_int) -> io::Result<c_int> {
    match fork()? {
        0 => exit(act()),
        child => wait(child),
    }
}

pub fn exit(code: c_int) -> ! {
    // SAFETY: ends this process at once; nothing of it is used afterwards.
    unsafe { libc::_exit(code) }
}

pub fn kill(pid: i32, signal: c_int) -> io::Result<usize> {
    call(libc::SYS_kill, &[pid as usize, signal as usize])
}

/// Waits for a condition, for a bounded time.
pub fn until(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + limit;
    loop {
        if condition() {
            return true;
        }
        if Instant::now() >= end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Numbers in /proc: the processes that can be seen.
pub fn processes() -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}
