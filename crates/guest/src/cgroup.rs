//! The sandbox's own control groups: made before privileges are given up, limits written once, the descriptors kept
//! for joining and for reading counters, and removed at the end. The guest itself stays outside of them.
//!
//! Directories are called `PID-ID` after the guest, so that whoever sweeps later knows whether their maker lives.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use cofferdam_protocol::Limits;
use cofferdam_protocol::launch::CgroupPlan;

use crate::error::{Result, Step};

/// Period of the processor quota: the kernel's default.
const CPU_PERIOD_US: u64 = 100_000;
/// What the supervising processes inside (spawner, reaper) add to the count.
const OWN_PROCESSES: u64 = 2;

#[derive(Debug, Default)]
pub struct Cgroup {
    directories: Vec<PathBuf>,
    joins: Vec<File>,
    // Files to read counters from: anybody may, so they are opened when they are needed.
    memory_events: Option<PathBuf>,
    memory_now: Option<PathBuf>,
    memory_peak: Option<PathBuf>,
    process_events: Option<PathBuf>,
}

impl Cgroup {
    pub fn create(plan: &CgroupPlan, id: &str, limits: &Limits) -> Result<Self> {
        let name = format!("{}-{id}", std::process::id());
        let mut group = Self::default();
        let made = match plan {
            CgroupPlan::V1 { memory, pids, cpu } => group.create_v1(&name, memory, pids, cpu, limits),
            CgroupPlan::V2 { directory } => group.create_v2(&Path::new(directory).join(&name), limits),
        };
        made.inspect_err(|_| group.remove()).step("making the sandbox's control group")?;
        Ok(group)
    }

    fn create_v1(
        &mut self,
        name: &str,
        memory: &Option<String>,
        pids: &Option<String>,
        cpu: &Option<String>,
        limits: &Limits,
    ) -> io::Result<()> {
        if let Some(parent) = memory {
            let directory = self.make(&Path::new(parent).join(name))?;
            fs::write(directory.join("memory.limit_in_bytes"), limits.memory_bytes.to_string())?;
            // Present only where swap is accounted; the same figure means that swap adds nothing.
            let _ = fs::write(directory.join("memory.memsw.limit_in_bytes"), limits.memory_bytes.to_string());
            self.memory_events = Some(directory.join("memory.oom_control"));
            self.memory_now = Some(directory.join("memory.usage_in_bytes"));
            self.memory_peak = Some(directory.join("memory.max_usage_in_bytes"));
        }
        if let Some(parent) = pids {
            let directory = self.make(&Path::new(parent).join(name))?;
            fs::write(directory.join("pids.max"), (limits.processes + OWN_PROCESSES).to_string())?;
            self.process_events = Some(directory.join("pids.events"));
        }
        if let Some(parent) = cpu {
            let directory = self.make(&Path::new(parent).join(name))?;
            let quota = (limits.cpu_milli * CPU_PERIOD_US / 1000).max(1_000);
            fs::write(directory.join("cpu.cfs_quota_us"), quota.to_string())?;
        }
        Ok(())
    }

    fn create_v2(&mut self, directory: &Path, limits: &Limits) -> io::Result<()> {
        let directory = self.make(directory)?;
        let write = |file: &str, value: String| fs::write(directory.join(file), value);
        write("memory.max", limits.memory_bytes.to_string())?;
        let _ = write("memory.swap.max", "0".to_owned());
        write("pids.max", (limits.processes + OWN_PROCESSES).to_string())?;
        let quota = (limits.cpu_milli * CPU_PERIOD_US / 1000).max(1_000);
        write("cpu.max", format!("{quota} {CPU_PERIOD_US}"))?;
        self.memory_events = Some(directory.join("memory.events"));
        self.memory_now = Some(directory.join("memory.current"));
        self.memory_peak = Some(directory.join("memory.peak"));
        self.process_events = Some(directory.join("pids.events"));
        Ok(())
    }

    fn make(&mut self, directory: &Path) -> io::Result<PathBuf> {
        fs::create_dir(directory)?;
        self.directories.push(directory.to_owned());
        // Version 1 has `tasks`: moving oneself through it is the one migration for which the kernel does not stop
        // all forks on the machine, which takes an RCU grace period, ten milliseconds and more.
        let tasks = File::options().write(true).open(directory.join("tasks"));
        self.joins.push(tasks.or_else(|_| File::options().write(true).open(directory.join("cgroup.procs")))?);
        Ok(directory.to_owned())
    }

    /// Moves the calling process, which has one thread, in. Permission was settled when the files were opened.
    pub fn join(&self) -> io::Result<()> {
        self.joins.iter().try_for_each(|mut file| file.write_all(b"0"))
    }

    pub fn counts_processes(&self) -> bool {
        self.process_events.is_some()
    }

    pub fn limits_memory(&self) -> bool {
        self.memory_now.is_some()
    }

    /// How often the kernel has killed something in here for want of memory.
    pub fn memory_kills(&self) -> u64 {
        counter(self.memory_events.as_deref(), "oom_kill ")
    }

    /// How often a fork was refused.
    pub fn process_limit_hits(&self) -> u64 {
        counter(self.process_events.as_deref(), "max ")
    }

    /// Now and at most so far, where the kernel says.
    pub fn memory_bytes(&self) -> Option<(u64, u64)> {
        let now = number(self.memory_now.as_deref()?)?;
        Some((now, self.memory_peak.as_deref().and_then(number).unwrap_or(now)))
    }

    /// Removes the directories. Everything inside must have ended.
    pub fn remove(&self) {
        for directory in &self.directories {
            let _ = fs::remove_dir(directory);
        }
    }
}

fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn counter(path: Option<&Path>, name: &str) -> u64 {
    let value = |path| {
        let text = fs::read_to_string(path).ok()?;
        text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
    };
    path.and_then(value).unwrap_or(0)
}
