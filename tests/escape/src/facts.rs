//! Things on the host that an attack is after, made for it: a secret file, a process that holds the secret too,
//! listening sockets. [`Facts::check`] looks at all of them from outside after each attack: that the attacker *says*
//! it was held is never enough.

use std::fs::{self, File};
use std::io;
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use tempfile::TempDir;

pub(crate) struct Facts {
    directory: TempDir,
    /// The secret, which appears nowhere but in the file and in the victim's environment.
    pub(crate) marker: String,
    pub(crate) secret: PathBuf,
    victim: Child,
    ipv4: TcpListener,
    /// Absent where the machine has no IPv6.
    ipv6: Option<TcpListener>,
    socket: UnixListener,
    abstract_socket: UnixListener,
    abstract_name: String,
    hostname: String,
}

impl Facts {
    pub(crate) fn new(program: &Path) -> io::Result<Self> {
        let directory = tempfile::Builder::new().prefix("cofferdam-escape-").tempdir()?;
        let number = unique();
        let marker = format!("SECRET-{number}");
        let secret = directory.path().join("secret");
        fs::write(&secret, &marker)?;
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o600))?;
        fs::create_dir(directory.path().join("work"))?;
        let abstract_name = format!("cofferdam-escape-{number}");
        let name = SocketAddr::from_abstract_name(&abstract_name)?;
        let socket = UnixListener::bind(directory.path().join("socket"))?;
        let abstract_socket = UnixListener::bind_addr(&name)?;
        let ipv4 = TcpListener::bind("127.0.0.1:0")?;
        let ipv6 = TcpListener::bind("[::1]:0").ok();
        for listener in [Some(&ipv4), ipv6.as_ref()].into_iter().flatten() {
            listener.set_nonblocking(true)?;
        }
        socket.set_nonblocking(true)?;
        abstract_socket.set_nonblocking(true)?;
        // Holds the secret in its environment, its directory and one of its descriptors.
        let victim = Command::new(program)
            .arg("wait")
            .env("COFFERDAM_SECRET", &marker)
            .current_dir(directory.path())
            .stdin(Stdio::piped())
            .stdout(File::open(&secret)?)
            .stderr(Stdio::null())
            .spawn()?;
        let hostname = hostname();
        Ok(Self { directory, marker, secret, victim, ipv4, ipv6, socket, abstract_socket, abstract_name, hostname })
    }

    /// Where a control may leave things; on the same file system as the secret.
    pub(crate) fn work(&self) -> PathBuf {
        self.directory.path().join("work")
    }

    /// A directory of the host's that is not the sandbox's, with the secret in it.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn fill_in(&self, argument: &str) -> String {
        let port = |listener: &TcpListener| listener.local_addr().map_or(0, |address| address.port()).to_string();
        argument
            .replace("{secret}", &self.secret.display().to_string())
            .replace("{directory}", &self.directory.path().display().to_string())
            .replace("{marker}", &self.marker)
            .replace("{victim}", &self.victim.id().to_string())
            .replace("{port}", &port(&self.ipv4))
            .replace("{port6}", &self.ipv6.as_ref().map_or("9".to_owned(), port))
            .replace("{socket}", &self.directory.path().join("socket").display().to_string())
            .replace("{abstract}", &self.abstract_name)
    }

    /// Whether everything is as it was. `output` is all that the attacker printed.
    pub(crate) fn check(&self, output: &[u8]) -> Result<(), String> {
        let marker = self.marker.as_bytes();
        if output.windows(marker.len()).any(|window| window == marker) {
            return Err("the secret appeared in the output".to_owned());
        }
        if fs::read(&self.secret).ok().as_deref() != Some(marker) {
            return Err("the secret file was changed".to_owned());
        }
        if fs::metadata(&self.secret).map_or(0, |found| found.mode() & 0o7777) != 0o600 {
            return Err("the secret file's mode was changed".to_owned());
        }
        let mut names: Vec<_> = fs::read_dir(self.directory.path())
            .map_err(|error| format!("the directory of the secret: {error}"))?
            .flatten()
            .map(|entry| entry.file_name())
            .collect();
        names.sort();
        if names != ["secret", "socket", "work"] {
            return Err(format!("the directory of the secret now holds {names:?}"));
        }
        self.check_victim()?;
        let reached = self.ipv4.accept().is_ok()
            || self.ipv6.as_ref().is_some_and(|listener| listener.accept().is_ok())
            || self.socket.accept().is_ok()
            || self.abstract_socket.accept().is_ok();
        if reached {
            return Err("a listener of the host's was reached".to_owned());
        }
        if hostname() != self.hostname {
            return Err("the machine has another name".to_owned());
        }
        Ok(())
    }

    /// Alive, neither stopped nor traced, and with its priority.
    fn check_victim(&self) -> Result<(), String> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.victim.id())).unwrap_or_default();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
        match fields.first() {
            Some(&("S" | "R" | "D")) => {}
            other => return Err(format!("the host's process is in state {other:?}")),
        }
        let own = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let own_nice = own.rsplit(')').next().unwrap_or("").split_whitespace().nth(16).map(str::to_owned);
        if fields.get(16).map(|nice| (*nice).to_owned()) != own_nice {
            return Err("the host's process was given another priority".to_owned());
        }
        Ok(())
    }
}

impl Drop for Facts {
    fn drop(&mut self) {
        let _ = self.victim.kill();
        let _ = self.victim.wait();
    }
}

fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Different in every process and every time.
pub(crate) fn unique() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    format!("{:x}-{:x}-{}", now.as_micros(), std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Files with a set-uid or set-gid bit below a directory, at any depth that matters here.
pub(crate) fn find_set_id(directory: &Path) -> Option<PathBuf> {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let Ok(found) = fs::symlink_metadata(entry.path()) else { continue };
        if !found.is_symlink() && found.mode() & 0o6000 != 0 {
            return Some(entry.path());
        }
        if found.is_dir()
            && let Some(path) = find_set_id(&entry.path())
        {
            return Some(path);
        }
    }
    None
}
