//! What Cofferdam is compared with: how each peer runs a command, whether it is here at all, and its version. Times
//! nothing but a single run; who runs when is the sections' business.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

pub const FORK_EXEC: &str = "fork+exec";
pub const UNSHARE: &str = "unshare";
pub const BWRAP: &str = "bwrap";
pub const RUNC: &str = "runc";
pub const DOCKER: &str = "docker";

/// What everybody runs to give output.
pub const ECHO: [&str; 2] = ["/bin/echo", "x"];
/// What everybody runs to end at once.
pub const TRUE: [&str; 1] = ["/bin/true"];

/// A way to run a command.
#[derive(Debug)]
pub struct Peer {
    pub name: &'static str,
    /// Every which round it takes part: the slow ones would make the run long without making it better.
    pub every: usize,
    pub version: Result<String, String>,
    prefix: Prefix,
}

#[derive(Debug)]
enum Prefix {
    Nothing,
    Words(Vec<&'static str>),
    Runc(PathBuf),
}

/// All peers; `scratch` receives runc's bundles.
pub fn all(scratch: &Path) -> Vec<Peer> {
    let words = |text: &'static str| Prefix::Words(text.split(' ').collect());
    let peer = |name, every, version, prefix| Peer { name, every, version, prefix };
    let kernel = rustix::system::uname();
    let fork = Ok(format!("Linux {}", kernel.release().to_string_lossy()));
    let mut peers = vec![
        peer(FORK_EXEC, 1, fork, Prefix::Nothing),
        // The namespaces that the others make too.
        peer(UNSHARE, 1, version("unshare"), words("unshare -Urpfmn --mount-proc")),
        peer(
            BWRAP,
            1,
            version("bwrap"),
            words("bwrap --unshare-all --ro-bind / / --proc /proc --dev /dev --tmpfs /tmp"),
        ),
        peer(RUNC, 4, version("runc"), Prefix::Runc(scratch.to_owned())),
        peer(DOCKER, 10, docker_version(), words("docker run --rm --network none alpine")),
    ];
    for peer in &mut peers {
        // A peer that is installed and does not work here is told apart from one that is not installed.
        if peer.version.is_ok()
            && let Err(error) = peer.prepare().and_then(|()| peer.time_to_first_byte())
        {
            peer.version = Err(format!("installed, but does not run here: {error:#}"));
        }
    }
    peers
}

fn version(program: &str) -> Result<String, String> {
    let output = Command::new(program).arg("--version").stderr(Stdio::null()).output();
    let output = output.map_err(|_| "not installed".to_owned())?;
    Ok(String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or(program).to_owned())
}

fn docker_version() -> Result<String, String> {
    let output = Command::new("docker").args(["info", "--format", "docker {{.ServerVersion}}"]).output();
    let output = output.map_err(|_| "not installed".to_owned())?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if output.status.success() && !text.is_empty() { Ok(text) } else { Err("no engine".to_owned()) }
}

impl Peer {
    fn prepare(&self) -> Result<()> {
        let Prefix::Runc(scratch) = &self.prefix else { return Ok(()) };
        make_bundle(&scratch.join("echo"), &ECHO)?;
        make_bundle(&scratch.join("true"), &TRUE)
    }

    pub fn command(&self, argv: &[&str]) -> Command {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let mut command;
        match &self.prefix {
            Prefix::Nothing => {
                command = Command::new(argv[0]);
                command.args(&argv[1..]);
            }
            Prefix::Words(words) => {
                command = Command::new(words[0]);
                command.args(&words[1..]).args(argv);
            }
            Prefix::Runc(scratch) => {
                let bundle = scratch.join(if argv == ECHO { "echo" } else { "true" });
                let id = format!("bench-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
                command = Command::new("runc");
                command.args(["run", "--bundle"]).arg(bundle).arg(id);
            }
        }
        command.stdin(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// From the start of the process until its first output has been read. Its end is waited for, not counted.
    pub fn time_to_first_byte(&self) -> Result<Duration> {
        let mut command = self.command(&ECHO);
        let start = Instant::now();
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        let mut byte = [0];
        let read = child.stdout.as_mut().context("its output is a pipe")?.read_exact(&mut byte);
        let time = start.elapsed();
        let status = child.wait()?;
        read.with_context(|| format!("no output, {status}"))?;
        Ok(time)
    }

    pub fn time_whole(&self) -> Result<Duration> {
        time_whole(self.command(&TRUE))
    }
}

/// From the start of a process to its end.
pub fn time_whole(mut command: Command) -> Result<Duration> {
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let start = Instant::now();
    let status = command.status()?;
    let time = start.elapsed();
    ensure!(status.success(), "{status}");
    Ok(time)
}

/// runc's own default specification, with the host's programs as its root and no terminal.
fn make_bundle(directory: &Path, argv: &[&str]) -> Result<()> {
    let root = directory.join("rootfs");
    fs::create_dir_all(&root)?;
    let rootless = (!rustix::process::geteuid().is_root()).then_some("--rootless");
    let status = Command::new("runc").arg("spec").args(rootless).current_dir(directory).status()?;
    ensure!(status.success(), "runc spec: {status}");
    let path = directory.join("config.json");
    let mut spec: serde_json::Value = serde_json::from_slice(&fs::read(&path)?)?;
    spec["process"]["terminal"] = false.into();
    spec["process"]["args"] = argv.to_vec().into();
    let mounts = spec["mounts"].as_array_mut().context("the specification has mounts")?;
    for name in ["usr", "bin", "lib", "lib64"] {
        let (host, inside) = (Path::new("/").join(name), root.join(name));
        if let Ok(target) = fs::read_link(&host) {
            std::os::unix::fs::symlink(target, inside)?;
        } else if host.is_dir() {
            fs::create_dir(inside)?;
            let options = ["rbind", "ro"];
            mounts.push(serde_json::json!({
                "type": "bind", "source": host, "destination": host, "options": options,
            }));
        }
    }
    Ok(fs::write(path, serde_json::to_vec_pretty(&spec)?)?)
}
