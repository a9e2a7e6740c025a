//! A job's log: every step with its whole output, in one file that only grows. Events name ranges of it. What a
//! server wrote and did not get to record is cut off by the one that takes over.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use cofferdam_protocol::event::StepResult;
use cofferdam_protocol::job::Step;

/// Of a command or code that a heading shows.
const HEADING_MAX_CHARS: usize = 200;

/// A write of this size into the page cache takes less time than handing it to another thread.
const INLINE_MAX_BYTES: usize = 16 * 1024;

#[derive(Debug)]
pub struct Log {
    file: Arc<File>,
    end: u64,
    ends_in_line: bool,
}

impl Log {
    /// Opens it to go on at `end`; what lies behind is cut off.
    pub fn open(path: &Path, end: u64) -> io::Result<Self> {
        let file = File::options().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        file.set_len(end)?;
        let mut last = [b'\n'];
        if end > 0 {
            file.read_exact_at(&mut last, end - 1)?;
        }
        Ok(Self { file: Arc::new(file), end, ends_in_line: last == *b"\n" })
    }

    pub fn end(&self) -> u64 {
        self.end
    }

    /// All of it or, as far as later calls are concerned, nothing.
    pub async fn append(&mut self, bytes: Vec<u8>) -> io::Result<()> {
        let Some(last) = bytes.last() else { return Ok(()) };
        let ends_in_line = *last == b'\n';
        let (file, at, length) = (self.file.clone(), self.end, bytes.len() as u64);
        if bytes.len() <= INLINE_MAX_BYTES {
            file.write_all_at(&bytes, at)?;
        } else {
            let written = tokio::task::spawn_blocking(move || file.write_all_at(&bytes, at)).await;
            written.map_err(io::Error::other)??;
        }
        self.end += length;
        self.ends_in_line = ends_in_line;
        Ok(())
    }

    /// A line of our own, at the beginning of a line.
    pub fn line(&self, text: &str) -> Vec<u8> {
        let before = if self.ends_in_line { "" } else { "\n" };
        format!("{before}{text}\n").into_bytes()
    }
}

/// What stands in front of a step's output.
pub fn heading(number: u32, total: u32, attempt: u32, step: &Step) -> String {
    let again = if attempt > 1 { format!(", attempt {attempt}") } else { String::new() };
    format!(
        "── step {number} of {total}{again}, {}: {}",
        step.tool.name(),
        shorten(step.tool.text(), HEADING_MAX_CHARS)
    )
}

/// What stands behind it.
pub fn trailer(result: &StepResult, duration_ms: u64) -> String {
    format!("── {result} ({duration_ms} ms)")
}

/// One line of at most so many characters.
pub fn shorten(text: &str, most: usize) -> String {
    let line = text.trim().lines().next().unwrap_or_default();
    let shown: String = line.chars().filter(|c| !c.is_control()).take(most).collect();
    let is_whole = text.trim().len() == shown.len();
    if is_whole { shown } else { format!("{shown} …") }
}
