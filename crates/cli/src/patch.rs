//! Patches in git's format: fetched to a file, counted for people, and applied to a directory with git. Making them is
//! the server's.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use reqwest::Method;

use crate::client::Client;
use crate::exec::Failure;
use crate::exit_code;
use crate::text::{self, Colour, Colours};

/// Names in a summary are cut to this.
const NAME_WIDTH: usize = 60;
/// A summary of more files than this is not read by anybody.
const FILES_SHOWN: usize = 50;

/// How the server begins a line about a file that is too large for a patch.
const LEFT_OUT: &str = "# Left out: ";
/// A repository's own files: a job that so much as asks for the status changes them, and what a hostile one could put
/// there, such as hooks, would run outside of any sandbox.
const NOT_APPLIED: [&str; 2] = [".git/*", "*/.git/*"];

/// A job's patch, in a file without a name: it may be larger than memory should hold.
pub async fn fetch(client: &Client, job: &str) -> Result<File, Failure> {
    let kept = |error: io::Error| Failure::new(exit_code::DISK_FULL, format!("the patch cannot be kept: {error}"));
    let mut file = tempfile::tempfile().map_err(kept)?;
    let mut response = client.send(client.request(Method::GET, &format!("/jobs/{job}/diff"))).await?;
    while let Some(bytes) = response.chunk().await.map_err(|error| client.unreachable(&error))? {
        file.write_all(&bytes).map_err(kept)?;
    }
    file.rewind().map_err(kept)?;
    Ok(file)
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct FileChange {
    pub name: String,
    pub added: u64,
    pub removed: u64,
    pub binary: bool,
    /// Lines that a hunk has still to show; what looks like a header among them is content.
    old_left: u64,
    new_left: u64,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Summary {
    pub files: Vec<FileChange>,
    /// What the server says it could not put into the patch, a line for each.
    pub left_out: Vec<String>,
}

impl Summary {
    /// Counts a patch as far as it would be applied, and leaves the file at its beginning.
    pub fn of(patch: &mut File) -> io::Result<Self> {
        let summary = Self::read(BufReader::new(&mut *patch))?;
        patch.rewind()?;
        Ok(summary)
    }

    fn read(mut patch: impl BufRead) -> io::Result<Self> {
        let mut files: Vec<FileChange> = Vec::new();
        let mut left_out = Vec::new();
        let mut line = Vec::new();
        while patch.read_until(b'\n', &mut line)? > 0 {
            let text = String::from_utf8_lossy(&line);
            let text = text.trim_end_matches('\n');
            match files.last_mut() {
                Some(file) if file.old_left + file.new_left > 0 => file.count(text),
                _ if text.starts_with("diff --git ") => {
                    let name = name_in_header(text);
                    files.push(FileChange { name, ..FileChange::default() });
                }
                _ if text.starts_with(LEFT_OUT) => left_out.push(text.trim_start_matches(LEFT_OUT).to_owned()),
                Some(file) => file.header(text),
                None => {}
            }
            line.clear();
        }
        files.retain(|file| !file.name.split('/').any(|part| part == ".git"));
        Ok(Self { files, left_out })
    }

    pub fn is_empty(&self) -> bool {
        self.files.is_empty() && self.left_out.is_empty()
    }

    /// A line for each file and one for all of them.
    pub fn show(&self, colours: Colours) -> String {
        let shown = &self.files[..self.files.len().min(FILES_SHOWN)];
        let name = |file: &FileChange| text::first_line(&file.name, NAME_WIDTH);
        let width = shown.iter().map(|file| name(file).chars().count()).max().unwrap_or(0);
        let mut lines: Vec<String> = Vec::new();
        for file in shown {
            let name = name(file);
            let gap = " ".repeat(width - name.chars().count());
            let change = if file.binary {
                "binary".to_owned()
            } else {
                let added = colours.paint(Colour::Green, &format!("+{}", file.added));
                format!("{added} {}", colours.paint(Colour::Red, &format!("-{}", file.removed)))
            };
            lines.push(format!(" {name}{gap} | {change}"));
        }
        if shown.len() < self.files.len() {
            lines.push(format!(" … and {} more", self.files.len() - shown.len()));
        }
        for reason in self.left_out.iter().take(FILES_SHOWN) {
            lines.push(format!(" {} {}", colours.paint(Colour::Yellow, "not in the patch:"), text::printable(reason)));
        }
        let sum = |count: fn(&FileChange) -> u64| self.files.iter().map(count).sum::<u64>();
        let files = if self.files.len() == 1 { "1 file".to_owned() } else { format!("{} files", self.files.len()) };
        lines.push(format!(" {files} changed, +{} -{}", sum(|file| file.added), sum(|file| file.removed)));
        lines.join("\n")
    }
}

impl FileChange {
    fn count(&mut self, line: &str) {
        match line.as_bytes().first() {
            Some(b'+') => {
                self.added += 1;
                self.new_left = self.new_left.saturating_sub(1);
            }
            Some(b'-') => {
                self.removed += 1;
                self.old_left = self.old_left.saturating_sub(1);
            }
            Some(b'\\') => {}
            _ => {
                self.old_left = self.old_left.saturating_sub(1);
                self.new_left = self.new_left.saturating_sub(1);
            }
        }
    }

    fn header(&mut self, line: &str) {
        if line == "GIT binary patch" || line.starts_with("Binary files ") {
            self.binary = true;
        }
        // `@@ -1,2 +3,4 @@`; a count of one is left out.
        let Some(ranges) = line.strip_prefix("@@ ") else { return };
        let count = |range: Option<&str>| -> u64 {
            range.and_then(|range| range.split_once(',').map_or(Some(1), |(_, count)| count.parse().ok())).unwrap_or(0)
        };
        let mut ranges = ranges.split(' ');
        self.old_left = count(ranges.next());
        self.new_left = count(ranges.next());
    }
}

/// `diff --git a/x b/x`: both halves name the file, unless it was renamed, when the second is its new name.
fn name_in_header(line: &str) -> String {
    let names = line.trim_start_matches("diff --git ");
    let half = names.len() / 2;
    let same = names.is_char_boundary(half)
        && names.get(..half).map(|a| &a[1..]) == names.get(half + 1..).map(|b| b.get(1..).unwrap_or_default());
    let name = if same { &names[half + 1..] } else { names.rsplit(" b/").next().unwrap_or(names) };
    name.trim_matches('"').trim_start_matches("b/").to_owned()
}

/// Whether there is a git to apply patches with.
pub fn git_is_there() -> bool {
    let version = Command::new("git").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    version.is_ok_and(|status| status.success())
}

/// All of it or nothing: git checks every hunk before it writes.
pub fn apply(patch: File, directory: &Path) -> Result<(), Failure> {
    let wrong = |problem: String| {
        Failure::new(
            exit_code::FILE_WRONG,
            format!("the patch could not be applied to {}: {problem}", directory.display()),
        )
    };
    let directory = directory.canonicalize().map_err(|error| wrong(error.to_string()))?;
    let mut git = Command::new("git");
    git.args(["apply", "--whitespace=nowarn"]).args(NOT_APPLIED.map(|pattern| format!("--exclude={pattern}"))).arg("-");
    git.current_dir(&directory).stdin(patch);
    // In a directory within a repository git would take the names as from the repository's top, and leave out what is
    // not below here: it must not look for a repository above.
    git.env("GIT_CEILING_DIRECTORIES", directory.parent().unwrap_or(&directory));
    for name in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"] {
        git.env_remove(name);
    }
    let output = git.output().map_err(|error| wrong(error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(wrong(format!("{}; has it changed since?", said.lines().next().unwrap_or("git failed"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_is_counted_file_by_file() {
        let patch = "diff --git a/src/main.rs b/src/main.rs\nindex 1..2 100644\n--- a/src/main.rs\n+++ b/src/main.rs\n\
                     @@ -1,3 +1,4 @@\n one\n-two\n+2\n+diff --git a/no b/no\n three\n@@ -10 +11 @@\n--- x\n+++ y\n\
                     \\ No newline at end of file\n\
                     diff --git a/a b.bin b/a b.bin\nnew file mode 100644\nGIT binary patch\nliteral 0\n\
                     # Left out: core: it is larger than 8388608 bytes\n\
                     diff --git a/old b/new name\nsimilarity index 100%\nrename from old\nrename to new name\n";
        let summary = Summary::read(patch.as_bytes()).unwrap();
        let counted: Vec<_> =
            summary.files.iter().map(|file| (file.name.as_str(), file.added, file.removed, file.binary)).collect();
        assert_eq!(counted, [("src/main.rs", 3, 2, false), ("a b.bin", 0, 0, true), ("new name", 0, 0, false)]);
        assert_eq!(
            summary.show(Colours::none()),
            " src/main.rs | +3 -2\n a b.bin     | binary\n new name    | +0 -0\n not in the patch: core: it is larger than \
             8388608 bytes\n 3 files changed, +3 -2"
        );
    }
}
