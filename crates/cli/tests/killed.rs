//! A launcher that is killed. In a program of its own: it collects every child there is, and other tests have some.

use std::path::Path;
use std::process::{Command, Stdio};

/// Killed at any moment of its start or life, a launcher leaves no process. This process is made the one that
/// orphans come to, so that it sees every one of them.
#[test]
fn a_killed_launcher_leaves_nothing_behind() {
    rustix::process::set_child_subreaper(rustix::process::Pid::from_raw(std::process::id() as i32)).unwrap();
    let spool = tempfile::tempdir().unwrap();
    let mut launchers = Vec::new();
    for round in 0..40u64 {
        let mut child = Command::new(env!("CARGO_BIN_EXE_cofferdam"))
            .args(["exec", "--", "sleep", "1000"])
            .env("TMPDIR", spool.path())
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        // Not a wait for a condition but the choice of a moment, a different one each round.
        std::thread::sleep(std::time::Duration::from_micros(round * 400));
        launchers.push(format!("{:x}", child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    loop {
        match rustix::process::wait(rustix::process::WaitOptions::NOHANG) {
            Err(rustix::io::Errno::CHILD) => break,
            Ok(Some(_)) => {}
            _ => {
                assert!(std::time::Instant::now() < deadline, "processes are left");
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        }
    }
    assert_eq!(std::fs::read_dir(spool.path()).unwrap().count(), 0, "files are left");
    let mut groups = stale_groups(Path::new("/sys/fs/cgroup"));
    // Other tests kill guests, whose groups the next start of theirs removes.
    groups.retain(|name| name.split('-').nth(2).is_some_and(|launcher| launchers.iter().any(|ours| ours == launcher)));
    assert_eq!(groups, Vec::<String>::new(), "control groups are left");
}

/// Control groups of ours whose guest is gone.
fn stale_groups(directory: &Path) -> Vec<String> {
    let mut stale = Vec::new();
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten().filter(|entry| entry.path().is_dir()) {
        if entry.file_name() != "cofferdam" {
            stale.extend(stale_groups(&entry.path()));
            continue;
        }
        for group in
            std::fs::read_dir(entry.path()).into_iter().flatten().flatten().filter(|group| group.path().is_dir())
        {
            let name = group.file_name().into_string().unwrap();
            let pid = name.split('-').next().unwrap().to_owned();
            if !Path::new("/proc").join(pid).exists() {
                stale.push(name);
            }
        }
    }
    stale
}
