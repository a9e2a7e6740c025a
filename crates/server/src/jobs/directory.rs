//! A job's directory: what a person finds in it, and how it comes to be. The store is the truth; except for the
//! workspace and the log, everything here can be written again from it.
//!
//! ```text
//! task.json    what was asked for            status.json  how far it is
//! agent.log    every step with its output    memory.json  what was done and what came of it
//! workspace/   what the job works on         input/       what it was given, if anything
//! connections.jsonl  what it tried to reach, if it was allowed a network
//! ```

use std::fs;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use cofferdam_artifacts::ArtifactError;
use cofferdam_artifacts::copy::{CopyLimits, copy_tree};
use cofferdam_linux::files::{Content, FileError, RelativePath, Workspace};
use cofferdam_protocol::files::FileKind;
use cofferdam_protocol::job::{JobId, JobSpec};

use crate::data::DataDirectory;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};

#[derive(Debug, Clone)]
pub struct JobDirectory {
    root: PathBuf,
}

/// Why a job's directory could not be made ready.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    #[error("the workspace of its parent {0} is not there any more")]
    ParentGone(JobId),
    #[error("its input files are not there any more")]
    InputGone,
    #[error("its input could not be copied: {0}")]
    Copy(#[from] ArtifactError),
    #[error("its directory could not be made: {0}")]
    Io(#[from] io::Error),
    #[error("its log could not be opened: {0}")]
    Log(io::Error),
    #[error(transparent)]
    File(#[from] FileError),
}

impl PrepareError {
    /// What can be tried again when there is space.
    pub fn is_no_space(&self) -> bool {
        let is_full = |error: &io::Error| error.kind() == io::ErrorKind::StorageFull;
        match self {
            Self::Io(error) | Self::Log(error) => is_full(error),
            Self::File(FileError::NoSpace { .. }) | Self::Copy(ArtifactError::File(FileError::NoSpace { .. })) => true,
            Self::File(FileError::Io { source, .. }) => is_full(source),
            Self::Copy(
                ArtifactError::File(FileError::Io { source, .. })
                | ArtifactError::Content { source, .. }
                | ArtifactError::Output(source),
            ) => is_full(source),
            _ => false,
        }
    }
}

impl JobDirectory {
    pub fn new(data: &DataDirectory, id: &JobId) -> Self {
        Self { root: data.task(id) }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn log(&self) -> PathBuf {
        self.root.join("agent.log")
    }

    pub fn connections(&self) -> PathBuf {
        self.root.join("connections.jsonl")
    }

    pub fn workspace(&self) -> PathBuf {
        self.root.join("workspace")
    }

    pub fn input(&self) -> PathBuf {
        self.root.join("input")
    }

    /// The workspace with its input in it. Done in steps that are each whole or not there, so that it can be called
    /// again after a crash at any point. Blocks.
    pub fn prepare(&self, data: &DataDirectory, id: &JobId, spec: &JobSpec) -> Result<(), PrepareError> {
        make(&self.root)?;
        let uploaded = incoming(data, id);
        if self.workspace().is_dir() {
            // Copied by a server that did not get to remove it.
            let _ = fs::remove_dir_all(uploaded);
            return Ok(());
        }
        let limits = CopyLimits { bytes: spec.limits.workspace_bytes, ..CopyLimits::default() };
        if !self.input().is_dir() {
            let source = spec.parent.as_ref().map(|parent| (parent, Self::new(data, parent).workspace()));
            if let Some((parent, source)) = source {
                let source = Workspace::open(&source).map_err(|_| PrepareError::ParentGone(parent.clone()))?;
                self.copy(&source, "input", limits, uploaded.is_dir().then_some(uploaded.as_path()))?;
            } else if spec.has_input {
                match fs::rename(&uploaded, self.input()) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(PrepareError::InputGone),
                    renamed => renamed?,
                }
            }
        }
        let _ = fs::remove_dir_all(uploaded);
        if self.input().is_dir() {
            self.copy(&Workspace::open(&self.input())?, "workspace", limits, None)
        } else {
            Ok(make(&self.workspace())?)
        }
    }

    /// A copy under a temporary name, with what is in `over` put on top, that then gets its own.
    fn copy(
        &self,
        source: &Workspace,
        name: &str,
        limits: CopyLimits,
        over: Option<&Path>,
    ) -> Result<(), PrepareError> {
        let unfinished_name = format!(".{name}");
        let unfinished = self.root.join(&unfinished_name);
        let remove = || -> Result<(), PrepareError> {
            let path = RelativePath::parse(unfinished_name.as_bytes())?;
            Ok(Workspace::open(&self.root)?.remove(&path, true)?)
        };
        if unfinished.exists() {
            remove()?;
        }
        let copied = || -> Result<(), PrepareError> {
            make(&unfinished)?;
            let target = Workspace::open(&unfinished)?;
            copy_tree(source, &target, limits)?;
            if let Some(over) = over {
                let over = Workspace::open(over)?;
                make_way(&over, &target, limits)?;
                copy_tree(&over, &target, limits)?;
            }
            Ok(fs::rename(&unfinished, self.root.join(name))?)
        };
        copied().inspect_err(|_| drop(remove()))
    }

    /// Input that a job did not come to use stays with it, so that it can be repeated.
    pub fn adopt_input(&self, data: &DataDirectory, id: &JobId) -> io::Result<()> {
        let uploaded = incoming(data, id);
        if uploaded.is_dir() && !self.input().exists() {
            fs::rename(uploaded, self.input())?;
        }
        Ok(())
    }
}

/// Removes what is in the way of a copy: only directories are shared.
fn make_way(over: &Workspace, target: &Workspace, limits: CopyLimits) -> Result<(), PrepareError> {
    let mut walk = over.sorted_walk(limits.entries)?;
    while let Some(found) = walk.next_entry()? {
        match target.stat(&found.path, false) {
            Ok(there) if there.kind == FileKind::Directory && matches!(found.content, Content::Directory) => {}
            Ok(_) => target.remove(&found.path, true)?,
            Err(FileError::NotFound { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Where a job's input files wait for its start.
pub fn incoming(data: &DataDirectory, id: &JobId) -> PathBuf {
    data.incoming().join(id.as_str())
}

/// A directory for its owner alone.
pub fn make(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// A file that is whole or not there: it gets its name when it is complete.
pub fn write_whole(path: &Path, content: &[u8]) -> io::Result<()> {
    if write_new(path, content).is_ok() {
        return Ok(());
    }
    // There is one already, or this file system knows no files without a name.
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(".new");
    fs::write(&unfinished, content)?;
    fs::rename(&unfinished, path)
}

fn write_new(path: &Path, content: &[u8]) -> io::Result<()> {
    let parent = path.parent().unwrap_or(Path::new("."));
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    if path.exists() {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    let mut file = fs::File::from(rustix::fs::open(parent, flags, Mode::from_raw_mode(0o600))?);
    file.write_all(content)?;
    let unnamed = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(rustix::fs::linkat(CWD, unnamed, CWD, path, AtFlags::SYMLINK_FOLLOW)?)
}
