//! The machine that was measured on, as a table of facts.

use std::fs;
use std::process::Command;

use crate::processes::field;

pub fn facts() -> Vec<(&'static str, String)> {
    let cpu_info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu_info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let memory = field(&fs::read_to_string("/proc/meminfo").unwrap_or_default(), "MemTotal:").unwrap_or_default();
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let distribution = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME=")).unwrap_or("unknown");
    let kernel = rustix::system::uname();
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let date = Command::new("date").args(["-u", "+%Y-%m-%d %H:%M UTC"]).output();
    vec![
        ("Date", date.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()),
        ("Processor", model.map_or("unknown", |(_, model)| model.trim()).to_owned()),
        ("Cores", cores.to_string()),
        ("Memory", format!("{:.1} GiB", memory / f64::from(1 << 30))),
        ("Kernel", kernel.release().to_string_lossy().into_owned()),
        ("Distribution", distribution.trim_matches('"').to_owned()),
        ("Load before the run", load.split(' ').next().unwrap_or_default().to_owned()),
    ]
}
