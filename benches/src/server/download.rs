//! A large workspace as a zip, beside Info-ZIP on the same files at the same level, in turns.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::ops::ControlFlow;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::http::{Connection, get, schedule};
use super::load::block_on;
use super::process::{ServerProcess, cofferdam, fresh};
use super::{Setup, metrics};
use crate::bench::{COFFERDAM, Turns};
use crate::processes::ended_children_cpu_seconds;
use crate::stats::{Samples, Section, Table, Unit};

pub const INFO_ZIP: &str = "zip -r -q -6";
const END_TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub struct Download {
    pub speeds: Section,
    pub table: Table,
}

pub fn measure(setup: &Setup) -> Result<Download> {
    let (files, large_bytes) = (setup.sized(20_000, 1_000), setup.sized(1 << 30, 32 << 20));
    let data = fresh(setup.scratch());
    let server = cofferdam(&setup.program, &data, &[])?;
    let id = block_on(ended_job(&server))?;
    let workspace = data.join("tasks").join(&id).join("workspace");
    let bytes = fill(&workspace, files, large_bytes)?;
    server.rest()?;
    server.forget_peak()?;
    let before = server.memory();
    let mut turns = Turns::new();
    let (mut ours, mut theirs) = (Runs::default(), Runs::default());
    if setup.zip.is_ok() {
        // Its size is asked for before the clock runs; this also brings the files into the system's cache.
        theirs.sizes.push(info_zip_size(&workspace)? as f64);
    }
    for _ in 0..setup.sized(2, 1) {
        let (start, cpu) = (Instant::now(), server.cpu());
        ours.sizes.push(block_on(download(&server, &id))? as f64);
        turns.add_value(COFFERDAM, bytes as f64 / start.elapsed().as_secs_f64());
        ours.cpu.push(server.cpu() - cpu);
        match &setup.zip {
            Err(absent) => turns.absent(INFO_ZIP, absent),
            Ok(_) => {
                let (start, cpu) = (Instant::now(), ended_children_cpu_seconds());
                run_info_zip(&workspace)?;
                turns.add_value(INFO_ZIP, bytes as f64 / start.elapsed().as_secs_f64());
                theirs.cpu.push(ended_children_cpu_seconds() - cpu);
            }
        }
    }
    let peak = server.memory().peak;
    server.stop()?;
    let speeds = Section {
        title: "A workspace as a zip",
        note: format!(
            "`GET /jobs/ID/download` of {files} small files and one of {}, text like that of programs, beside \
             `{INFO_ZIP} - . > /dev/null` on the same files: bytes of files packed per second.",
            Unit::Bytes.show(large_bytes as f64)
        ),
        unit: Unit::BytesPerSecond,
        rows: turns.into_rows(),
    };
    let mut rows = vec![ours.row(COFFERDAM), theirs.row(INFO_ZIP)];
    rows[0].push(Unit::Bytes.show(peak - before.resident));
    let table = Table {
        title: "A workspace as a zip: what it costs",
        note: format!("{} in all. Cofferdam packs on all cores, Info-ZIP on one.", Unit::Bytes.show(bytes as f64)),
        head: &["", "size of the zip", "processor time", "memory: peak above what it was before"],
        rows,
    };
    Ok(Download { speeds, table })
}

#[derive(Default)]
struct Runs {
    sizes: Samples,
    cpu: Samples,
}

impl Runs {
    fn row(&self, name: &str) -> Vec<String> {
        if self.sizes.len() == 0 {
            return vec![name.to_owned(), "not measured".to_owned()];
        }
        vec![name.to_owned(), Unit::Bytes.show(self.sizes.p50()), Unit::Seconds.show(self.cpu.p50())]
    }
}

async fn ended_job(server: &ServerProcess) -> Result<String> {
    let mut connection = Connection::open(server.address).await?;
    let job = connection.ask_json(&schedule("true")).await?;
    metrics::wait_for_ended(&mut connection, 1, END_TIMEOUT).await?;
    Ok(job["job_id"].as_str().context("a job has an id")?.to_owned())
}

async fn download(server: &ServerProcess, id: &str) -> Result<usize> {
    let mut size = 0;
    let connection = Connection::open(server.address).await?;
    let count = |bytes: &[u8]| {
        size += bytes.len();
        ControlFlow::Continue(())
    };
    connection.follow(&get(&format!("/jobs/{id}/download")), count).await?;
    Ok(size)
}

fn info_zip(workspace: &Path) -> Command {
    let mut command = Command::new("zip");
    command.args(["-r", "-q", "-6", "-", "."]).current_dir(workspace).stdin(Stdio::null());
    command
}

/// To nowhere, so that handing it over costs nothing.
fn run_info_zip(workspace: &Path) -> Result<()> {
    let status = info_zip(workspace).stdout(Stdio::null()).status()?;
    ensure!(status.success(), "{INFO_ZIP}: {status}");
    Ok(())
}

fn info_zip_size(workspace: &Path) -> Result<u64> {
    let mut child = info_zip(workspace).stdout(Stdio::piped()).spawn()?;
    let size = std::io::copy(&mut child.stdout.take().context("its output is a pipe")?, &mut std::io::sink())?;
    let status = child.wait()?;
    ensure!(status.success(), "{INFO_ZIP}: {status}");
    Ok(size)
}

/// Small files in directories of a hundred, and one large file; how many bytes that is.
fn fill(workspace: &Path, files: usize, large_bytes: usize) -> Result<usize> {
    let mut text = Text::new();
    let mut total = 0;
    for index in 0..files {
        let directory = workspace.join(format!("source/part{}", index / 100));
        fs::create_dir_all(&directory)?;
        // 1 to 8 KiB, as files of programs mostly are.
        let size = 1024 * (1 + index % 8);
        total += text.write(File::create(directory.join(format!("file{index}.rs")))?, size)?;
    }
    total += text.write(File::create(workspace.join("large.txt"))?, large_bytes)?;
    Ok(total)
}

/// Text that compresses like the source of programs: lines of a vocabulary's words, indented, every other of them one
/// that was there before.
struct Text {
    state: u64,
    lines: Vec<String>,
}

impl Text {
    const WORDS: [&str; 32] = [
        "let", "mut", "if", "else", "match", "return", "for", "in", "while", "fn", "pub", "struct", "impl", "self",
        "Some", "None", "Ok", "Err", "=", "==", "=>", "->", "+", "(", ")", "{", "}", ";", ",", "&", "0", "1",
    ];
    /// Lines that come again.
    const KNOWN_LINES: usize = 300;

    fn new() -> Self {
        let mut text = Self { state: 1, lines: Vec::new() };
        text.lines = (0..Self::KNOWN_LINES).map(|_| text.new_line()).collect();
        text
    }

    fn next(&mut self) -> u64 {
        // Xorshift: quick, and the same in every run.
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state
    }

    fn new_line(&mut self) -> String {
        let mut line = " ".repeat(4 * (self.next() % 4) as usize);
        for _ in 0..4 + self.next() % 8 {
            let number = self.next();
            if number.is_multiple_of(4) {
                line.push_str(&format!("name_{} ", (number >> 8) % 2000));
            } else {
                line.push_str(Self::WORDS[(number >> 8) as usize % Self::WORDS.len()]);
                line.push(' ');
            }
        }
        line.push('\n');
        line
    }

    fn write(&mut self, file: File, size: usize) -> Result<usize> {
        let mut out = BufWriter::with_capacity(1 << 20, file);
        let mut written = 0;
        while written < size {
            let number = self.next();
            let fresh;
            let line = if number.is_multiple_of(2) {
                &self.lines[(number >> 8) as usize % self.lines.len()]
            } else {
                fresh = self.new_line();
                &fresh
            };
            out.write_all(line.as_bytes())?;
            written += line.len();
        }
        out.flush()?;
        Ok(written)
    }
}
