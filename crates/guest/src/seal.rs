//! The walls that are closed once and for all: resource limits, capabilities, no_new_privs, Landlock, seccomp.
//! The spawner closes them around itself before it starts anything, so that every command is born inside.

use std::fs::File;
use std::os::fd::OwnedFd;

use cofferdam_protocol::Limits;
use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreatedAttr,
    Scope,
};
use rustix::process::{Resource, Rlimit};
use rustix::thread::{CapabilitySet, CapabilitySets};

use crate::error::{Result, Step};
use crate::sys;

/// Where commands may write. Everything else is for reading; the mounts say the same, this says it again.
const WRITABLE: &[&str] = &["/workspace", "/app", "/tmp", "/var/tmp", "/run", "/home/agent", "/dev/shm"];
/// Devices may be written to, and be told things (`ioctl`), but nothing can be made beside them.
const DEVICES: &[&str] = &["/dev"];

/// A user has 128 as a rule: enough for some watching programs here, and for some sandboxes beside this one.
const INOTIFY_INSTANCES: &str = "32";
/// One per directory of a large project.
const INOTIFY_WATCHES: &str = "65536";

/// Guest, spawner and reaper, which are in the sandbox's user namespace as well.
const OWN_PROCESSES: u64 = 3;
const GROUP_MARGIN: u64 = 64;

/// policy/seccomp.json, compiled.
static SYSTEM_CALLS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/seccomp.bpf"));

/// Limits that the kernel keeps per process and that every command inherits.
pub fn limit_resources(limits: &Limits, counted_by_group: bool) -> Result<()> {
    // Never above what this process may have itself: raising needs a privilege that the host may not give. Soft and
    // hard are the same: nothing inside can raise it.
    let set = |resource, value: u64| {
        let value = rustix::process::getrlimit(resource).maximum.map_or(value, |maximum| maximum.min(value));
        rustix::process::setrlimit(resource, Rlimit { current: Some(value), maximum: Some(value) })
    };
    set(Resource::Nofile, limits.open_files).step("limiting open files")?;
    set(Resource::Fsize, limits.workspace_bytes.max(limits.tmp_bytes)).step("limiting the size of files")?;
    set(Resource::Core, 0).step("switching core dumps off")?;
    set(Resource::Memlock, 64 * 1024 * 1024).step("limiting locked memory")?;
    set(Resource::Msgqueue, 1024 * 1024).step("limiting message queues")?;
    // Counted per user *and* user namespace since Linux 5.14, so this is the sandbox's own number; guest, spawner
    // and reaper are in it. Where a control group counts, too, it is to be the one that says no, because it tells.
    let own = if counted_by_group { GROUP_MARGIN } else { OWN_PROCESSES };
    set(Resource::Nproc, limits.processes + own).step("limiting processes")?;
    Ok(())
}

/// Keeps only `keep` (in this user namespace), and gains nothing by executing a program.
pub fn drop_capabilities(keep: CapabilitySet) -> Result<()> {
    let sets = CapabilitySets { effective: keep, permitted: keep, inheritable: CapabilitySet::empty() };
    rustix::thread::set_capabilities(None, sets).step("dropping capabilities")?;
    rustix::thread::set_no_new_privs(true).step("setting no_new_privs")
}

/// For the process whose children execute programs: no program can bring a capability along. Before the others are
/// dropped, because it takes one.
pub fn empty_bounding_set() -> Result<()> {
    for capability in CapabilitySet::all().iter() {
        match rustix::thread::remove_capability_from_bounding_set(capability) {
            // A capability this kernel does not know is one nobody can have.
            Ok(()) | Err(rustix::io::Errno::INVAL) => {}
            Err(error) => return Err(error).step("emptying the bounding set of capabilities"),
        }
    }
    Ok(())
}

/// Landlock, as much of it as the kernel has; `doctor` tells how much that is.
pub fn restrict_files() -> Result<()> {
    let restrict = || -> std::result::Result<(), Box<dyn std::error::Error>> {
        let abi = ABI::V6;
        let read = AccessFs::from_read(abi);
        let all = AccessFs::from_all(abi);
        let write_devices = read | AccessFs::WriteFile | AccessFs::Truncate | AccessFs::IoctlDev;
        let mut rules = Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(all)?
            .scope(Scope::AbstractUnixSocket | Scope::Signal)?
            .create()?
            .add_rule(PathBeneath::new(PathFd::new("/")?, read))?;
        for (paths, access) in [(WRITABLE, all), (DEVICES, write_devices)] {
            for path in paths {
                if let Ok(directory) = PathFd::new(path) {
                    rules = rules.add_rule(PathBeneath::new(directory, access))?;
                }
            }
        }
        rules.restrict_self()?;
        Ok(())
    };
    restrict().map_err(|error| std::io::Error::other(error.to_string())).step("applying Landlock")
}

/// Where no control group counts memory, what belongs to no process cannot be counted at all: files in memory that
/// nobody has mapped, and System V segments beyond the page that databases lock with (4096 of those are 16 MiB).
pub fn refuse_uncounted_memory() -> Result<()> {
    const fn step(code: u32, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
        libc::sock_filter { code: code as u16, jt, jf, k }
    }
    const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    const IF_EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    const IF_GREATER: u32 = libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K;
    const RETURN: u32 = libc::BPF_RET | libc::BPF_K;
    const SEGMENT_MAX_BYTES: u32 = 4096;
    let program = [
        step(LOAD, 0, 0, 0),
        step(IF_EQUAL, 7, 0, libc::SYS_memfd_create as u32),
        step(IF_EQUAL, 6, 0, libc::SYS_memfd_secret as u32),
        step(IF_EQUAL, 0, 6, libc::SYS_shmget as u32),
        step(LOAD, 0, 0, 24), // The second argument, its lower half.
        step(IF_GREATER, 2, 0, SEGMENT_MAX_BYTES),
        step(LOAD, 0, 0, 28),
        step(IF_EQUAL, 2, 0, 0),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | libc::ENOMEM as u32),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    sys::add_seccomp(&program).step("refusing memory that cannot be counted")
}

/// The last step. Returns what reports refused calls.
pub fn filter_system_calls() -> Result<OwnedFd> {
    sys::load_seccomp(SYSTEM_CALLS).step("loading the seccomp filter")
}

/// What the kernel counts per user of the host and not per sandbox: one sandbox must not take it from the others,
/// which are the same user. Where a kernel does not have the setting, there is nothing to set.
pub fn limit_shared_counts() {
    for (name, most) in [("max_inotify_instances", INOTIFY_INSTANCES), ("max_inotify_watches", INOTIFY_WATCHES)] {
        let _ = std::fs::write(format!("/proc/sys/user/{name}"), most);
    }
}

/// No user namespaces below this one, by the kernel's own count: `clone3` hides its flags from filters.
pub fn forbid_user_namespaces() -> Result<()> {
    use std::io::Write;
    File::options()
        .write(true)
        .open("/proc/sys/user/max_user_namespaces")
        .and_then(|mut file| file.write_all(b"0"))
        .step("forbidding further user namespaces")
}
