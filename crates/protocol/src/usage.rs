//! What a sandbox is using, as the guest measures it from outside the work.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    pub cpu_ms: u64,
    pub memory_bytes: u64,
    pub memory_peak_bytes: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
    pub processes: u64,
    /// Whether memory is the kernel's own count (a cgroup) or added up from the processes.
    pub memory_is_exact: bool,
}
