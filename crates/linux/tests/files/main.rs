//! The file library as its callers use it, and as hostile neighbours try to misuse it.

mod archives;
mod hostile;
mod operations;
mod watching;

use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use cofferdam_linux::files::{FileError, RelativePath, Workspace, WriteOptions};
use tempfile::TempDir;

/// A workspace, and beside it a directory that must never be reached from it.
struct Fixture {
    _directory: TempDir,
    inside: PathBuf,
    outside: PathBuf,
    workspace: Workspace,
}

const SECRET: &str = "the secret outside";

impl Fixture {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (inside, outside) = (directory.path().join("inside"), directory.path().join("outside"));
        std::fs::create_dir(&inside).unwrap();
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(outside.join("file"), SECRET).unwrap();
        let workspace = Workspace::open(&inside).unwrap();
        Self { _directory: directory, inside, outside, workspace }
    }

    fn write(&self, name: &str, content: &str) -> Result<(), FileError> {
        let mut writer = self.workspace.write(&path(name), WriteOptions { parents: true, ..Default::default() })?;
        writer.write_all(content.as_bytes()).unwrap();
        writer.commit().map(drop)
    }

    fn read(&self, name: &str) -> Result<String, FileError> {
        let (mut file, _) = self.workspace.read(&path(name), None)?;
        let mut content = String::new();
        file.read_to_string(&mut content).unwrap();
        Ok(content)
    }

    fn tree(&self, name: &str) -> Vec<String> {
        paths(self.workspace.tree(&path(name), usize::MAX).unwrap())
    }

    fn assert_outside_unchanged(&self) {
        let names: Vec<_> = std::fs::read_dir(&self.outside).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names, ["file"]);
        assert_eq!(std::fs::read_to_string(self.outside.join("file")).unwrap(), SECRET);
    }
}

fn path(text: &str) -> RelativePath {
    RelativePath::parse(text.as_bytes()).unwrap()
}

fn paths(list: cofferdam_protocol::files::FileList) -> Vec<String> {
    assert!(!list.truncated);
    list.entries.into_iter().map(|entry| entry.path).collect()
}

fn mode_of(path: &Path) -> u32 {
    use std::os::unix::fs::MetadataExt;
    std::fs::symlink_metadata(path).unwrap().mode() & 0o7777
}
