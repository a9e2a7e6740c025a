//! What the machine has to give to jobs. Reads it once, at the start; who gets how much is the scheduler's.

use std::io;
use std::path::Path;

/// Waiting for a network, a disk or a person takes no processor: most jobs do little else most of the time.
pub const JOBS_PER_PROCESSOR: u32 = 4;

/// A processor that is asked for too much makes all slower and breaks nothing, so what jobs may take at most can add
/// up to this many times what there is. Memory that is asked for too much kills: it is promised once.
pub const CPU_OVERCOMMIT: u64 = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    pub jobs_max: u32,
    pub cpu_milli: u64,
    pub memory_bytes: u64,
}

impl Capacity {
    /// What this process may use: processors and memory of the machine, or of our control group if that is less.
    pub fn of_machine(jobs_max: Option<u32>) -> io::Result<Self> {
        let processors = std::thread::available_parallelism()?.get();
        let memory_bytes = memory_bytes(Path::new("/proc"), Path::new("/sys/fs/cgroup"))?;
        Ok(Self::of(u32::try_from(processors).unwrap_or(u32::MAX), memory_bytes, jobs_max))
    }

    fn of(processors: u32, memory_bytes: u64, jobs_max: Option<u32>) -> Self {
        Self {
            jobs_max: jobs_max.unwrap_or(processors.saturating_mul(JOBS_PER_PROCESSOR)),
            cpu_milli: u64::from(processors) * 1000 * CPU_OVERCOMMIT,
            memory_bytes,
        }
    }
}

fn memory_bytes(proc: &Path, cgroups: &Path) -> io::Result<u64> {
    let path = proc.join("meminfo");
    let text = std::fs::read_to_string(&path)?;
    let kibibytes = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok())
        .ok_or_else(|| io::Error::other(format!("{} has no MemTotal: is /proc mounted?", path.display())))?;
    let machine = kibibytes * 1024;
    // No control groups are no limit.
    let groups = std::fs::read_to_string(proc.join("self/cgroup")).unwrap_or_default();
    Ok(group_limits(&groups, cgroups).fold(machine, u64::min))
}

/// The memory limits of the groups we are in and of all above them. In a container the path may be the host's, of
/// which only the end of the way up, the mounted root, is there.
fn group_limits(groups: &str, cgroups: &Path) -> impl Iterator<Item = u64> {
    groups.lines().flat_map(move |line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next().unwrap_or_default(), fields.next().unwrap_or_default());
        let place = if controllers.is_empty() {
            Some((cgroups.to_owned(), "memory.max"))
        } else if controllers.split(',').any(|name| name == "memory") {
            Some((cgroups.join("memory"), "memory.limit_in_bytes"))
        } else {
            None
        };
        let ancestors = Path::new(path.trim_start_matches('/')).ancestors();
        place.into_iter().flat_map(move |(root, file)| {
            ancestors.filter_map(move |group| {
                // "max" is no number, and no limit.
                std::fs::read_to_string(root.join(group).join(file)).ok()?.trim().parse::<u64>().ok()
            })
        })
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const MEMINFO: &str = "MemTotal:        8000000 kB\nMemFree:         1000 kB\n";

    type Files<'a> = &'a [(&'a str, &'a str)];

    fn machine(files: Files<'_>) -> io::Result<u64> {
        let root = tempfile::tempdir()?;
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("a parent"))?;
            fs::write(path, text)?;
        }
        memory_bytes(&root.path().join("proc"), &root.path().join("cgroup"))
    }

    #[test]
    fn memory_is_the_least_of_the_machine_and_our_groups() {
        let meminfo = ("proc/meminfo", MEMINFO);
        let cases: [(&str, u64, Files<'_>); 5] = [
            ("no groups", 8_192_000_000, &[meminfo]),
            (
                "version 2, limited above us",
                1 << 30,
                &[
                    meminfo,
                    ("proc/self/cgroup", "0::/user.slice/ours\n"),
                    ("cgroup/user.slice/memory.max", "1073741824\n"),
                    ("cgroup/user.slice/ours/memory.max", "max\n"),
                ],
            ),
            (
                "version 1, in a container that sees its own group as the root",
                5_000_000,
                &[
                    meminfo,
                    ("proc/self/cgroup", "5:cpu:/x\n4:memory:/docker/0123\n0::/docker/0123\n"),
                    ("cgroup/memory/memory.limit_in_bytes", "5000000\n"),
                ],
            ),
            (
                "version 1 without a limit says a number beyond any machine",
                8_192_000_000,
                &[
                    meminfo,
                    ("proc/self/cgroup", "4:hugetlb,memory:/\n"),
                    ("cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
                ],
            ),
            (
                "another controller's limit is not ours",
                8_192_000_000,
                &[meminfo, ("proc/self/cgroup", "5:cpu:/\n"), ("cgroup/memory/memory.limit_in_bytes", "1\n")],
            ),
        ];
        for (case, expected, files) in cases {
            assert_eq!(machine(files).expect(case), expected, "{case}");
        }
        assert!(machine(&[("proc/meminfo", "")]).is_err());
    }

    #[test]
    fn processors_are_overcommitted_and_memory_is_not() {
        assert_eq!(Capacity::of(2, 100, None), Capacity { jobs_max: 8, cpu_milli: 8_000, memory_bytes: 100 });
        assert_eq!(Capacity::of(2, 100, Some(1)), Capacity { jobs_max: 1, cpu_milli: 8_000, memory_bytes: 100 });
        assert!(Capacity::of_machine(None).expect("this machine").memory_bytes > 0);
    }
}
