//! What the launcher and a starting guest say to each other over the control socket, and the guest and its spawner
//! over theirs. Descriptors travel beside these messages; each variant says which.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::exec::{StartError, TerminalSize};
use crate::limits::Limits;

/// Where programs inside find the egress proxy, in the sandbox's own loopback.
pub const PROXY_PORT: u16 = 3128;
/// Where a leased sandbox is attached to, in its state directory, and what tells that it lives.
pub const CONTROL_SOCKET_NAME: &str = "control.sock";
pub const LOCK_NAME: &str = "lock";
/// The user inside: `agent`.
pub const AGENT_ID: u32 = 1000;

/// Launcher to guest.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToGuest {
    /// The first message: build everything that does not depend on the workspace. A leased sandbox's lock, taken,
    /// comes with it.
    Prepare(Prepare),
    /// The second: bind the workspace, close the walls, begin to serve.
    Assign(Assign),
    /// Serve HTTP/2 on the descriptor that comes with this.
    Connect,
}

/// Guest to launcher.
#[derive(Debug, Serialize, Deserialize)]
pub enum FromGuest {
    /// Sealed and serving. Carries the listening socket of the proxy when the network was asked for.
    Ready,
    Failed(LaunchFailure),
}

/// The step of a launch that failed, for one sentence to the user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{step}: {detail}")]
pub struct LaunchFailure {
    pub step: String,
    pub detail: String,
    pub errno: i32,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Prepare {
    pub id: String,
    /// When the launcher is root: the unprivileged user that the sandbox is on the host.
    pub dedicated_id: Option<u32>,
    pub limits: Limits,
    pub cgroup: Option<CgroupPlan>,
    /// The root directory, in order; parents first.
    pub root: Vec<RootEntry>,
    /// Directory for the unnamed files that long output is kept in.
    pub spool_directory: String,
    /// A leased sandbox listens here, in a directory of its own that also holds its lock.
    pub state_directory: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Assign {
    pub workspace: WorkspaceSource,
    /// Offer the proxy inside; its listening socket comes back with `Ready`.
    pub network: bool,
    /// What every command's environment begins with; nothing of the host's is in it.
    pub environment: BTreeMap<String, String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum WorkspaceSource {
    /// In memory, gone with the sandbox; its size limit is exact.
    Temporary,
    /// A directory of the host's. Device and inode are what the launcher checked; the guest binds nothing else.
    Directory { path: String, device: u64, inode: u64 },
}

/// One thing in the sandbox's root directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RootEntry {
    Directory {
        path: String,
    },
    File {
        path: String,
        content: String,
    },
    Symlink {
        path: String,
        target: String,
    },
    /// A directory or file of the host's, read-only, with everything mounted below it.
    Bind {
        source: String,
        path: String,
    },
    /// A device node of the host's, for reading and writing.
    Device {
        path: String,
    },
    /// A writable directory on the sandbox's memory file system.
    Scratch {
        path: String,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum CgroupPlan {
    /// One directory per controller, under which the guest makes its own.
    V1 {
        memory: Option<String>,
        pids: Option<String>,
        cpu: Option<String>,
    },
    V2 {
        directory: String,
    },
}

/// Guest to spawner.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToSpawner {
    /// The network namespace to enter comes with this.
    Network,
    /// With the workspace as a mount, when the launcher is root.
    Assign(Assign),
    /// With three descriptors (stdin, stdout, stderr), or none when a terminal is asked for.
    Spawn(Spawn),
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Spawn {
    /// Full path candidates are tried inside; `argv[0]` may lack a slash.
    pub argv: Vec<String>,
    /// `NAME=VALUE`, complete.
    pub env: Vec<String>,
    pub path: String,
    pub cwd: String,
    pub terminal: Option<TerminalSize>,
}

/// Spawner to guest.
#[derive(Debug, Serialize, Deserialize)]
pub enum FromSpawner {
    /// Process 1 has started. With its pidfd.
    Reaper,
    /// The walls are closed. With: /workspace, /proc, and where the kernel has it the seccomp listener.
    Sealed,
    Failed(LaunchFailure),
    /// With the process as a pidfd, and the terminal's controlling side if one was asked for.
    Spawned {
        tag: u64,
    },
    NotSpawned(StartError),
}
