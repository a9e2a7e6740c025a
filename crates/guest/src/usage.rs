//! What the sandbox uses: from its control group where there is one, else added up from its own /proc, which the
//! guest reads from outside.

use std::os::fd::{AsFd, OwnedFd};

use cofferdam_protocol::usage::Usage;
use rustix::fs::{Dir, Mode, OFlags};

use crate::cgroup::Cgroup;
use crate::sys;

/// USER_HZ, which is the same on every architecture that Linux has today.
const TICK_MS: u64 = 10;

pub fn measure(processes: &OwnedFd, cgroup: &Cgroup, polled_peak_bytes: u64) -> Usage {
    let (ended_ms, ended_read, ended_written) = sys::children_usage();
    let mut usage =
        Usage { cpu_ms: ended_ms, read_bytes: ended_read, written_bytes: ended_written, ..Usage::default() };
    for pid in process_ids(processes) {
        usage.processes += 1;
        let read = |file: &str| read_text(processes, &format!("{pid}/{file}"));
        if let Some(stat) = read("stat") {
            // Fields 14 to 17, counted behind the name in parentheses: own and waited-for children's ticks.
            let behind_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
            let ticks: u64 =
                behind_name.split_whitespace().skip(11).take(4).filter_map(|t| t.parse::<u64>().ok()).sum();
            usage.cpu_ms += ticks * TICK_MS;
        }
        if let Some(statm) = read("statm") {
            usage.memory_bytes += private_bytes(&statm);
        }
        if let Some(io) = read("io") {
            let value = |name: &str| io.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
            usage.read_bytes += value("read_bytes:").unwrap_or(0);
            usage.written_bytes += value("write_bytes:").unwrap_or(0);
        }
    }
    // Process 1 is the sandbox's own.
    usage.processes = usage.processes.saturating_sub(1);
    usage.memory_peak_bytes = polled_peak_bytes.max(usage.memory_bytes);
    if let Some((now, peak)) = cgroup.memory_bytes() {
        usage.memory_bytes = now;
        usage.memory_peak_bytes = peak;
        usage.memory_is_exact = true;
    }
    usage
}

/// Shared memory below this is not worth the look that tells whose it is.
const SHARED_MIN_BYTES: u64 = 8 * 1024 * 1024;

/// Memory of all processes without what they share with files: the estimate where no control group counts. Memory
/// that they share with each other counts once.
pub fn estimated_memory_bytes(processes: &OwnedFd) -> u64 {
    let ids = process_ids(processes);
    let read = |pid: u32, file: &str| read_text(processes, &format!("{pid}/{file}"));
    let private: u64 = ids.iter().filter_map(|pid| read(*pid, "statm")).map(|text| private_bytes(&text)).sum();
    let figure = |text: &str, name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
    };
    // Added up over the processes this counts too much; each one's share takes the kernel a walk through its memory.
    let shared: u64 = ids.iter().filter_map(|pid| figure(&read(*pid, "status")?, "RssShmem:")).sum();
    if shared < SHARED_MIN_BYTES {
        return private;
    }
    private + ids.iter().filter_map(|pid| figure(&read(*pid, "smaps_rollup")?, "Pss_Shmem:")).sum::<u64>()
}

/// The processes inside, by the numbers they have inside.
pub fn process_ids(processes: &OwnedFd) -> Vec<u32> {
    let Ok(directory) = Dir::read_from(processes) else { return Vec::new() };
    directory.flatten().filter_map(|entry| entry.file_name().to_str().ok()?.parse().ok()).collect()
}

pub fn read_text(processes: &OwnedFd, path: &str) -> Option<String> {
    let file = rustix::fs::openat(processes.as_fd(), path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut buffer = [0u8; 4096];
    let length = rustix::io::read(&file, &mut buffer).ok()?;
    Some(String::from_utf8_lossy(&buffer[..length]).into_owned())
}

fn private_bytes(statm: &str) -> u64 {
    let mut fields = statm.split_whitespace().skip(1).filter_map(|field| field.parse::<u64>().ok());
    let (resident, shared) = (fields.next().unwrap_or(0), fields.next().unwrap_or(0));
    resident.saturating_sub(shared) * rustix::param::page_size() as u64
}
