//! What this machine offers to sandboxes: each feature looked at for itself, and a real sandbox started at the end,
//! because only that proves that they work together. It is taken down again; what looking leaves is the
//! parent of the sandboxes' control groups.

use std::fs;
use std::path::Path;

use cofferdam_protocol::exec::{ExecId, ExecRequest};
use cofferdam_protocol::launch::CgroupPlan;
use serde::Serialize;

use crate::local::{LocalConfig, LocalRuntime, SandboxSpec};

/// From best to worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    Good,
    /// Sandboxes work, but something is weaker or approximate.
    Weak,
    /// No sandbox can be made.
    Missing,
}

/// One row of the table.
#[derive(Debug, Clone, Serialize)]
pub struct Finding {
    pub feature: &'static str,
    pub state: State,
    pub found: String,
    pub meaning: String,
    /// The command that fixes it.
    pub remedy: Option<String>,
}

pub async fn examine() -> Vec<Finding> {
    let mut findings = vec![kernel(), user_namespaces(), proc_visibility(), landlock(), seccomp()];
    let runtime = LocalRuntime::new(&LocalConfig::default());
    let plan = runtime.as_ref().ok().and_then(|runtime| runtime.cgroup_plan());
    findings.extend(control_groups(plan));
    findings.push(workspace_size());
    findings.push(user_inside());
    findings.push(sandbox(runtime.map_err(|error| error.to_string())).await);
    findings.extend(tools());
    findings
}

fn finding(feature: &'static str, state: State, found: impl Into<String>, meaning: impl Into<String>) -> Finding {
    Finding { feature, state, found: found.into(), meaning: meaning.into(), remedy: None }
}

impl Finding {
    fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn kernel() -> Finding {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(['.', '-']).map(|part| part.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let needed = "Linux 5.14 or newer is needed: new mount interface, openat2, counting per user namespace";
    if version >= (5, 14) {
        finding("kernel", State::Good, format!("Linux {release}"), "everything that the sandbox is made of is there")
    } else {
        finding("kernel", State::Missing, format!("Linux {release}"), needed).remedy("upgrade the kernel")
    }
}

fn user_namespaces() -> Finding {
    const NAME: &str = "user namespaces";
    let off = |found: &str, meaning: &str, remedy: &str| finding(NAME, State::Missing, found, meaning).remedy(remedy);
    if read("/proc/sys/user/max_user_namespaces").as_deref() == Some("0") {
        return off("switched off", "no program may make one", "sudo sysctl -w user.max_user_namespaces=65536");
    }
    let root = rustix::process::geteuid().is_root();
    if !root && read("/proc/sys/kernel/unprivileged_userns_clone").as_deref() == Some("0") {
        let remedy = "sudo sysctl -w kernel.unprivileged_userns_clone=1";
        return off("for root only", "this distribution reserves them for root", remedy);
    }
    if !root && read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns").as_deref() == Some("1") {
        let program = std::env::current_exe().unwrap_or_else(|_| "/usr/local/bin/cofferdam".into());
        let remedy = format!(
            "printf 'abi <abi/4.0>,\\ninclude <tunables/global>\\nprofile cofferdam {} flags=(unconfined) {{ userns, }}\\n' | sudo tee /etc/apparmor.d/cofferdam && sudo apparmor_parser -r /etc/apparmor.d/cofferdam",
            program.display()
        );
        return finding(
            NAME,
            State::Weak,
            "restricted by AppArmor",
            "Ubuntu lets only programs with a profile make them",
        )
        .remedy(remedy);
    }
    let most = read("/proc/sys/user/max_user_namespaces").unwrap_or_else(|| "?".to_owned());
    finding(NAME, State::Good, format!("up to {most}"), "sandboxes need neither root nor a daemon")
}

fn proc_visibility() -> Finding {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let point = |line: &str| line.split(' ').nth(4).map(str::to_owned);
    let masked: Vec<String> = mounts.lines().filter_map(point).filter(|point| point.starts_with("/proc/")).collect();
    // binfmt_misc is mounted on an empty directory, which hides nothing.
    let masked: Vec<&String> = masked.iter().filter(|point| !point.starts_with("/proc/sys/fs/binfmt_misc")).collect();
    if masked.is_empty() {
        return finding("/proc", State::Good, "unmasked", "a sandbox can have a /proc of its own");
    }
    let found = format!("{} parts masked", masked.len());
    finding(
        "/proc",
        State::Missing,
        found,
        "this looks like a container: the kernel refuses a new /proc under a masked one",
    )
    .remedy("run the container with an unmasked /proc: docker run --security-opt systempaths=unconfined …")
}

fn landlock() -> Finding {
    const VERSION_FLAG: u32 = 1;
    // SAFETY: with this flag the call takes no structure and only returns a number.
    let version =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<libc::c_void>(), 0, VERSION_FLAG) };
    match version {
        ..=0 => finding("Landlock", State::Weak, "not there", "one wall fewer; mounts and permissions still hold")
            .remedy("boot with lsm=landlock,… or a kernel built with CONFIG_SECURITY_LANDLOCK=y"),
        1..=5 => finding(
            "Landlock",
            State::Good,
            format!("ABI {version}"),
            "files outside the writable places are closed twice",
        ),
        _ => finding(
            "Landlock",
            State::Good,
            format!("ABI {version}"),
            "files closed twice; signals and abstract sockets scoped",
        ),
    }
}

fn seccomp() -> Finding {
    let actions = read("/proc/sys/kernel/seccomp/actions_avail").unwrap_or_default();
    match (actions.contains("errno"), actions.contains("user_notif")) {
        (true, true) => {
            finding("seccomp", State::Good, "filters, notifications", "forbidden system calls are refused and reported")
        }
        _ => finding("seccomp", State::Missing, "incomplete", "the policy cannot be loaded")
            .remedy("use a kernel with CONFIG_SECCOMP_FILTER=y"),
    }
}

fn control_groups(plan: Option<&CgroupPlan>) -> Vec<Finding> {
    let root = rustix::process::geteuid().is_root();
    let remedy = if root {
        "systemd-run --scope -p Delegate=yes cofferdam …"
    } else {
        "systemd-run --user --scope -p Delegate=yes cofferdam …"
    };
    let (found, memory, pids, cpu) = match plan {
        Some(CgroupPlan::V2 { .. }) => ("version 2, delegated", true, true, true),
        Some(CgroupPlan::V1 { memory, pids, cpu }) => ("version 1", memory.is_some(), pids.is_some(), cpu.is_some()),
        None => ("none of ours", false, false, false),
    };
    let row = |feature, exact: bool, good: &str, weak: &str| match exact {
        true => finding(feature, State::Good, found, good),
        false => finding(feature, State::Weak, found, weak).remedy(remedy),
    };
    vec![
        row("memory limit", memory, "exact, kept by the kernel", "approximate: added up every 50 ms, then killed"),
        row("process limit", pids, "exact, and hits are reported", "exact, but hits are not reported"),
        row("cpu limit", cpu, "exact, kept by the kernel", "not enforced"),
    ]
}

fn workspace_size() -> Finding {
    let meaning = "exact for a workspace in memory; for a directory of yours approximate: counted while commands run";
    finding("workspace limit", State::Good, "counted", meaning)
}

fn user_inside() -> Finding {
    if rustix::process::geteuid().is_root() {
        return finding(
            "user",
            State::Good,
            "root",
            "on the host a sandbox is a user of its own (uid 1880097280), never root",
        );
    }
    let uid = rustix::process::geteuid().as_raw();
    finding("user", State::Good, format!("uid {uid}"), "on the host a sandbox is you, behind its walls")
}

/// The proof.
async fn sandbox(runtime: Result<LocalRuntime, String>) -> Finding {
    const NAME: &str = "sandbox";
    let broken = |error: String| finding(NAME, State::Missing, "does not start", error);
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return broken(error),
    };
    let began = std::time::Instant::now();
    let sandbox = match runtime.launch(&SandboxSpec::default(), None).await {
        Ok(sandbox) => sandbox,
        Err(error) => return broken(error.to_string()),
    };
    let id = ExecId::try_from("doctor".to_owned()).expect("it is a valid id");
    let request =
        ExecRequest { argv: vec!["/bin/sh".into(), "-c".into(), "echo ready".into()], ..ExecRequest::default() };
    let finished = sandbox.client().run(&id, &request).await;
    let took = began.elapsed();
    let destroyed = sandbox.destroy().await;
    match (finished, destroyed) {
        (Ok(finished), Ok(())) if finished.stdout == b"ready\n" => {
            let found = format!("ready in {:.1} ms", took.as_secs_f64() * 1000.0);
            finding(NAME, State::Good, found, "one was started, ran a command, and is gone again")
        }
        (Ok(finished), _) => broken(format!("its command did not run: {:?}", finished.status.outcome)),
        (Err(error), _) => broken(error.to_string()),
    }
}

fn tools() -> Vec<Finding> {
    const TOOLS: &[(&str, &str, &str)] = &[
        ("python3", "--lang python", "sudo apt install python3"),
        ("node", "--lang javascript and typescript", "sudo apt install nodejs"),
        ("git", "git inside", "sudo apt install git"),
    ];
    let row = |(program, purpose, remedy): &(&'static str, &str, &str)| {
        let directories = ["/usr/local/bin", "/usr/bin", "/bin"];
        match directories.iter().map(|directory| format!("{directory}/{program}")).find(|path| Path::new(path).exists())
        {
            Some(path) => finding(program, State::Good, path, format!("for {purpose}")),
            None => finding(
                program,
                State::Weak,
                "not there",
                format!("needed for {purpose}; a copy in a home directory is not seen inside"),
            )
            .remedy(*remedy),
        }
    };
    TOOLS.iter().map(row).collect()
}
