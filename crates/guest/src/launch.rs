//! How a sandbox starts, as seen by the guest, and how it ends. The order is the security argument:
//!
//! 1. What needs the launcher's rights is done first: control groups, mounts to take along, the lock and the socket
//!    of a leased sandbox. Then those rights are given up (`dedicated_id`).
//! 2. A user namespace. The guest stays in this one, in the network namespace below, and in the host's others.
//! 3. The spawner is forked and closes the walls of the work around itself (see [`crate::spawner`]); meanwhile the
//!    guest makes the network namespace that both will be in.
//! 4. The guest drops what it no longer needs and serves. When the launcher goes, or the lease runs out, or the
//!    sandbox dies, it ends everything and removes its control groups.

use std::fs::File;
use std::io::{self, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::ExitCode;
use std::rc::Rc;

use cofferdam_linux::channel;
use cofferdam_protocol::launch::{
    AGENT_ID, Assign, CONTROL_SOCKET_NAME, FromGuest, FromSpawner, PROXY_PORT, Prepare, ToGuest, ToSpawner,
};
use rustix::fs::{Mode, OFlags};
use rustix::thread::CapabilitySet;
use tokio::io::unix::AsyncFd;

use crate::cgroup::Cgroup;
use crate::error::{Result, Step, StepError};
use crate::server::Guest;
use crate::{root, seal, server, spawner, sys};

/// Threads that read and write large files and archives, so that nothing else waits for a disk.
const FILE_THREADS_MAX: usize = 4;

/// From the first message to the last breath.
pub fn run(control: OwnedFd) -> Result<()> {
    let control = settle_descriptors(control)?;
    let _ = rustix::thread::set_name(c"cofferdam-guest");
    // Results that wait to be acknowledged and transfers hold descriptors; commands get a limit of their own.
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let most = rustix::process::Rlimit { current: files.maximum, maximum: files.maximum };
    let _ = rustix::process::setrlimit(rustix::process::Resource::Nofile, most);
    // Signals typed at the launcher's terminal are the launcher's to handle.
    let _ = rustix::process::setsid();
    let _ = rustix::process::chdir("/");
    let (message, lock) = channel::receive(&control).step("reading the launcher's first message")?;
    let ToGuest::Prepare(prepare) = message else {
        return Err(io::Error::from(io::ErrorKind::InvalidData)).step("reading the launcher's first message");
    };
    let mut cgroup = Cgroup::default();
    // `lock` is a leased sandbox's, taken by the launcher: held until this process ends.
    let outcome = prepare_sandbox(&prepare, &mut cgroup, &control, &lock);
    let cgroup = Rc::new(cgroup);
    let outcome = outcome.and_then(|parts| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(FILE_THREADS_MAX)
            .build()
            .step("starting")?;
        let lived = tokio::task::LocalSet::new().block_on(&runtime, live(&prepare, parts, cgroup.clone(), &control));
        // Threads that are still reading files end with the process; nobody waits for them.
        runtime.shutdown_background();
        lived
    });
    if let Err(error) = &outcome {
        let _ = channel::send(&control, &FromGuest::Failed(error.to_failure()), &[]);
    }
    cgroup.remove();
    outcome
}

/// What outlives the preparation.
struct Parts {
    spawner: OwnedFd,
    spawner_pidfd: OwnedFd,
    spool_directory: OwnedFd,
    listener: Option<OwnedFd>,
}

fn prepare_sandbox(prepare: &Prepare, cgroup: &mut Cgroup, control: &OwnedFd, lock: &[OwnedFd]) -> Result<Parts> {
    // 1. With the launcher's rights.
    if let Some(plan) = &prepare.cgroup {
        *cgroup = Cgroup::create(plan, &prepare.id, &prepare.limits)?;
    }
    let listener = prepare.state_directory.as_deref().map(listen).transpose()?;
    let spool = prepare.spool_directory.as_str();
    let spool_directory = rustix::fs::open(spool, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .step_with(|| format!("opening the spool directory {spool}"))?;
    let mut trees = None;
    if let Some(id) = prepare.dedicated_id {
        trees = Some(root::open_trees(&prepare.root)?);
        sys::become_unprivileged(id).step("becoming the sandbox's user")?;
        // Changing users made this process undumpable, and its own /proc files root's; the maps below are there.
        rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::Dumpable).step("staying dumpable")?;
    }

    // 2. The user namespace.
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    sys::unshare(libc::CLONE_NEWUSER).step("making a user namespace")?;
    write_map("/proc/self/setgroups", "deny")?;
    write_map("/proc/self/uid_map", &format!("{AGENT_ID} {} 1", uid.as_raw()))?;
    write_map("/proc/self/gid_map", &format!("{AGENT_ID} {} 1", gid.as_raw()))?;
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)
        .step("becoming undumpable")?;

    // 3. The spawner.
    let (spawner, theirs) = channel::pair().step("making a socket for the spawner")?;
    let own_pid = std::process::id();
    let spawner_pidfd = match sys::fork(0).step("starting the spawner")? {
        sys::Forked::Child => {
            drop(spawner);
            // What belongs to the guest alone; everything else is closed by execve.
            for descriptor in [control, &spool_directory].into_iter().chain(lock).chain(&listener) {
                close_copy(descriptor.as_fd());
            }
            spawner::run(prepare, cgroup, trees, theirs, own_pid)
        }
        sys::Forked::Parent(pidfd) => pidfd,
    };

    // The network namespace takes as long to make as all mounts together: made here while the spawner makes those.
    sys::unshare(libc::CLONE_NEWNET).step("making a network namespace")?;
    let network = File::open("/proc/self/ns/net").step("opening the network namespace")?;
    channel::send(&spawner, &ToSpawner::Network, &[network.as_fd()]).step("handing over the network namespace")?;
    sys::loopback_up().step("switching the loopback interface on")?;
    Ok(Parts { spawner, spawner_pidfd, spool_directory, listener })
}

/// In the forked child: closes its copy of a descriptor that the copied owner will never drop.
fn close_copy(descriptor: std::os::fd::BorrowedFd<'_>) {
    // SAFETY: this process never returns to the frames that own the descriptor, so nobody closes it twice.
    unsafe { libc::close(descriptor.as_raw_fd()) };
}

/// 4. Waiting for the assignment, serving, ending.
async fn live(prepare: &Prepare, parts: Parts, cgroup: Rc<Cgroup>, control: &OwnedFd) -> Result<()> {
    let control = control.try_clone().step("watching the control socket")?;
    let control = sys::watch(control).step("watching the control socket")?;
    let spawner = sys::watch(parts.spawner).step("watching the spawner")?;
    // Waits here while the sandbox is in a pool. The spawner gets its assignment as early as there is one.
    let assignment = assign(&control, &spawner).await;
    let reaper = match from_spawner(&spawner).await? {
        (FromSpawner::Reaper, mut descriptors) if descriptors.len() == 1 => descriptors.remove(0),
        (answer, _) => return Err(unexpected(answer)),
    };
    let life = Life { reaper, spawner: parts.spawner_pidfd, cgroup };
    let served = match assignment {
        Ok(Some(assign)) => {
            serve(prepare, assign, spawner, parts.spool_directory, parts.listener, &life, &control).await
        }
        // The launcher went away, and the sandbox was never used.
        Ok(None) => Ok(()),
        Err(error) => Err(error),
    };
    life.end();
    served
}

async fn assign(control: &AsyncFd<OwnedFd>, spawner: &AsyncFd<OwnedFd>) -> Result<Option<Assign>> {
    let (assign, tree) = match receive_control(control).await? {
        Some((ToGuest::Assign(assign), descriptors)) => (assign, descriptors.into_iter().next()),
        Some(_) => return Err(io::Error::from(io::ErrorKind::InvalidData)).step("waiting for the assignment"),
        None => return Ok(None),
    };
    let borrowed: Vec<_> = tree.iter().map(AsFd::as_fd).collect();
    // A spawner that has failed meanwhile says why, in its answer.
    let _ = channel::send(spawner.get_ref(), &ToSpawner::Assign(assign.clone()), &borrowed);
    Ok(Some(assign))
}

async fn serve(
    prepare: &Prepare,
    assign: Assign,
    spawner: AsyncFd<OwnedFd>,
    spool_directory: OwnedFd,
    listener: Option<OwnedFd>,
    life: &Life,
    control: &AsyncFd<OwnedFd>,
) -> Result<()> {
    let proxy = open_proxy(&assign)?;
    let (workspace, processes, refusals) = match from_spawner(&spawner).await? {
        (FromSpawner::Sealed, descriptors) => {
            let mut descriptors = descriptors.into_iter();
            let missing = || io::Error::from(io::ErrorKind::InvalidData);
            let workspace = descriptors.next().ok_or_else(missing).step("receiving the workspace")?;
            let processes = descriptors.next().ok_or_else(missing).step("receiving /proc")?;
            (workspace, processes, descriptors.next())
        }
        (answer, _) => return Err(unexpected(answer)),
    };
    // Reading what a command is marked with may need the one, counting the files in directories that nobody may read
    // the other; nothing else is needed any more.
    seal::drop_capabilities(CapabilitySet::SYS_PTRACE | CapabilitySet::DAC_READ_SEARCH)?;
    let guest = Guest::new(server::Inside {
        limits: prepare.limits,
        temporary_workspace: assign.workspace == cofferdam_protocol::launch::WorkspaceSource::Temporary,
        environment: assign.environment,
        workspace,
        processes,
        refusals,
        spool_directory: Rc::new(spool_directory),
        spawner,
        cgroup: life.cgroup.clone(),
    })
    .step("starting to serve")?;
    let borrowed: Vec<_> = proxy.iter().map(AsFd::as_fd).collect();
    channel::send(control.get_ref(), &FromGuest::Ready, &borrowed).step("reporting to the launcher")?;
    until_the_end(&guest, life, control, listener, proxy).await
}

/// Returns when the sandbox is to end: the launcher has gone (tied), the lease has run out (leased), or it was asked
/// to. A sandbox that died by itself stays answerable until then.
async fn until_the_end(
    guest: &Rc<Guest>,
    life: &Life,
    control: &AsyncFd<OwnedFd>,
    listener: Option<OwnedFd>,
    proxy: Option<TcpListener>,
) -> Result<()> {
    for process in [&life.reaper, &life.spawner] {
        let process = process.try_clone().and_then(sys::watch).step("watching the sandbox's own processes")?;
        let guest = guest.clone();
        tokio::task::spawn_local(async move {
            let _ = process.readable().await;
            guest.sandbox_died();
        });
    }
    if let Some(listener) = listener {
        let listener = sys::watch(listener).step("listening")?;
        tokio::task::spawn_local(accept_launchers(guest.clone(), listener, proxy));
    }
    tokio::select! {
        biased;
        () = guest.lease.ended() => {}
        () = async {
            connect_on_demand(guest, control).await;
            if guest.lease.is_leased() {
                std::future::pending::<()>().await;
            }
        } => {}
    }
    Ok(())
}

/// A server that came back attaches by connecting to the state directory's socket: it is given the proxy's port
/// again, and may open connections as the first launcher could.
async fn accept_launchers(guest: Rc<Guest>, listener: AsyncFd<OwnedFd>, proxy: Option<TcpListener>) {
    let accept = |socket: &OwnedFd| {
        let flags = rustix::net::SocketFlags::CLOEXEC;
        Ok(rustix::net::accept_with(socket, flags)?)
    };
    while let Ok(connection) = listener.async_io(tokio::io::Interest::READABLE, accept).await {
        let borrowed: Vec<_> = proxy.iter().map(AsFd::as_fd).collect();
        if channel::send(&connection, &FromGuest::Ready, &borrowed).is_err() {
            continue;
        }
        let guest = guest.clone();
        if let Ok(connection) = sys::watch(connection) {
            tokio::task::spawn_local(async move { connect_on_demand(&guest, &connection).await });
        }
    }
}

/// Serves each byte stream that comes over a control socket, until that socket closes.
async fn connect_on_demand(guest: &Rc<Guest>, control: &AsyncFd<OwnedFd>) {
    while let Ok(Some((ToGuest::Connect, descriptors))) = receive_control(control).await {
        for descriptor in descriptors {
            guest.clone().serve_connection(descriptor);
        }
    }
}

/// The processes to end, and what is left to remove when they have.
struct Life {
    reaper: OwnedFd,
    spawner: OwnedFd,
    cgroup: Rc<Cgroup>,
}

impl Life {
    /// Kills everything and collects all of it. Commands are children of this process, and the reaper's end is
    /// complete only when each of them has been collected.
    fn end(&self) {
        for process in [&self.reaper, &self.spawner] {
            let _ = sys::send_signal(process.as_fd(), libc::SIGKILL);
        }
        while rustix::process::wait(rustix::process::WaitOptions::empty()).is_ok() {}
        self.cgroup.remove();
    }
}

async fn receive_control(control: &AsyncFd<OwnedFd>) -> Result<Option<(ToGuest, Vec<OwnedFd>)>> {
    match control.async_io(tokio::io::Interest::READABLE, |socket| receive_now(socket)).await {
        Ok(message) => Ok(Some(message)),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error).step("reading from the launcher"),
    }
}

async fn from_spawner(spawner: &AsyncFd<OwnedFd>) -> Result<(FromSpawner, Vec<OwnedFd>)> {
    spawner.async_io(tokio::io::Interest::READABLE, |socket| receive_now(socket)).await.step("hearing from the spawner")
}

/// Without waiting: the sockets themselves stay blocking, because the spawner and the launcher share them.
pub fn receive_now<T: serde::de::DeserializeOwned>(socket: impl AsFd) -> io::Result<(T, Vec<OwnedFd>)> {
    let mut watched = [rustix::event::PollFd::new(&socket, rustix::event::PollFlags::IN)];
    let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    if rustix::event::poll(&mut watched, Some(&now))? == 0 {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    channel::receive(socket)
}

fn unexpected(answer: FromSpawner) -> StepError {
    match answer {
        FromSpawner::Failed(failure) => StepError {
            step: failure.step,
            source: if failure.errno == 0 {
                io::Error::other(failure.detail)
            } else {
                io::Error::from_raw_os_error(failure.errno)
            },
        },
        answer => StepError { step: "starting".to_owned(), source: io::Error::other(format!("unexpected {answer:?}")) },
    }
}

fn open_proxy(assign: &Assign) -> Result<Option<TcpListener>> {
    if !assign.network {
        return Ok(None);
    }
    TcpListener::bind((Ipv4Addr::LOCALHOST, PROXY_PORT)).map(Some).step("opening the proxy's port in the sandbox")
}

/// Moves the control socket away from descriptor 0 and closes whatever else was inherited.
fn settle_descriptors(control: OwnedFd) -> Result<OwnedFd> {
    // SAFETY: closes descriptors that nothing in this process owns: it has just started, and owns 0 to 2. Whatever
    // else is open came from the launcher's own parents, and would go on to the commands.
    unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) };
    let moved = rustix::io::fcntl_dupfd_cloexec(&control, 3).step("moving the control socket")?;
    let null = rustix::fs::open("/dev/null", OFlags::RDWR, Mode::empty()).step("opening /dev/null")?;
    let mut standard = control;
    rustix::io::dup2(&null, &mut standard).step("closing standard input")?;
    std::mem::forget(standard);
    Ok(moved)
}

fn listen(directory: &str) -> Result<OwnedFd> {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
    let listen = || -> io::Result<OwnedFd> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        // Through a descriptor: the address of a socket is 108 bytes at most, and the directory's path may be longer.
        let directory = rustix::fs::open(directory, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let path = format!("/proc/self/fd/{}/{CONTROL_SOCKET_NAME}", directory.as_raw_fd());
        rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
        rustix::net::listen(&socket, 16)?;
        Ok(socket)
    };
    listen().step_with(|| format!("listening in {directory}"))
}

fn write_map(path: &str, content: &str) -> Result<()> {
    let write = || File::options().write(true).open(path)?.write_all(content.as_bytes());
    write().step_with(|| format!("writing {path}"))
}

/// Another use of this program: a process in a user namespace of its own, for as long as its input stays open. A
/// launcher that is root needs such a namespace to express "files of root's, seen as the sandbox's user's".
pub fn hold_user_namespace() -> ExitCode {
    if sys::unshare(libc::CLONE_NEWUSER).is_err()
        || io::stdout().write_all(b"+").is_err()
        || io::stdout().flush().is_err()
    {
        return ExitCode::FAILURE;
    }
    let _ = io::copy(&mut io::stdin(), &mut io::sink());
    ExitCode::SUCCESS
}
