//! Sandboxes on this machine, out of Linux namespaces: no daemon, no root, no image. This file owns what all
//! sandboxes of a process share and the conversation with a starting guest; the guest does the rest.
//!
//! [`LocalRuntime::launch`] makes one, [`LocalRuntime::prepare`] makes one without a workspace for the pool, and
//! [`LocalRuntime::attach`] finds a leased one again after a restart.

mod cgroup;
mod host;
mod ids;
mod sandbox;
mod workspace;

use std::ffi::OsStr;
use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cofferdam_linux::channel;
use cofferdam_protocol::launch::{Assign, CONTROL_SOCKET_NAME, CgroupPlan, FromGuest, LOCK_NAME, Prepare, ToGuest};
use cofferdam_protocol::{Limits, NetworkPolicy};
use tokio::process::{Child, Command};

use crate::SandboxError;
use crate::egress::ConnectionRecord;
use crate::guest_program::GuestProgram;
use host::HostView;
use ids::IdMap;
pub use sandbox::Sandbox;
pub use workspace::Workspace;

/// Ten seconds for the processes of a killed guest to be collected by the system's first process.
const REMOVE_ATTEMPTS: u32 = 1_000;
const REMOVE_INTERVAL: std::time::Duration = std::time::Duration::from_millis(10);

/// How long a sandbox that nobody wants may take to answer before it is looked at again.
const DISCARD_PATIENCE: std::time::Duration = std::time::Duration::from_secs(1);
/// And before it is left to its lease.
const DISCARD_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);

/// A sandbox takes milliseconds to start, and on a machine with hundreds of others starting perhaps a second.
const START_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(60);

/// How this process makes sandboxes.
#[derive(Debug, Clone, Default)]
pub struct LocalConfig {
    /// Directories of the host's to offer read-only under their own names, besides the system's.
    pub read_only: Vec<PathBuf>,
    /// Where leased sandboxes leave what is needed to find them again. Without it there are only tied ones.
    pub state_directory: Option<PathBuf>,
    /// Where long output is kept; the system's directory for temporary files if it is not named.
    pub spool_directory: Option<PathBuf>,
}

/// What one sandbox is to be.
#[derive(Debug, Clone, Default)]
pub struct SandboxSpec {
    pub workspace: Workspace,
    pub limits: Limits,
    pub network: NetworkPolicy,
}

/// Receives every connection that a sandbox tries to make.
pub type ConnectionLog = Arc<dyn Fn(&ConnectionRecord) + Send + Sync>;

#[derive(Debug)]
pub struct LocalRuntime {
    program: GuestProgram,
    host: HostView,
    cgroup: Option<CgroupPlan>,
    dedicated_id: Option<u32>,
    id_map: IdMap,
    state_directory: Option<PathBuf>,
    spool_directory: String,
    processors: u64,
    next_number: AtomicU64,
}

/// A sandbox that has everything but its workspace.
#[derive(Debug)]
pub struct Prepared {
    id: String,
    limits: Limits,
    guest: GuestProcess,
}

/// The guest as this process holds it: closing the control socket ends it.
#[derive(Debug)]
struct GuestProcess {
    child: Child,
    control: OwnedFd,
}

impl LocalRuntime {
    pub fn new(config: &LocalConfig) -> Result<Self, SandboxError> {
        let program = GuestProgram::new().map_err(|error| SandboxError::io("loading the guest", error))?;
        let dedicated_id = ids::dedicated_id();
        let cgroup = cgroup::find(dedicated_id);
        if fs::read_to_string("/proc/sys/user/max_user_namespaces").is_ok_and(|most| most.trim() == "0") {
            let detail = "user.max_user_namespaces is 0; inside a sandbox there can be no further one".to_owned();
            return Err(SandboxError::NoUserNamespaces { detail });
        }
        let spool = config.spool_directory.clone().unwrap_or_else(std::env::temp_dir);
        let spool = if spool.as_os_str().is_empty() { "/tmp".into() } else { spool };
        let runtime = Self {
            program,
            host: HostView::new(&config.read_only)?,
            cgroup,
            dedicated_id,
            id_map: IdMap::default(),
            state_directory: config.state_directory.clone(),
            spool_directory: text(&spool)?,
            processors: std::thread::available_parallelism().map_or(1, |number| number.get() as u64),
            next_number: AtomicU64::new(0),
        };
        runtime.sweep();
        Ok(runtime)
    }

    /// A sandbox, tied to this process until its lease is renewed for the first time.
    pub async fn launch(&self, spec: &SandboxSpec, log: Option<ConnectionLog>) -> Result<Sandbox, SandboxError> {
        self.prepare(&spec.limits)?.assign(self, spec, log).await
    }

    /// Starts a guest and lets it prepare everything that does not depend on the workspace. Does not wait for it.
    pub fn prepare(&self, limits: &Limits) -> Result<Prepared, SandboxError> {
        let id = self.new_id();
        let state = self.state_directory.as_deref().map(|parent| State::new(parent, &id)).transpose()?;
        let prepare = Prepare {
            id: id.clone(),
            dedicated_id: self.dedicated_id,
            limits: *limits,
            cgroup: self.cgroup.as_ref().map(|plan| cgroup::needed(plan, limits, self.processors)),
            root: self.host.root.clone(),
            spool_directory: self.spool_directory.clone(),
            state_directory: state.as_ref().map(|state| text(&state.directory)).transpose()?,
        };
        let guest =
            GuestProcess::start(&self.program).map_err(|error| SandboxError::io("starting the guest", error))?;
        let lock: Vec<_> = state.iter().map(|state| state.lock.as_fd()).collect();
        guest.say(&ToGuest::Prepare(prepare), &lock)?;
        Ok(Prepared { id, limits: *limits, guest })
    }

    /// A leased sandbox of an earlier process.
    pub async fn attach(
        &self,
        id: &str,
        network: &NetworkPolicy,
        log: Option<ConnectionLog>,
    ) -> Result<Sandbox, SandboxError> {
        let missing = || SandboxError::NotFound { id: id.to_owned() };
        // Only what `new_id` makes: it becomes part of a path.
        if !id.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-') {
            return Err(missing());
        }
        let directory = self.state_directory.as_deref().ok_or_else(missing)?.join(id);
        let control = connect_control(&directory).map_err(|_| missing())?;
        Sandbox::attach(id.to_owned(), control, network, log, directory).await
    }

    /// Ends a sandbox of an earlier process that nobody wants, and removes what is left of it. One that was never
    /// leased listens but does not answer: it ends by itself, and may still be about to.
    pub async fn discard(&self, id: &str) {
        let Some(directory) = self.state_directory.as_deref().map(|parent| parent.join(id)) else { return };
        let deadline = tokio::time::Instant::now() + DISCARD_TIMEOUT;
        while tokio::time::Instant::now() < deadline {
            if !is_alive(&directory) {
                let _ = fs::remove_dir_all(&directory);
                return;
            }
            let attached = tokio::time::timeout(DISCARD_PATIENCE, self.attach(id, &NetworkPolicy::None, None)).await;
            if let Ok(Ok(sandbox)) = attached {
                let _ = sandbox.destroy().await;
                return;
            }
            tokio::time::sleep(REMOVE_INTERVAL).await;
        }
    }

    /// Whether processor time can be limited here.
    pub fn limits_cpu(&self) -> bool {
        matches!(&self.cgroup, Some(CgroupPlan::V2 { .. } | CgroupPlan::V1 { cpu: Some(_), .. }))
    }

    /// How limits are kept here, for `doctor`.
    pub fn cgroup_plan(&self) -> Option<&CgroupPlan> {
        self.cgroup.as_ref()
    }

    /// The leased sandboxes that live, of whichever process.
    pub fn leased(&self) -> Vec<String> {
        let entries = self.state_directory.iter().flat_map(fs::read_dir).flatten().flatten();
        entries
            .filter(|entry| is_id(&entry.file_name()) && is_alive(&entry.path()))
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect()
    }

    /// Removes what killed guests have left: state directories whose lock is free, control groups without a guest.
    fn sweep(&self) {
        for entry in self.state_directory.iter().flat_map(fs::read_dir).flatten().flatten() {
            let ours = is_id(&entry.file_name()) && !is_being_made(&entry.file_name());
            if ours && !is_alive(&entry.path()) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
        if let Some(plan) = &self.cgroup {
            cgroup::sweep(plan);
        }
    }

    /// Unique among all processes: number, process and time.
    fn new_id(&self) -> String {
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        format!("{:x}-{:x}-{number:x}", now.as_micros(), std::process::id())
    }
}

impl Prepared {
    /// Gives the sandbox its workspace and closes its walls.
    pub async fn assign(
        self,
        runtime: &LocalRuntime,
        spec: &SandboxSpec,
        log: Option<ConnectionLog>,
    ) -> Result<Sandbox, SandboxError> {
        debug_assert_eq!(self.limits, spec.limits, "limits are set when a sandbox is prepared");
        let leftovers = self.leftovers(runtime);
        let Self { id, guest, .. } = self;
        let workspace = spec.workspace.check().and_then(|checked| {
            let tree = match (&checked.directory, runtime.dedicated_id) {
                (Some(directory), Some(_)) => Some(runtime.id_map.mount(directory.as_fd(), &runtime.program)?),
                _ => None,
            };
            Ok((checked, tree))
        });
        let (checked, tree) = match workspace {
            Ok(workspace) => workspace,
            Err(error) => {
                guest.discard(leftovers, &id).await;
                return Err(error);
            }
        };
        let network = !spec.network.is_none();
        let assign = Assign { workspace: checked.source, network, environment: runtime.host.environment(network) };
        let borrowed: Vec<_> = tree.iter().map(AsFd::as_fd).collect();
        // A guest that has ended already has said why; that is read below.
        let _ = guest.say(&ToGuest::Assign(assign), &borrowed);
        Sandbox::begin(id, guest, leftovers, &spec.network, log).await
    }
}

impl Prepared {
    /// Ends it, and returns when nothing of it is left.
    pub(crate) async fn discard(self, runtime: &LocalRuntime) {
        let leftovers = self.leftovers(runtime);
        self.guest.discard(leftovers, &self.id).await;
    }

    fn leftovers(&self, runtime: &LocalRuntime) -> Leftovers {
        Leftovers {
            state_directory: runtime.state_directory.as_ref().map(|parent| parent.join(&self.id)),
            cgroup: runtime.cgroup.clone(),
        }
    }
}

/// What is removed for a guest that could not do it itself.
#[derive(Debug)]
struct Leftovers {
    state_directory: Option<PathBuf>,
    cgroup: Option<CgroupPlan>,
}

impl Leftovers {
    /// A guest that ended in order has left nothing. Of one that was killed, processes may still be on their way out.
    async fn remove(&self, guest_pid: Option<u32>, id: &str) {
        if let Some(directory) = &self.state_directory {
            let _ = fs::remove_dir_all(directory);
        }
        if let (Some(plan), Some(pid)) = (&self.cgroup, guest_pid) {
            for _ in 0..REMOVE_ATTEMPTS {
                if cgroup::remove(plan, pid, id) {
                    return;
                }
                tokio::time::sleep(REMOVE_INTERVAL).await;
            }
        }
    }
}

impl GuestProcess {
    fn start(program: &GuestProgram) -> std::io::Result<Self> {
        let (control, theirs) = channel::pair()?;
        // No pre_exec and only standard descriptors: the standard library can use posix_spawn, which does not copy
        // this process's memory map however large it is.
        let child = Command::new(program.path())
            .arg0(OsStr::new("cofferdam-guest"))
            .env_clear()
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self { child, control })
    }

    /// Ends a guest whose sandbox is not wanted after all.
    async fn discard(self, leftovers: Leftovers, id: &str) {
        let Self { mut child, control } = self;
        let pid = child.id();
        drop(control);
        sandbox::end(&mut child).await;
        leftovers.remove(pid, id).await;
    }

    fn say(&self, message: &ToGuest, descriptors: &[BorrowedFd<'_>]) -> Result<(), SandboxError> {
        channel::send(&self.control, message, descriptors).map_err(|_| SandboxError::Vanished)
    }
}

/// A leased sandbox's directory, with its lock taken.
struct State {
    directory: PathBuf,
    lock: fs::File,
}

impl State {
    fn new(parent: &Path, id: &str) -> Result<Self, SandboxError> {
        let directory = parent.join(id);
        let wrong = |error| SandboxError::io(format!("making {}", directory.display()), error);
        fs::DirBuilder::new().recursive(true).mode(0o700).create(parent).map_err(wrong)?;
        // Made under another name and locked before it gets its own: a sweep never sees it unlocked.
        let unfinished = parent.join(format!(".{id}"));
        fs::DirBuilder::new().mode(0o700).create(&unfinished).map_err(wrong)?;
        let lock = fs::File::create(unfinished.join(LOCK_NAME)).map_err(wrong)?;
        let exclusive = rustix::fs::FlockOperation::NonBlockingLockExclusive;
        rustix::fs::flock(&lock, exclusive).map_err(|error| wrong(error.into()))?;
        fs::rename(&unfinished, &directory).map_err(wrong)?;
        Ok(Self { directory, lock })
    }
}

/// Whether [`LocalRuntime::new_id`] could have made this name. Nothing else in the directory is touched.
fn is_id(name: &OsStr) -> bool {
    let is_hex = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_hexdigit());
    let parts = name.to_str().map(|name| name.strip_prefix('.').unwrap_or(name).split('-').collect::<Vec<_>>());
    parts.is_some_and(|parts| parts.len() == 3 && parts.into_iter().all(is_hex))
}

/// A directory that a living process has not finished yet; see [`State::new`] and [`LocalRuntime::new_id`].
fn is_being_made(name: &OsStr) -> bool {
    let maker = name.to_str().and_then(|name| name.strip_prefix('.')?.split('-').nth(1));
    maker.and_then(|pid| i32::from_str_radix(pid, 16).ok()).is_some_and(|pid| !cgroup::is_gone(pid))
}

fn is_alive(state_directory: &Path) -> bool {
    let Ok(lock) = fs::File::open(state_directory.join(LOCK_NAME)) else { return false };
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_err()
}

/// Through a descriptor: the address of a socket is 108 bytes at most, and the directory's path may be longer.
fn connect_control(directory: &Path) -> std::io::Result<OwnedFd> {
    use rustix::fs::{Mode, OFlags};
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
    let directory = rustix::fs::open(directory, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let path = format!("/proc/self/fd/{}/{CONTROL_SOCKET_NAME}", directory.as_raw_fd());
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

/// The guest's next message, without blocking the runtime: a starting guest takes some milliseconds.
async fn hear(control: &OwnedFd) -> Result<(FromGuest, Vec<OwnedFd>), SandboxError> {
    let socket = control.try_clone().map_err(|error| SandboxError::io("listening to the guest", error))?;
    let heard = tokio::time::timeout(START_TIMEOUT, sandbox::readable(&socket)).await;
    heard.map_err(|_| SandboxError::Vanished)?.map_err(|error| SandboxError::io("listening to the guest", error))?;
    channel::receive(&socket).map_err(|_| SandboxError::Vanished)
}

fn text(path: &Path) -> Result<String, SandboxError> {
    let wrong = || SandboxError::io(format!("{}", path.display()), std::io::Error::other("its name is not UTF-8"));
    path.to_str().map(str::to_owned).ok_or_else(wrong)
}
