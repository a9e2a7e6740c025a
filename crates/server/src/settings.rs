//! What a server is told before it starts. Where the values come from (flags, environment, file) is the command
//! line's.

use std::net::SocketAddr;
use std::path::PathBuf;

#[derive(Debug, Clone)]
pub struct Settings {
    pub listen: SocketAddr,
    pub data: PathBuf,
    /// Names besides the loopback ones under which requests may come.
    pub allowed_hosts: Vec<String>,
    /// Jobs at once; four for each processor if it is not given. 0: jobs are taken in, but none is started.
    pub jobs_max: Option<u32>,
    /// Jobs that may wait.
    pub queue_max: u64,
    /// Sandboxes kept ready.
    pub pool: usize,
    /// Of a job that does not say.
    pub job_timeout_ms: u64,
    pub idle_timeout_ms: u64,
    /// How long a stopping server waits for jobs that run. What still runs then goes on in its sandbox for
    /// `sandbox_lease_ms`, for the next server to take up.
    pub drain_timeout_ms: u64,
    /// How long a sandbox lives without a server.
    pub sandbox_lease_ms: u64,
    /// The most that one job may print.
    pub log_max_bytes: u64,
    /// The largest upload.
    pub upload_max_bytes: u64,
    /// Directories of the host's that sandboxes see read-only under their own names.
    pub read_only: Vec<PathBuf>,
}

impl Settings {
    pub const DEFAULT_LISTEN: &str = "127.0.0.1:8000";

    pub fn new(listen: SocketAddr, data: PathBuf) -> Self {
        const MINUTE_MS: u64 = 60_000;
        Self {
            listen,
            data,
            allowed_hosts: Vec::new(),
            jobs_max: None,
            queue_max: 100_000,
            pool: 4,
            job_timeout_ms: 60 * MINUTE_MS,
            idle_timeout_ms: 30 * MINUTE_MS,
            drain_timeout_ms: 30_000,
            sandbox_lease_ms: 5 * MINUTE_MS,
            log_max_bytes: 1 << 30,
            upload_max_bytes: 4 << 30,
            read_only: Vec::new(),
        }
    }
}
