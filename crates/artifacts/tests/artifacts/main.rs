//! Archives, patches and copies as people use them, with the programs that they use: unzip, Python, git, patch.

mod copy;
mod diff;
mod hostile;
mod zip;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use cofferdam_linux::files::Workspace;
use tempfile::TempDir;

/// A directory to fill, and what it looks like to this crate.
struct Tree {
    directory: TempDir,
}

impl Tree {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    fn workspace(&self) -> Workspace {
        Workspace::open(self.path()).unwrap()
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn at(&self, name: impl AsRef<[u8]>) -> PathBuf {
        self.path().join(OsStr::from_bytes(name.as_ref()))
    }

    /// With the directories above it.
    fn file(&self, name: impl AsRef<[u8]>, content: impl AsRef<[u8]>, mode: u32) -> &Self {
        let path = self.at(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        self
    }

    fn symlink(&self, name: impl AsRef<[u8]>, target: impl AsRef<[u8]>) -> &Self {
        std::os::unix::fs::symlink(OsStr::from_bytes(target.as_ref()), self.at(name)).unwrap();
        self
    }

    fn set_modified(&self, name: &str, seconds: u64) {
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
        std::fs::File::open(self.at(name)).unwrap().set_modified(time).unwrap();
    }

    /// Every entry but special ones, by its path.
    fn entries(&self) -> BTreeMap<OsString, Entry> {
        let mut entries = BTreeMap::new();
        collect(self.path(), &mut Vec::new(), &mut entries);
        entries
    }
}

#[derive(PartialEq, Eq, Clone)]
enum Entry {
    Directory { mode: u32 },
    File { mode: u32, content: Vec<u8> },
    Symlink(Vec<u8>),
}

/// Short enough to be read when two trees differ.
impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Directory { mode } => write!(f, "directory {mode:o}"),
            Self::File { mode, content } => {
                let start = &content[..content.len().min(80)];
                write!(f, "file {mode:o}, {} bytes: {}", content.len(), start.escape_ascii())
            }
            Self::Symlink(target) => write!(f, "link to {}", target.escape_ascii()),
        }
    }
}

fn collect(directory: &Path, prefix: &mut Vec<u8>, entries: &mut BTreeMap<OsString, Entry>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let length = prefix.len();
        prefix.extend_from_slice(entry.file_name().as_bytes());
        let metadata = entry.metadata().unwrap();
        let mode = metadata.mode() & 0o7777;
        if metadata.is_symlink() {
            let target = std::fs::read_link(entry.path()).unwrap();
            entries.insert(OsString::from_vec(prefix.clone()), Entry::Symlink(target.as_os_str().as_bytes().to_vec()));
        } else if metadata.is_dir() {
            entries.insert(OsString::from_vec(prefix.clone()), Entry::Directory { mode });
            prefix.push(b'/');
            collect(&entry.path(), prefix, entries);
        } else if metadata.is_file() {
            let content = std::fs::read(entry.path()).unwrap();
            entries.insert(OsString::from_vec(prefix.clone()), Entry::File { mode, content });
        }
        prefix.truncate(length);
    }
}

/// Runs a program with names in UTF-8, and expects it to succeed.
fn run(command: &mut Command) -> Output {
    let output = command.env("LC_ALL", "C.UTF-8").output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}
