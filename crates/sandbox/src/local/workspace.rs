//! What a sandbox has at /workspace: memory, or a directory of the caller's. A directory is checked here (it exists,
//! is one, and is ours) and then only ever named together with its identity.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use cofferdam_protocol::launch::WorkspaceSource;
use rustix::fs::{Mode, OFlags};

use crate::SandboxError;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Workspace {
    /// Empty, in memory, gone with the sandbox.
    #[default]
    Temporary,
    Directory(PathBuf),
}

pub(super) struct Checked {
    pub(super) source: WorkspaceSource,
    pub(super) directory: Option<OwnedFd>,
}

impl Workspace {
    pub(super) fn check(&self) -> Result<Checked, SandboxError> {
        let Self::Directory(path) = self else {
            return Ok(Checked { source: WorkspaceSource::Temporary, directory: None });
        };
        let unusable = |detail: String| SandboxError::WorkspaceUnusable { path: path.clone(), detail };
        let real = match fs::canonicalize(path) {
            Ok(real) => real,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(SandboxError::WorkspaceMissing { path: path.clone() });
            }
            Err(error) => return Err(unusable(error.to_string())),
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let directory = match rustix::fs::open(&real, flags, Mode::empty()) {
            Ok(directory) => fs::File::from(directory),
            Err(rustix::io::Errno::NOTDIR) => return Err(SandboxError::WorkspaceNotDirectory { path: path.clone() }),
            Err(error) => return Err(unusable(error.to_string())),
        };
        let found = directory.metadata().map_err(|error| unusable(error.to_string()))?;
        let uid = rustix::process::geteuid().as_raw();
        if found.uid() != uid {
            return Err(SandboxError::WorkspaceForeign { path: path.clone(), owner: found.uid(), uid });
        }
        let Some(text) = real.to_str() else { return Err(unusable("its name is not UTF-8; rename it".to_owned())) };
        if text == "/" {
            return Err(unusable("it is the root directory; name a directory for the sandbox alone".to_owned()));
        }
        let source = WorkspaceSource::Directory { path: text.to_owned(), device: found.dev(), inode: found.ino() };
        Ok(Checked { source, directory: Some(directory.into()) })
    }
}
