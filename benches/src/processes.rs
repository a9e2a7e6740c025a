//! What /proc says about processes and the machine: who is whose child, whether sandboxes rest, memory, processor time.
//! Measures nothing over time.

use std::fs;

/// The children of a process, of all its threads.
pub fn children(pid: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>()).collect()
}

/// How many sandboxes of a process are complete (the guest, its spawner and its reaper) with all of them asleep:
/// a prepared sandbox that has reached its wait for a workspace looks like this, one on its way there does not.
pub fn resting_sandboxes(pid: u32) -> usize {
    let guests = children(pid).into_iter();
    guests
        .filter(|guest| {
            let family = children(*guest);
            family.len() >= 2 && family.iter().chain([guest]).all(|pid| is_asleep(*pid))
        })
        .count()
}

fn is_asleep(pid: u32) -> bool {
    stat(&pid.to_string()).first().is_some_and(|state| state == "S")
}

/// The fields of /proc/PID/stat from the state on, which is the third.
fn stat(pid: &str) -> Vec<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name in parentheses may hold anything; the state follows the last one.
    let fields = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    fields.split_whitespace().map(str::to_owned).collect()
}

/// Processor time that a process has used, without its children.
pub fn cpu_seconds(pid: u32) -> f64 {
    ticks(&stat(&pid.to_string()), 11..13)
}

/// Processor time of those children of this process that have ended and been waited for.
pub fn ended_children_cpu_seconds() -> f64 {
    ticks(&stat("self"), 13..15)
}

/// Processor time of everything on the machine.
pub fn machine_cpu_seconds() -> f64 {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let fields: Vec<String> = text.lines().next().unwrap_or_default().split_whitespace().map(str::to_owned).collect();
    // user, nice, system; behind idle and iowait: irq, softirq.
    ticks(&fields, 1..4) + ticks(&fields, 6..8)
}

fn ticks(fields: &[String], range: std::ops::Range<usize>) -> f64 {
    let ticks: u64 = fields.get(range).into_iter().flatten().filter_map(|field| field.parse::<u64>().ok()).sum();
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}

/// Proportional memory of a process and its children, in bytes. Sandboxes are undumpable: only root may ask.
pub fn family_pss(pid: u32) -> Option<f64> {
    let mut total = pss(pid)?;
    for child in children(pid) {
        total += family_pss(child)?;
    }
    Some(total)
}

fn pss(pid: u32) -> Option<f64> {
    field(&fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?, "Pss:")
}

pub fn memory_available() -> Option<f64> {
    field(&fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable:")
}

/// A line such as `Pss:  123 kB`, in bytes.
pub fn field(text: &str, name: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse::<f64>().ok().map(|kibibytes| kibibytes * 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_found_and_counted_in_bytes() {
        assert_eq!(field("Rss:   9 kB\nPss:    12 kB\n", "Pss:"), Some(12_288.0));
        assert_eq!(field("Rss:   9 kB\n", "Pss:"), None);
    }
}
