//! System calls that neither the standard library nor rustix offers in the form needed here, each in a safe
//! function. No policy: what is called when is decided elsewhere.

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libc::{c_int, c_long, c_ulong, c_void};
use tokio::io::unix::AsyncFd;

pub const MOUNT_ATTR_RDONLY: u64 = 0x1;
pub const MOUNT_ATTR_NOSUID: u64 = 0x2;
pub const MOUNT_ATTR_NODEV: u64 = 0x4;
pub const MOUNT_ATTR_NOEXEC: u64 = 0x8;

fn check(result: c_long) -> io::Result<c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Leaves the named namespaces for new ones. Only while the process has one thread.
pub fn unshare(flags: c_int) -> io::Result<()> {
    // SAFETY: takes no pointers. The guest has a single thread whenever this is called, and file descriptors are
    // not unshared.
    check(unsafe { libc::unshare(flags) }.into()).map(drop)
}

pub enum Forked {
    Parent(OwnedFd),
    Child,
}

/// `fork` that yields a pidfd in the parent; `extra_flags` such as CLONE_PARENT.
pub fn fork(extra_flags: c_int) -> io::Result<Forked> {
    let mut pidfd: c_int = -1;
    let flags = c_ulong::from((extra_flags | libc::CLONE_PIDFD | libc::SIGCHLD) as u32);
    // SAFETY: without CLONE_VM and with a null stack this is fork: the child gets a copy of everything. The process
    // has one thread, so no lock can be held by a thread that the child lacks. `pidfd` outlives the call.
    let pid = check(unsafe {
        libc::syscall(libc::SYS_clone, flags, std::ptr::null_mut::<c_void>(), &mut pidfd as *mut c_int, 0, 0)
    })?;
    if pid == 0 {
        return Ok(Forked::Child);
    }
    // SAFETY: the kernel has just opened this descriptor for us.
    Ok(Forked::Parent(unsafe { OwnedFd::from_raw_fd(pidfd) }))
}

#[repr(C)]
struct MountAttributes {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

/// Sets attributes on a mount, and with `recursive` on all below it.
pub fn mount_setattr(mount: BorrowedFd<'_>, set: u64, recursive: bool) -> io::Result<()> {
    let attributes = MountAttributes { set, clear: 0, propagation: libc::MS_PRIVATE, user_namespace: 0 };
    let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the path is a C string, the structure is the kernel's `struct mount_attr` with its size beside it.
    check(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            flags,
            &attributes as *const MountAttributes,
            size_of::<MountAttributes>(),
        )
    })
    .map(drop)
}

/// Switches the loopback interface of the current network namespace on.
pub fn loopback_up() -> io::Result<()> {
    let socket = rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::DGRAM, None)?;
    // SAFETY: all zeroes is a valid ifreq.
    let mut request: libc::ifreq = unsafe { MaybeUninit::zeroed().assume_init() };
    request.ifr_name[0] = b'l' as libc::c_char;
    request.ifr_name[1] = b'o' as libc::c_char;
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: SIOCSIFFLAGS reads an ifreq, which `request` is.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &request) }.into()).map(drop)
}

#[repr(C)]
struct FilterProgram {
    length: u16,
    instructions: *const u8,
}

/// Loads a compiled seccomp filter on this thread and returns the descriptor that reports its notifications.
pub fn load_seccomp(program: &'static [u8]) -> io::Result<OwnedFd> {
    const SET_MODE_FILTER: c_ulong = 1;
    let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
    let filter = FilterProgram { length: (program.len() / 8) as u16, instructions: program.as_ptr() };
    // SAFETY: `filter` is the kernel's `struct sock_fprog`; the kernel copies the instructions, whose number is
    // their length divided by the size of one.
    let result =
        check(unsafe { libc::syscall(libc::SYS_seccomp, SET_MODE_FILTER, flags, &filter as *const FilterProgram) })?;
    // SAFETY: with the listener flag the kernel returns a descriptor that is ours alone.
    Ok(unsafe { OwnedFd::from_raw_fd(result as c_int) })
}

/// Loads a further filter on this thread. All filters are asked, and the strictest answer counts.
pub fn add_seccomp(program: &[libc::sock_filter]) -> io::Result<()> {
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
    // SAFETY: the kernel copies the instructions, whose number is beside them, and writes nothing.
    check(unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const filter) }).map(drop)
}

/// A refused system call waiting for its answer.
#[derive(Debug)]
pub struct SeccompNotification {
    pub id: u64,
    pub call: c_int,
}

/// The next notification, if there is one. The descriptor must be readable, or this waits.
pub fn receive_seccomp_notification(listener: impl AsFd) -> io::Result<SeccompNotification> {
    // SAFETY: all zeroes is a valid structure, and the kernel demands zeroes.
    let mut notification: libc::seccomp_notif = unsafe { MaybeUninit::zeroed().assume_init() };
    let request = SECCOMP_IOCTL_NOTIF_RECV as _;
    // SAFETY: this request writes a `seccomp_notif`, which `notification` is.
    check(unsafe { libc::ioctl(listener.as_fd().as_raw_fd(), request, &mut notification) }.into())?;
    Ok(SeccompNotification { id: notification.id, call: notification.data.nr })
}

/// Lets the call fail with this errno. The caller may be gone by now, which is no error.
pub fn refuse_seccomp_notification(listener: impl AsFd, id: u64, errno: c_int) {
    let response = libc::seccomp_notif_resp { id, val: 0, error: -errno, flags: 0 };
    // SAFETY: this request reads a `seccomp_notif_resp`, which `response` is.
    unsafe { libc::ioctl(listener.as_fd().as_raw_fd(), SECCOMP_IOCTL_NOTIF_SEND as _, &response) };
}

// _IOWR('!', 0, struct seccomp_notif) and _IOWR('!', 1, struct seccomp_notif_resp).
const SECCOMP_IOCTL_NOTIF_RECV: u64 = 0xC050_2100;
const SECCOMP_IOCTL_NOTIF_SEND: u64 = 0xC018_2101;

/// The terminal's other side, without going through a path that could be something else.
pub fn open_terminal_peer(controller: &OwnedFd) -> io::Result<OwnedFd> {
    let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
    // SAFETY: TIOCGPTPEER takes flags by value and returns a new descriptor.
    let peer = check(unsafe { libc::ioctl(controller.as_raw_fd(), libc::TIOCGPTPEER as _, flags) }.into())?;
    // SAFETY: the kernel has just opened this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(peer as c_int) })
}

/// How a child ended, or `None` while it runs.
pub fn wait_for(pidfd: &OwnedFd) -> io::Result<Option<ChildEnd>> {
    // SAFETY: all zeroes is a valid siginfo_t.
    let mut info: libc::siginfo_t = unsafe { MaybeUninit::zeroed().assume_init() };
    let id = pidfd.as_raw_fd() as libc::id_t;
    // SAFETY: `info` is a siginfo_t that outlives the call.
    check(unsafe { libc::waitid(libc::P_PIDFD, id, &mut info, libc::WEXITED | libc::WNOHANG) }.into())?;
    // SAFETY: waitid filled in the fields of a child's signal, or left the zeroes.
    let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
    Ok(match (pid, info.si_code) {
        (0, _) => None,
        (_, libc::CLD_EXITED) => Some(ChildEnd::Exited(status)),
        _ => Some(ChildEnd::Signalled(status)),
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChildEnd {
    Exited(c_int),
    Signalled(c_int),
}

/// Sends a signal to the process behind a pidfd or an open directory of /proc. Gone already is no error.
pub fn send_signal(process: BorrowedFd<'_>, signal: c_int) -> io::Result<()> {
    let info = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: no information beside the signal, no flags.
    match check(unsafe { libc::syscall(libc::SYS_pidfd_send_signal, process.as_raw_fd(), signal, info, 0) }) {
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
        result => result.map(drop),
    }
}

/// Time that ended and waited-for children have used, in milliseconds, and the blocks they read and wrote.
pub fn children_usage() -> (u64, u64, u64) {
    // SAFETY: all zeroes is a valid rusage, and it outlives the call.
    let usage = unsafe {
        let mut usage: libc::rusage = MaybeUninit::zeroed().assume_init();
        libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage);
        usage
    };
    let ms = |t: libc::timeval| t.tv_sec as u64 * 1000 + t.tv_usec as u64 / 1000;
    (ms(usage.ru_utime) + ms(usage.ru_stime), usage.ru_inblock as u64 * 512, usage.ru_oublock as u64 * 512)
}

/// Gives up root for this id, group included, for good. In this order, or the later calls would be refused.
pub fn become_unprivileged(id: u32) -> io::Result<()> {
    // SAFETY: none of these takes a pointer that is used (the list of groups is empty). The raw calls act on this
    // thread, which is the only one.
    unsafe {
        check(libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<libc::gid_t>()))?;
        check(libc::syscall(libc::SYS_setresgid, id, id, id))?;
        check(libc::syscall(libc::SYS_setresuid, id, id, id))?;
    }
    Ok(())
}

/// Lets the runtime watch a descriptor.
pub fn watch(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: the descriptor is owned by the result and stays open, and the same, for as long as it is watched:
    // an OwnedFd neither closes nor replaces it before it is dropped.
    Ok(unsafe { AsyncFd::register(descriptor) }?)
}
