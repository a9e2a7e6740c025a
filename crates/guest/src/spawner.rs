//! The spawner: builds the inside of the sandbox, closes the walls around itself, and from then on starts commands.
//! It has entered every namespace of the work but the pid namespace, so nothing inside can name it, signal it, trace
//! it or set its limits; its children are born in that pid namespace, inside all walls, as children of the guest.

use std::ffi::CString;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::raw::{c_char, c_int};

use cofferdam_linux::channel;
use cofferdam_protocol::exec::{StartError, TerminalSize};
use cofferdam_protocol::launch::{Assign, FromSpawner, Prepare, Spawn, ToSpawner};
use rustix::fs::{Mode, OFlags};
use rustix::thread::CapabilitySet;

use crate::cgroup::Cgroup;
use crate::error::{Result, Step, StepError};
use crate::root::Trees;
use crate::{reaper, root, seal, sys};

/// Stack of a command between its creation and its `execve`; it calls a dozen system calls and nothing else.
const CHILD_STACK_BYTES: usize = 64 * 1024;

/// Runs until the guest closes the socket. `trees` were opened beforehand where the launcher is root.
pub fn run(prepare: &Prepare, cgroup: &Cgroup, trees: Option<Trees>, guest: OwnedFd, guest_pid: u32) -> ! {
    match close_the_walls(prepare, cgroup, trees, &guest, guest_pid) {
        Ok(descriptors) => {
            let borrowed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
            if channel::send(&guest, &FromSpawner::Sealed, &borrowed).is_ok() {
                drop(descriptors);
                serve(&guest, prepare.limits.processes);
            }
        }
        Err(error) => drop(channel::send(&guest, &FromSpawner::Failed(error.to_failure()), &[])),
    }
    std::process::exit(0)
}

fn close_the_walls(
    prepare: &Prepare,
    cgroup: &Cgroup,
    trees: Option<Trees>,
    guest: &OwnedFd,
    guest_pid: u32,
) -> Result<Vec<OwnedFd>> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)).step("tying the spawner")?;
    if std::os::unix::process::parent_id() != guest_pid {
        std::process::exit(0); // The guest died before it could be watched.
    }

    // First into the control group, so that the cgroup namespace made next has it as its root.
    cgroup.join().step("joining the sandbox's control group")?;
    sys::unshare(
        libc::CLONE_NEWNS | libc::CLONE_NEWPID | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS | libc::CLONE_NEWCGROUP,
    )
    .step("making mount, pid, ipc, uts and cgroup namespaces")?;
    rustix::system::sethostname(b"sandbox").step("naming the machine")?;

    let trees = match trees {
        Some(trees) => trees,
        None => root::open_trees(&prepare.root)?,
    };
    let old_root = root::build(&prepare.root, trees, &prepare.limits)?;
    enter_network(guest)?;
    let reaper = start_reaper(guest)?;

    // A prepared sandbox waits here. Everything above is done, nothing below can be taken back.
    let (Assign { workspace, .. }, tree) = receive_assignment(guest)?;
    root::assign_workspace(&workspace, tree, &old_root, &prepare.limits)?;
    reaper_is_ready(reaper)?;
    root::close(old_root)?;
    let workspace = root::open_for_guest("/workspace")?;
    let processes = root::open_for_guest("/proc")?;

    seal::limit_resources(&prepare.limits, cgroup.counts_processes())?;
    seal::empty_bounding_set()?;
    // Kept for the UTS namespace by which each command's processes are known; given up again before every execve.
    seal::drop_capabilities(CapabilitySet::SYS_ADMIN)?;
    seal::restrict_files()?;
    if !cgroup.limits_memory() {
        seal::refuse_uncounted_memory()?;
    }
    let listener = seal::filter_system_calls()?;
    Ok(vec![workspace, processes, listener])
}

/// The first process in the pid namespace becomes its process 1. It mounts /proc while this process goes on; what it
/// has to report comes through the pipe that is returned.
fn start_reaper(guest: &OwnedFd) -> Result<OwnedFd> {
    let (reading, writing) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).step("making a pipe")?;
    match sys::fork(libc::CLONE_PARENT).step("starting the reaper")? {
        sys::Forked::Child => {
            drop(reading);
            match guest.try_clone() {
                Ok(guest) => reaper::run(writing, guest),
                Err(_) => std::process::exit(1),
            }
        }
        sys::Forked::Parent(pidfd) => {
            channel::send(guest, &FromSpawner::Reaper, &[pidfd.as_fd()]).step("handing over the reaper")?;
            Ok(reading)
        }
    }
}

fn reaper_is_ready(report: OwnedFd) -> Result<()> {
    let mut text = String::new();
    std::fs::File::from(report).read_to_string(&mut text).step("hearing from the reaper")?;
    if text == "+" {
        return Ok(());
    }
    let (errno, step) = text.split_once('\0').unwrap_or(("0", "starting the reaper"));
    let source = io::Error::from_raw_os_error(errno.parse().unwrap_or(0));
    Err(StepError { step: step.to_owned(), source })
}

fn enter_network(guest: &OwnedFd) -> Result<()> {
    use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
    let (ToSpawner::Network, descriptors) = channel::receive(guest).step("waiting for the network namespace")? else {
        return Err(io::Error::from(io::ErrorKind::InvalidData)).step("waiting for the network namespace");
    };
    let namespace = descriptors.first().ok_or(io::ErrorKind::InvalidData).step("waiting for the network namespace")?;
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
        .step("entering the network namespace")
}

fn receive_assignment(guest: &OwnedFd) -> Result<(Assign, Option<OwnedFd>)> {
    match channel::receive(guest).step("waiting for the assignment")? {
        (ToSpawner::Assign(assign), descriptors) => Ok((assign, descriptors.into_iter().next())),
        _ => Err(io::Error::from(io::ErrorKind::InvalidData)).step("waiting for the assignment"),
    }
}

/// The second life: one command after the other.
fn serve(guest: &OwnedFd, process_limit: u64) {
    let mut stack = vec![0u8; CHILD_STACK_BYTES];
    while let Ok((message, descriptors)) = channel::receive::<ToSpawner>(guest) {
        let ToSpawner::Spawn(spawn) = message else { return };
        let (answer, descriptors) = match start(&spawn, descriptors, &mut stack, process_limit) {
            Ok(started) => (FromSpawner::Spawned { tag: started.tag }, started.descriptors),
            Err((error, zombie)) => (FromSpawner::NotSpawned(error), zombie.into_iter().collect()),
        };
        let borrowed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        if channel::send(guest, &answer, &borrowed).is_err() {
            return;
        }
    }
}

struct Started {
    /// The process, then the terminal's controlling side if there is one.
    descriptors: Vec<OwnedFd>,
    tag: u64,
}

/// What a command failed at between its creation and `execve`, for [`explain`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChildStep {
    Mark,
    Session,
    Terminal,
    Descriptors,
    WorkingDirectory,
    Capabilities,
    Siblings,
    Execute,
}

/// Everything the child needs, prepared before it exists: it shares this memory and must not allocate.
struct ChildPlan {
    candidates: Vec<CString>,
    arguments: Vec<*const c_char>,
    environment: Vec<*const c_char>,
    cwd: CString,
    stdio: [c_int; 3],
    has_terminal: bool,
    // Written by the child.
    failed: Option<(ChildStep, c_int)>,
    tag: u64,
}

fn start(
    spawn: &Spawn,
    descriptors: Vec<OwnedFd>,
    stack: &mut [u8],
    process_limit: u64,
) -> std::result::Result<Started, (StartError, Option<OwnedFd>)> {
    let other =
        |step: &str, error: io::Error| (StartError::Other { step: step.to_owned(), detail: error.to_string() }, None);
    let strings = |texts: &[String]| {
        texts.iter().map(|text| CString::new(text.as_str())).collect::<std::result::Result<Vec<_>, _>>()
    };
    let (arguments, environment, cwd) =
        match (strings(&spawn.argv), strings(&spawn.env), CString::new(spawn.cwd.as_str())) {
            (Ok(arguments), Ok(environment), Ok(cwd)) => (arguments, environment, cwd),
            _ => return Err(other("reading the request", io::ErrorKind::InvalidInput.into())),
        };
    let (stdio, controller) = match spawn.terminal {
        Some(size) => {
            let (controller, peer) = open_terminal(size).map_err(|error| other("opening a terminal", error))?;
            (vec![peer], Some(controller))
        }
        None => (descriptors, None),
    };
    let Some(first) = stdio.first() else {
        return Err(other("reading the request", io::ErrorKind::InvalidInput.into()));
    };
    let number = |index: usize| stdio.get(index).unwrap_or(first).as_raw_fd();
    let pointers = |strings: &[CString]| {
        strings.iter().map(|s| s.as_ptr()).chain([std::ptr::null()]).collect::<Vec<*const c_char>>()
    };
    let mut plan = ChildPlan {
        candidates: candidates(&spawn.argv[0], &spawn.path),
        arguments: pointers(&arguments),
        environment: pointers(&environment),
        cwd,
        stdio: [number(0), number(1), number(2)],
        has_terminal: controller.is_some(),
        failed: None,
        tag: 0,
    };
    let pidfd = match create_child(&mut plan, stack) {
        Ok(pidfd) => pidfd,
        Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {
            return Err((StartError::ProcessLimit { limit: process_limit }, None));
        }
        Err(error) => return Err(other("creating a process", error)),
    };
    match plan.failed {
        None => Ok(Started { descriptors: [Some(pidfd), controller].into_iter().flatten().collect(), tag: plan.tag }),
        Some((step, errno)) => Err((explain(spawn, step, errno), Some(pidfd))),
    }
}

/// `vfork` into the sandbox: memory is shared and this process stands still until the child has executed its
/// program or ended, so there is nothing to copy and its failure is simply read from the plan.
fn create_child(plan: &mut ChildPlan, stack: &mut [u8]) -> io::Result<OwnedFd> {
    let mut pidfd: c_int = -1;
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PARENT | libc::CLONE_PIDFD | libc::SIGCHLD;
    let top = stack.as_mut_ptr_range().end;
    // SAFETY: the stack is 64 KiB of our own, used by nobody else while this process is suspended (CLONE_VFORK);
    // its top is aligned down to 16 bytes. `plan` and `pidfd` live on until the call returns. `child` keeps to
    // async-signal-safe calls and ends in execve or _exit.
    let pid = unsafe {
        let top = top.sub(top as usize % 16);
        libc::clone(child, top.cast(), flags, std::ptr::from_mut(plan).cast(), &mut pidfd as *mut c_int)
    };
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just opened this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(pidfd) })
}

extern "C" fn child(argument: *mut libc::c_void) -> c_int {
    // SAFETY: the parent passed a ChildPlan and is suspended, so this is the only reference in use.
    let plan = unsafe { &mut *argument.cast::<ChildPlan>() };
    if let Err(failure) = become_command(plan) {
        plan.failed = Some(failure);
    }
    // SAFETY: ends this process without running anything of the parent's.
    unsafe { libc::_exit(127) }
}

/// Allocates nothing, takes no locks. Returns only when something failed.
fn become_command(plan: &mut ChildPlan) -> std::result::Result<(), (ChildStep, c_int)> {
    let check = |step: ChildStep, result: c_int| {
        if result < 0 { Err((step, errno())) } else { Ok(()) }
    };
    // SAFETY: raw system calls on values that live in the plan or on this stack; strings and vectors were prepared
    // by the parent and end in a null.
    unsafe {
        // The mark by which this command's processes are found, whatever they do: inherited by all descendants,
        // and nothing inside has the capability to leave it.
        check(ChildStep::Mark, libc::unshare(libc::CLONE_NEWUTS))?;
        let mut found: libc::stat = std::mem::zeroed();
        check(ChildStep::Mark, libc::stat(c"/proc/self/ns/uts".as_ptr(), &mut found))?;
        plan.tag = found.st_ino;

        // The Rust runtime ignores SIGPIPE; programs expect its default.
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
        check(ChildStep::Session, libc::setsid())?;
        if plan.has_terminal {
            check(ChildStep::Terminal, libc::ioctl(plan.stdio[0], libc::TIOCSCTTY as _, 0))?;
        }
        // Every descriptor here is above 2, because 0 to 2 of this process are taken: no dup2 can overwrite one
        // that is still needed.
        for (target, source) in plan.stdio.iter().enumerate() {
            check(ChildStep::Descriptors, libc::dup2(*source, target as c_int))?;
        }
        // All others are marked already; this holds whatever is forgotten one day.
        libc::syscall(libc::SYS_close_range, 3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC);
        check(ChildStep::WorkingDirectory, libc::chdir(plan.cwd.as_ptr()))?;
        check(ChildStep::Capabilities, drop_all_capabilities())?;
        check(ChildStep::Siblings, forbid_siblings())?;

        // As a shell looks it up: "not found" only if no candidate was there, the first other problem otherwise.
        let mut problem = libc::ENOENT;
        for candidate in &plan.candidates {
            libc::execve(candidate.as_ptr(), plan.arguments.as_ptr(), plan.environment.as_ptr());
            let error = errno();
            if !matches!(error, libc::ENOENT | libc::ENOTDIR) && problem == libc::ENOENT {
                problem = error;
            }
        }
        Err((ChildStep::Execute, problem))
    }
}

#[repr(C)]
struct CapabilityHeader {
    version: u32,
    pid: c_int,
}

/// # Safety
/// None beyond being a system call; kept apart for its structures.
unsafe fn drop_all_capabilities() -> c_int {
    let mut header = CapabilityHeader { version: 0x2008_0522, pid: 0 };
    let nothing = [0u32; 6];
    // SAFETY: version 3 of the interface takes two times three words, which `nothing` is.
    unsafe { libc::syscall(libc::SYS_capset, &mut header as *mut CapabilityHeader, nothing.as_ptr()) as c_int }
}

/// A command is a child of the guest's. With CLONE_PARENT it could make the guest further children, which nobody
/// would collect: they would fill up the number of processes. Only the spawner needs that flag, so this comes last.
static NO_SIBLINGS: [libc::sock_filter; 6] = {
    const fn step(code: u32, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
        libc::sock_filter { code: code as u16, jt, jf, k }
    }
    let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    [
        step(load, 0, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 2, libc::SYS_clone as u32),
        step(load, 0, 0, 16), // The lower half of the first argument.
        step(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K, 1, 0, libc::CLONE_PARENT as u32),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
    ]
};

/// # Safety
/// None beyond being a system call; kept apart for its structures.
unsafe fn forbid_siblings() -> c_int {
    let filter = libc::sock_fprog { len: NO_SIBLINGS.len() as u16, filter: NO_SIBLINGS.as_ptr().cast_mut() };
    // SAFETY: the kernel reads the program, whose length is beside it, and writes nothing.
    unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const filter) as c_int }
}

fn errno() -> c_int {
    // SAFETY: the address is this thread's errno; in the child it is the parent's, which is suspended.
    unsafe { *libc::__errno_location() }
}

fn open_terminal(size: TerminalSize) -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let controller = rustix::fs::open("/dev/pts/ptmx", flags, Mode::empty())?;
    rustix::pty::unlockpt(&controller)?;
    let window = rustix::termios::Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 };
    rustix::termios::tcsetwinsize(&controller, window)?;
    let peer = sys::open_terminal_peer(&controller)?;
    Ok((controller, peer))
}

fn candidates(command: &str, path: &str) -> Vec<CString> {
    if command.contains('/') {
        return CString::new(command).into_iter().collect();
    }
    let directories = path.split(':').filter(|directory| !directory.is_empty());
    directories.filter_map(|directory| CString::new(format!("{directory}/{command}")).ok()).collect()
}

/// Names go into a sentence; a hundred kilobytes of one help nobody.
fn shortened(text: &str) -> String {
    const MOST: usize = 1_000;
    if text.chars().count() <= MOST { text.to_owned() } else { text.chars().take(MOST).chain(['…']).collect() }
}

fn explain(spawn: &Spawn, step: ChildStep, errno: c_int) -> StartError {
    let command = shortened(&spawn.argv[0]);
    let detail = io::Error::from_raw_os_error(errno).to_string();
    match (step, errno) {
        (ChildStep::Execute, libc::ENOENT | libc::ENOTDIR) if !command.contains('/') => {
            StartError::NotFound { command, path: shortened(&spawn.path) }
        }
        (ChildStep::Execute, libc::ENOEXEC) => StartError::NotExecutable {
            command,
            detail: "it is neither a program of this machine nor a script that begins with #!".to_owned(),
        },
        (ChildStep::Execute, libc::EACCES) => StartError::NotExecutable {
            command,
            detail: "permission denied; it must be a file with its executable bit set (chmod +x)".to_owned(),
        },
        (ChildStep::Execute, libc::ENOENT) => StartError::NotExecutable {
            command,
            detail: "there is no such file in the sandbox, or the interpreter it names is missing".to_owned(),
        },
        (ChildStep::Execute, _) => StartError::NotExecutable { command, detail },
        (ChildStep::WorkingDirectory, _) => StartError::WorkingDirectory { cwd: shortened(&spawn.cwd), detail },
        (step, _) => StartError::Other { step: format!("{step:?}"), detail },
    }
}
