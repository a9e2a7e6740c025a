//! The data directory: what lies where in it, and the lock that lets one server at a time use it. The lock file says
//! who that is, for whoever comes second and for the command line that looks for a server.
//!
//! ```text
//! server.lock     held while a server lives; its content says where it listens
//! cofferdam.db    the store
//! tasks/{id}/     one directory for each job, see `jobs::directory`
//! incoming/{id}/  input files of jobs that have not started, and uploads that are not complete
//! sandboxes/      what is needed to find living sandboxes again
//! spool/          long output that sandboxes hold back
//! ```

use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cofferdam_protocol::job::JobId;
use serde::{Deserialize, Serialize};

use crate::ServerError;

const LOCK_NAME: &str = "server.lock";
/// A process that a killed server was about to start holds the lock until it runs its own program; a server that is
/// starting has not said yet where it listens.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);
const LOCK_INTERVAL: Duration = Duration::from_millis(5);

/// A server that lives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningServer {
    pub pid: u32,
    pub url: String,
}

impl RunningServer {
    fn is_alive(&self) -> bool {
        let pid = i32::try_from(self.pid).ok().and_then(rustix::process::Pid::from_raw);
        pid.is_some_and(|pid| rustix::process::test_kill_process(pid) != Err(rustix::io::Errno::SRCH))
    }
}

/// The data directory, ours until this is dropped.
#[derive(Debug)]
pub struct DataDirectory {
    root: PathBuf,
    lock: File,
}

/// The server that uses this data directory now, if there is one.
pub fn running_server(data: &Path) -> Option<RunningServer> {
    let mut lock = File::open(data.join(LOCK_NAME)).ok()?;
    if try_lock(&lock, rustix::fs::FlockOperation::NonBlockingLockShared) {
        return None;
    }
    let mut text = String::new();
    lock.read_to_string(&mut text).ok()?;
    // Empty between its start and its listening.
    serde_json::from_str(&text).ok()
}

fn try_lock(file: &File, operation: rustix::fs::FlockOperation) -> bool {
    rustix::fs::flock(file, operation).is_ok()
}

impl DataDirectory {
    pub fn lock(data: &Path) -> Result<Self, ServerError> {
        let wrong = |source| ServerError::Data { data: data.to_owned(), source };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(data).map_err(wrong)?;
        let root = data.canonicalize().map_err(wrong)?;
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let lock = options.open(root.join(LOCK_NAME)).map_err(wrong)?;
        let deadline = Instant::now() + LOCK_PATIENCE;
        while !try_lock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
            let first = running_server(data);
            if first.as_ref().is_some_and(RunningServer::is_alive) || Instant::now() >= deadline {
                let first = first.unwrap_or(RunningServer { pid: 0, url: "(starting)".to_owned() });
                return Err(ServerError::InUse { data: root, url: first.url, pid: first.pid });
            }
            std::thread::sleep(LOCK_INTERVAL);
        }
        lock.set_len(0).map_err(wrong)?;
        let directory = Self { root, lock };
        for part in [directory.tasks(), directory.incoming(), directory.sandboxes(), directory.spool()] {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(part).map_err(wrong)?;
        }
        // Guests may run under an id of their own, and make files without names in it: they are given the directory
        // itself, and nobody else gets past the one above.
        fs::set_permissions(directory.spool(), fs::Permissions::from_mode(0o1733)).map_err(wrong)?;
        Ok(directory)
    }

    /// Tells whoever looks where this server listens.
    pub fn announce(&mut self, url: &str) -> io::Result<()> {
        let server = RunningServer { pid: std::process::id(), url: url.to_owned() };
        self.lock.set_len(0)?;
        self.lock.rewind()?;
        self.lock.write_all(serde_json::to_string(&server)?.as_bytes())
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn database(&self) -> PathBuf {
        self.root.join("cofferdam.db")
    }

    pub fn tasks(&self) -> PathBuf {
        self.root.join("tasks")
    }

    pub fn task(&self, id: &JobId) -> PathBuf {
        self.tasks().join(id.as_str())
    }

    pub fn incoming(&self) -> PathBuf {
        self.root.join("incoming")
    }

    pub fn sandboxes(&self) -> PathBuf {
        self.root.join("sandboxes")
    }

    pub fn spool(&self) -> PathBuf {
        self.root.join("spool")
    }
}

impl Drop for DataDirectory {
    fn drop(&mut self) {
        // Before the lock goes: nobody reads an address where nobody listens.
        let _ = self.lock.set_len(0);
    }
}
