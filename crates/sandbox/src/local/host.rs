//! What of the host goes into a sandbox: the system's programs and libraries, read-only; a synthesised /etc with an
//! allow-list of harmless parts of the real one; devices without state. Decided once per process, from what exists.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use cofferdam_protocol::launch::{PROXY_PORT, RootEntry};

use crate::SandboxError;

/// Top-level directories that are part of the system; on merged-/usr machines most are symlinks.
const SYSTEM_DIRECTORIES: &[&str] = &["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];
/// Parts of /etc that programs need and that say nothing about this host, its users or its secrets.
const ETC_ALLOWED: &[&str] = &[
    "/etc/alternatives",
    "/etc/fonts",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/pki/ca-trust/extracted",
    "/etc/pki/tls/certs",
    "/etc/services",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
];
const DEVICES: &[&str] = &["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];
const SCRATCH: &[&str] = &["/tmp", "/var/tmp", "/run", "/home/agent", "/dev/shm"];
const DIRECTORIES: &[&str] = &["/etc", "/dev", "/dev/pts", "/proc", "/home", "/var", "/opt", "/workspace", "/app"];
const SYMLINKS: &[(&str, &str)] = &[
    ("/dev/fd", "/proc/self/fd"),
    ("/dev/stdin", "/proc/self/fd/0"),
    ("/dev/stdout", "/proc/self/fd/1"),
    ("/dev/stderr", "/proc/self/fd/2"),
    ("/dev/ptmx", "pts/ptmx"),
    ("/etc/os-release", "../usr/lib/os-release"),
    ("/etc/mtab", "/proc/self/mounts"),
    ("/var/run", "/run"),
];
const FILES: &[(&str, &str)] = &[
    (
        "/etc/passwd",
        "agent:x:1000:1000:agent:/home/agent:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    ),
    ("/etc/group", "agent:x:1000:\nnogroup:x:65534:\n"),
    ("/etc/hosts", "127.0.0.1 localhost sandbox\n::1 localhost\n"),
    ("/etc/hostname", "sandbox\n"),
    ("/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n"),
    // Names are resolved by the proxy outside. A server that refuses at once is better than none, which is waited for.
    ("/etc/resolv.conf", "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n"),
    ("/etc/shells", "/bin/sh\n/bin/bash\n"),
];
const PATH: &[&str] = &["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];
const CERTIFICATES: &[&str] = &["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"];

/// The host's share in every sandbox of this process.
#[derive(Debug, Clone)]
pub(super) struct HostView {
    pub(super) root: Vec<RootEntry>,
    environment: BTreeMap<String, String>,
    certificates: Option<&'static str>,
}

impl HostView {
    /// `read_only`: further directories to offer under their own names, for toolchains outside of /usr.
    pub(super) fn new(read_only: &[PathBuf]) -> Result<Self, SandboxError> {
        let mut plan = Plan::default();
        for path in DIRECTORIES {
            plan.directory(path);
        }
        for path in SYSTEM_DIRECTORIES.iter().chain(ETC_ALLOWED) {
            plan.take_over(path);
        }
        for (path, content) in FILES {
            plan.root.push(RootEntry::File { path: (*path).to_owned(), content: (*content).to_owned() });
        }
        for (path, target) in SYMLINKS {
            plan.root.push(RootEntry::Symlink { path: (*path).to_owned(), target: (*target).to_owned() });
        }
        for path in DEVICES.iter().filter(|path| Path::new(path).exists()) {
            plan.root.push(RootEntry::Device { path: (*path).to_owned() });
        }
        for path in SCRATCH {
            plan.parents(path);
            plan.root.push(RootEntry::Scratch { path: (*path).to_owned() });
        }
        let mut search = vec!["/home/agent/.local/bin".to_owned(), "/home/agent/.npm/bin".to_owned()];
        for path in read_only {
            let text = check_read_only(path)?;
            plan.parents(&text);
            plan.root.push(RootEntry::Bind { source: text.clone(), path: text.clone() });
            if path.join("bin").is_dir() {
                search.push(format!("{text}/bin"));
            }
        }
        search.extend(PATH.iter().map(|directory| (*directory).to_owned()));
        let certificates = CERTIFICATES.iter().copied().find(|path| Path::new(path).exists());
        Ok(Self { root: plan.root, environment: environment(&search.join(":")), certificates })
    }

    /// What every command's environment begins with.
    pub(super) fn environment(&self, network: bool) -> BTreeMap<String, String> {
        let mut all = self.environment.clone();
        if !network {
            return all;
        }
        let mut set = |name: &str, value: &str| drop(all.insert(name.to_owned(), value.to_owned()));
        let proxy = format!("http://127.0.0.1:{PROXY_PORT}");
        for name in ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"] {
            set(name, &proxy);
        }
        // The sandbox's own loopback is reached directly.
        for name in ["no_proxy", "NO_PROXY"] {
            set(name, "localhost,127.0.0.1,::1");
        }
        // node 24 and later heed the proxy when told to.
        set("NODE_USE_ENV_PROXY", "1");
        // Tools that carry certificates of their own are told of the host's, so that a company's are trusted, too.
        if let Some(path) = self.certificates {
            for name in [
                "SSL_CERT_FILE",
                "REQUESTS_CA_BUNDLE",
                "PIP_CERT",
                "NODE_EXTRA_CA_CERTS",
                "GIT_SSL_CAINFO",
                "CURL_CA_BUNDLE",
            ] {
                set(name, path);
            }
        }
        all
    }
}

fn environment(path: &str) -> BTreeMap<String, String> {
    let all = [
        ("HOME", "/home/agent"),
        ("USER", "agent"),
        ("LOGNAME", "agent"),
        ("SHELL", "/bin/sh"),
        ("LANG", "C.UTF-8"),
        ("TMPDIR", "/tmp"),
        ("PATH", path),
        // `pip install` and `npm install -g` have somewhere to go: the home directory, which ends with the sandbox.
        ("PIP_USER", "1"),
        ("PIP_BREAK_SYSTEM_PACKAGES", "1"),
        ("PIP_DISABLE_PIP_VERSION_CHECK", "1"),
        ("NPM_CONFIG_PREFIX", "/home/agent/.npm"),
        ("NPM_CONFIG_CACHE", "/tmp/.npm-cache"),
        ("NPM_CONFIG_UPDATE_NOTIFIER", "false"),
    ];
    all.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// Entries in order, parents first, none twice.
#[derive(Default)]
struct Plan {
    root: Vec<RootEntry>,
    made: BTreeSet<String>,
}

impl Plan {
    fn directory(&mut self, path: &str) {
        if self.made.insert(path.to_owned()) {
            self.root.push(RootEntry::Directory { path: path.to_owned() });
        }
    }

    fn parents(&mut self, path: &str) {
        for (index, _) in path.match_indices('/').filter(|(index, _)| *index > 0) {
            self.directory(&path[..index]);
        }
    }

    /// Something of the host's, as it is there: a symlink as a symlink, the rest as a read-only mount.
    fn take_over(&mut self, path: &str) {
        let Ok(found) = fs::symlink_metadata(path) else { return };
        self.parents(path);
        let path = path.to_owned();
        if !found.is_symlink() {
            self.made.insert(path.clone());
            self.root.push(RootEntry::Bind { source: path.clone(), path });
        } else if let Some(target) =
            fs::read_link(&path).ok().and_then(|target| target.into_os_string().into_string().ok())
        {
            self.root.push(RootEntry::Symlink { path, target });
        }
    }
}

fn check_read_only(path: &Path) -> Result<String, SandboxError> {
    let wrong = |detail: String| SandboxError::ReadOnlyDirectory { path: path.to_owned(), detail };
    let text = path.to_str().ok_or_else(|| wrong("its name is not UTF-8".to_owned()))?;
    if !path.is_absolute() || path.components().any(|part| part.as_os_str() == "..") {
        return Err(wrong("name it from the root, without \"..\"".to_owned()));
    }
    let text = text.trim_end_matches('/');
    const OURS: &[&str] = &["", "/proc", "/sys", "/dev", "/workspace", "/app", "/tmp", "/home", "/etc", "/usr"];
    if OURS.contains(&text) {
        return Err(wrong("that name is taken inside the sandbox; offer a directory below it".to_owned()));
    }
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => Ok(text.to_owned()),
        Ok(_) => Err(wrong("it is not a directory".to_owned())),
        Err(error) => Err(wrong(error.to_string())),
    }
}
