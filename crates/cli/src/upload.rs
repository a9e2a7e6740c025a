//! The files that go with a job: single ones as they are, a directory as a tar, both streamed and never held in memory.
//! What the job itself says is `job::run`'s.

use std::io::{self, BufWriter, Write};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use cofferdam_linux::files::{ARCHIVE_DEFAULT_LIMITS, RelativePath, Workspace};
use futures_util::stream;
use indicatif::ProgressBar;
use reqwest::Body;
use reqwest::multipart::{Form, Part};
use tokio::sync::mpsc;

use crate::exec::Failure;
use crate::exit_code;
use crate::progress_bar::transfer_bar;
use crate::text::say;

/// One piece of the stream, and how many of them may wait for the network.
const PIECE_BYTES: usize = 64 * 1024;
const PIECES_WAITING: usize = 4;
/// How long the size of a directory is counted, for the bar: it is a guess in any case.
const COUNT_TIMEOUT: Duration = Duration::from_millis(300);

/// A body under way.
pub struct Upload {
    pub form: Form,
    pub bar: ProgressBar,
}

/// Why reading stopped: the connection's own error would only say that the body ended early.
#[derive(Debug, Clone, Default)]
pub struct Problem(Arc<Mutex<Option<String>>>);

impl Problem {
    fn set(&self, problem: String) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(problem);
    }

    /// What went wrong here, if it was here.
    pub fn failure(&self) -> Option<Failure> {
        let problem = self.0.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        Some(Failure::new(exit_code::WORKSPACE_WRONG, format!("the workspace cannot be read: {problem}")))
    }
}

impl Upload {
    pub async fn new(
        job: String,
        files: &[PathBuf],
        workspace: Option<&Path>,
        problem: Problem,
    ) -> Result<Self, Failure> {
        let wrong = |code, path: &Path, error: &dyn std::fmt::Display| {
            Failure::new(code, format!("{} cannot be read: {error}", path.display()))
        };
        let text = |error: reqwest::Error| Failure::new(exit_code::USAGE, error);
        let mut form = Form::new().part("job", Part::text(job).mime_str("application/json").map_err(text)?);
        for path in files {
            let unreadable = |error: io::Error| wrong(exit_code::FILE_WRONG, path, &error);
            let file = tokio::fs::File::open(path).await.map_err(unreadable)?;
            let metadata = file.metadata().await.map_err(unreadable)?;
            if !metadata.is_file() {
                return Err(wrong(
                    exit_code::FILE_WRONG,
                    path,
                    &"it is not a file; for a directory there is --workspace",
                ));
            }
            let part = Part::stream_with_length(Body::from(file), metadata.len()).file_name(name_of(path)?);
            form = form.part("file", part);
        }
        let mut bar = ProgressBar::hidden();
        if let Some(directory) = workspace {
            let unusable =
                |error: cofferdam_linux::files::FileError| wrong(exit_code::WORKSPACE_WRONG, directory, &error);
            let workspace = Workspace::open(directory).map_err(unusable)?;
            let usage = workspace.usage(COUNT_TIMEOUT).map_err(unusable)?;
            bar = transfer_bar("uploading", usage.complete.then_some(usage.bytes));
            let archive = archive(workspace, bar.clone(), problem);
            form = form.part("archive", Part::stream(archive).file_name("workspace.tar"));
        }
        Ok(Self { form, bar })
    }
}

/// As it was named from here if that is below here, else its last part.
fn name_of(path: &Path) -> Result<String, Failure> {
    let below = path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    let name: Option<PathBuf> = match below {
        true => Some(path.components().filter(|part| !matches!(part, Component::CurDir)).collect()),
        false => path.file_name().map(PathBuf::from),
    };
    let name = name.and_then(|name| name.to_str().map(str::to_owned)).filter(|name| !name.is_empty());
    name.ok_or_else(|| {
        let message = format!("{} has no name in UTF-8; rename it, or put it into a --workspace", path.display());
        Failure::new(exit_code::FILE_WRONG, message)
    })
}

fn archive(workspace: Workspace, bar: ProgressBar, problem: Problem) -> Body {
    let (sender, receiver) = mpsc::channel::<io::Result<Bytes>>(PIECES_WAITING);
    std::thread::spawn(move || {
        let pieces = BufWriter::with_capacity(PIECE_BYTES, Pieces { sender: sender.clone(), bar });
        match workspace.tar_out(&RelativePath::root(), pieces, ARCHIVE_DEFAULT_LIMITS) {
            Ok(archived) if archived.skipped > 0 => {
                say(&format!("{} sockets, pipes or files that may not be read are left out", archived.skipped));
            }
            Ok(_) => {}
            // Whoever took the pieces is gone: that is their error.
            Err(_) if sender.is_closed() => {}
            Err(error) => {
                problem.set(error.to_string());
                let _ = sender.blocking_send(Err(io::Error::other(error.to_string())));
            }
        }
    });
    Body::wrap_stream(stream::unfold(receiver, async |mut receiver| Some((receiver.recv().await?, receiver))))
}

struct Pieces {
    sender: mpsc::Sender<io::Result<Bytes>>,
    bar: ProgressBar,
}

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let piece = Bytes::copy_from_slice(bytes);
        self.sender.blocking_send(Ok(piece)).map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        self.bar.inc(bytes.len() as u64);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_keep_the_names_that_they_have_from_here() {
        let name = |path: &str| name_of(Path::new(path)).ok();
        assert_eq!(name("a.txt"), Some("a.txt".to_owned()));
        assert_eq!(name("./src/a.txt"), Some("src/a.txt".to_owned()));
        assert_eq!(name("../a.txt"), Some("a.txt".to_owned()));
        assert_eq!(name("/etc/hosts"), Some("hosts".to_owned()));
        assert_eq!(name(".."), None);
    }
}
