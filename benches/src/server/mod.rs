//! The job server, measured from outside as `cofferdam serve`: every load by itself, with a server of its own on fresh
//! data. This file owns the order and what the sections share; each section has its file.

mod disk;
mod download;
mod http;
mod jobs;
mod load;
mod metrics;
mod process;
mod queue;
mod readers;
mod restart;
mod submit;
mod yardstick;

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Result, ensure};

pub use download::{Download, INFO_ZIP};
pub use jobs::{FIRST_OUTPUT, WholeJobs};
pub use queue::Queue;
pub use readers::Readers;
pub use restart::Restart;
pub use submit::Submissions;

use crate::stats::Section;
use yardstick::Yardstick;

#[derive(Debug)]
pub struct ServerMeasured {
    /// The disk and the peers.
    pub facts: Vec<(&'static str, String)>,
    pub submissions: Submissions,
    pub whole_jobs: WholeJobs,
    pub first_output: Section,
    pub readers: Readers,
    pub queue: Queue,
    pub restart: Restart,
    pub download: Download,
}

impl ServerMeasured {
    /// The sections whose bars say something at a glance.
    pub fn charted(&self) -> [&Section; 5] {
        [&self.submissions.rates, &self.first_output, &self.queue.times, &self.restart.times, &self.download.speeds]
    }
}

/// What all sections of the server share.
#[derive(Debug)]
pub struct Setup {
    pub program: PathBuf,
    pub yardstick: Result<Yardstick, String>,
    pub zip: Result<String, String>,
    quick: bool,
    /// Removed at the very end, several gigabytes of it in a full run: ext4 looks at every inode that was freed in the
    /// last minutes before it takes another, which would slow down whoever comes after a removal.
    scratch: tempfile::TempDir,
}

impl Setup {
    /// Data directories go beside this program: what is built there is on a disk, where /tmp may be memory.
    fn new(program: &Path, quick: bool) -> Result<Self> {
        ensure!(program.is_file(), "{} is missing; run: cargo build --release -p cofferdam", program.display());
        let here = std::env::current_exe()?;
        let scratch = tempfile::Builder::new().prefix("bench-").tempdir_in(here.parent().unwrap_or(Path::new(".")))?;
        Ok(Self { program: program.to_owned(), yardstick: yardstick::find(), zip: zip_version(), quick, scratch })
    }

    pub fn sized<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }

    pub fn scratch(&self) -> &Path {
        self.scratch.path()
    }
}

/// Processor time of one request or job.
pub struct CpuEach(pub f64);

impl fmt::Display for CpuEach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 < 1e-3 { write!(f, "{:.0} µs", self.0 * 1e6) } else { write!(f, "{:.2} ms", self.0 * 1e3) }
    }
}

pub fn measure(program: &Path, quick: bool) -> Result<ServerMeasured> {
    let setup = &Setup::new(program, quick)?;
    let began = Instant::now();
    let say = |what: &str| eprintln!("{:6.1} s  {what}", began.elapsed().as_secs_f64());
    say("server: the disk");
    let facts = vec![
        ("Disk of the server's data", disk::describe(setup.scratch())?),
        ("FastAPI", setup.yardstick.as_ref().map_or_else(Clone::clone, |yardstick| yardstick.version.clone())),
        ("Info-ZIP", setup.zip.clone().unwrap_or_else(|absent| absent)),
    ];
    say("server: jobs taken in");
    let submissions = submit::measure(setup)?;
    say("server: whole jobs");
    let whole_jobs = jobs::measure_rate(setup)?;
    say("server: first output");
    let first_output = jobs::measure_first_output(setup)?;
    say("server: readers");
    let readers = readers::measure(setup)?;
    say("server: asking while many wait");
    let queue = queue::measure(setup)?;
    say("server: restart");
    let restart = restart::measure(setup)?;
    say("server: a zip");
    let download = download::measure(setup)?;
    say("server: done");
    Ok(ServerMeasured { facts, submissions, whole_jobs, first_output, readers, queue, restart, download })
}

fn zip_version() -> Result<String, String> {
    let output = Command::new("zip").arg("-v").output().map_err(|_| "not installed".to_owned())?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find(|line| line.starts_with("This is Zip"));
    Ok(line.unwrap_or("zip").split(", by").next().unwrap_or_default().replace("This is ", ""))
}
