//! Where a sandbox's control groups can be made on this machine, if anywhere. The groups themselves are made and
//! removed by the guest; this file finds (and prepares) their parent, and sweeps what a killed guest left behind.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use cofferdam_protocol::Limits;
use cofferdam_protocol::launch::CgroupPlan;

/// The directory of ours below the group that this process is in.
const OWN_DIRECTORY: &str = "cofferdam";
/// Where this process itself goes when a delegated v2 group is divided: a group with children may hold no process.
const HOST_DIRECTORY: &str = "cofferdam-host";
const V2_CONTROLLERS: &[&str] = &["memory", "pids", "cpu"];

/// Finds the place. `owner` is the user that guests will be, who must be able to remove their groups.
pub(super) fn find(owner: Option<u32>) -> Option<CgroupPlan> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    find_v2(&mounts, &own, owner).or_else(|| find_v1(&mounts, &own, owner))
}

fn find_v1(mounts: &str, own: &str, owner: Option<u32>) -> Option<CgroupPlan> {
    // Version 1 hierarchies cannot be delegated safely; only root uses them.
    owner?;
    let prepare = |controller: &str| {
        let parent = directory_v1(mounts, own, controller)?.join(OWN_DIRECTORY);
        make_parent(&parent, owner).ok()?;
        parent.into_os_string().into_string().ok()
    };
    let (memory, pids, cpu) = (prepare("memory"), prepare("pids"), prepare("cpu"));
    (memory.is_some() || pids.is_some() || cpu.is_some()).then_some(CgroupPlan::V1 { memory, pids, cpu })
}

/// The directory of this process's own group in the hierarchy of a version 1 controller.
fn directory_v1(mounts: &str, own: &str, controller: &str) -> Option<PathBuf> {
    let has = |list: &str| list.split(',').any(|name| name == controller);
    let path = own.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        has(fields.next()?).then(|| fields.next()).flatten()
    })?;
    let mount = Mount::all(mounts).find(|mount| mount.kind == "cgroup" && has(mount.options))?;
    mount.directory_of(path)
}

fn find_v2(mounts: &str, own: &str, owner: Option<u32>) -> Option<CgroupPlan> {
    let mount = Mount::all(mounts).find(|mount| mount.kind == "cgroup2")?;
    let path = own.lines().find_map(|line| line.strip_prefix("0::"))?;
    let plan = divide_v2(&mount.directory_of(path)?, owner).ok()??;
    Some(CgroupPlan::V2 { directory: plan.into_os_string().into_string().ok()? })
}

/// Makes room for sandboxes below a version 2 group, if it is ours to divide: its controllers are there, its files
/// are writable, and no process but this one is in it (moving strangers would not be polite).
pub(super) fn divide_v2(group: &Path, owner: Option<u32>) -> io::Result<Option<PathBuf>> {
    let available = fs::read_to_string(group.join("cgroup.controllers"))?;
    if !V2_CONTROLLERS.iter().all(|wanted| available.split_whitespace().any(|name| name == *wanted)) {
        return Ok(None);
    }
    let own_pid = std::process::id().to_string();
    let members = fs::read_to_string(group.join("cgroup.procs"))?;
    if !members.split_whitespace().all(|pid| pid == own_pid) && group.join("cgroup.type").exists() {
        return Ok(None);
    }
    // The root group has no type and may hold processes; every other must be emptied first.
    if members.split_whitespace().any(|pid| pid == own_pid) && group.join("cgroup.type").exists() {
        let host = group.join(HOST_DIRECTORY);
        fs::create_dir_all(&host)?;
        fs::write(host.join("cgroup.procs"), &own_pid)?;
    }
    let enable = V2_CONTROLLERS.iter().map(|name| format!("+{name}")).collect::<Vec<_>>().join(" ");
    fs::write(group.join("cgroup.subtree_control"), &enable)?;
    let parent = group.join(OWN_DIRECTORY);
    make_parent(&parent, owner)?;
    fs::write(parent.join("cgroup.subtree_control"), &enable)?;
    Ok(Some(parent))
}

/// Owned by the guests' user, so that a guest whose launcher was killed can remove its own group; the groups inside
/// are root's, so that it cannot change their limits.
fn make_parent(parent: &Path, owner: Option<u32>) -> io::Result<()> {
    fs::create_dir_all(parent)?;
    if let Some(owner) = owner {
        std::os::unix::fs::chown(parent, Some(owner), Some(owner))?;
    }
    Ok(())
}

/// What of the plan these limits need. A processor limit that allows as much as there is needs no group, and every
/// hierarchy of version 1 costs a group per sandbox.
pub(super) fn needed(plan: &CgroupPlan, limits: &Limits, processors: u64) -> CgroupPlan {
    match plan {
        CgroupPlan::V1 { memory, pids, .. } if limits.cpu_milli >= processors * 1_000 => {
            CgroupPlan::V1 { memory: memory.clone(), pids: pids.clone(), cpu: None }
        }
        plan => plan.clone(),
    }
}

/// Removes groups whose guest is gone. They are named `PID-ID` after it.
pub(super) fn sweep(plan: &CgroupPlan) {
    for parent in parents(plan) {
        for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let Some(pid) = name.to_str().and_then(|name| name.split_once('-')?.0.parse::<i32>().ok()) else {
                continue;
            };
            if is_gone(pid) {
                let _ = fs::remove_dir(entry.path());
            }
        }
    }
}

/// Removes what one guest may have left. False while something is still dying in it.
pub(super) fn remove(plan: &CgroupPlan, guest_pid: u32, id: &str) -> bool {
    let remove = |parent: &str| {
        let removed = fs::remove_dir(Path::new(parent).join(format!("{guest_pid}-{id}")));
        removed.is_ok() || removed.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    };
    // All are tried before the first failure counts.
    let removed: Vec<bool> = parents(plan).into_iter().map(remove).collect();
    removed.into_iter().all(|removed| removed)
}

fn parents(plan: &CgroupPlan) -> Vec<&str> {
    match plan {
        CgroupPlan::V1 { memory, pids, cpu } => [memory, pids, cpu].into_iter().flatten().map(String::as_str).collect(),
        CgroupPlan::V2 { directory } => vec![directory],
    }
}

pub(super) fn is_gone(pid: i32) -> bool {
    let Some(pid) = rustix::process::Pid::from_raw(pid) else { return false };
    rustix::process::test_kill_process(pid) == Err(rustix::io::Errno::SRCH)
}

/// A line of /proc/self/mountinfo.
struct Mount<'a> {
    root: &'a str,
    point: &'a str,
    kind: &'a str,
    options: &'a str,
}

impl<'a> Mount<'a> {
    fn all(text: &'a str) -> impl Iterator<Item = Self> {
        text.lines().filter_map(|line| {
            let (front, back) = line.split_once(" - ")?;
            let mut front = front.split(' ').skip(3);
            let (root, point) = (front.next()?, front.next()?);
            let mut back = back.split(' ');
            let (kind, _source, options) = (back.next()?, back.next()?, back.next()?);
            Some(Self { root, point, kind, options })
        })
    }

    /// Where the group `path` of this hierarchy is seen in the file system.
    fn directory_of(&self, path: &str) -> Option<PathBuf> {
        let below = if self.root == "/" { path } else { path.strip_prefix(self.root)? };
        Some(Path::new(self.point).join(below.trim_start_matches('/')))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory that looks like a version 2 group: this kernel may have only version 1.
    fn group(controllers: &str, members: &str) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for (name, content) in [
            ("cgroup.controllers", controllers),
            ("cgroup.procs", members),
            ("cgroup.type", "domain\n"),
            ("cgroup.subtree_control", ""),
        ] {
            fs::write(directory.path().join(name), content).unwrap();
        }
        directory
    }

    #[test]
    fn a_delegated_group_is_divided_and_this_process_moves_aside() {
        let own_pid = std::process::id().to_string();
        let group = group("cpuset cpu io memory pids\n", &format!("{own_pid}\n"));
        let parent = divide_v2(group.path(), None).unwrap().expect("it is ours");
        assert_eq!(parent, group.path().join("cofferdam"));
        let read = |name: &str| fs::read_to_string(group.path().join(name)).unwrap();
        assert_eq!(read("cgroup.subtree_control"), "+memory +pids +cpu");
        assert_eq!(read("cofferdam/cgroup.subtree_control"), "+memory +pids +cpu");
        assert_eq!(read("cofferdam-host/cgroup.procs"), own_pid);
    }

    #[test]
    fn a_group_with_strangers_or_without_controllers_is_left_alone() {
        let strangers = group("cpu memory pids\n", "1\n2\n");
        assert_eq!(divide_v2(strangers.path(), None).unwrap(), None);
        let poor = group("hugetlb\n", "");
        assert_eq!(divide_v2(poor.path(), None).unwrap(), None);
        assert!(!poor.path().join("cofferdam").exists() && !strangers.path().join("cofferdam").exists());
    }

    #[test]
    fn groups_are_found_through_the_mount_table() {
        let mounts = "30 25 0:26 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
                      31 25 0:27 /docker/abc /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n";
        let own = "4:memory:/user.slice/x\n3:cpu,cpuacct:/docker/abc/inner\n0::/\n";
        assert_eq!(directory_v1(mounts, own, "memory"), Some("/sys/fs/cgroup/memory/user.slice/x".into()));
        assert_eq!(directory_v1(mounts, own, "cpu"), Some("/sys/fs/cgroup/cpu,cpuacct/inner".into()));
        assert_eq!(directory_v1(mounts, own, "pids"), None);
    }
}
