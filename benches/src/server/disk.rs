//! The disk that the data directories lie on: what a durable write costs there, which bounds what any server that
//! keeps its word can do.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use rustix::fs::{fdatasync, fstatfs};

use crate::stats::{Samples, Unit};

const WRITES: usize = 200;

/// The file system and the time of an fdatasync after appending a page to a file, as text.
pub fn describe(directory: &Path) -> Result<String> {
    let mut file = File::create(directory.join("fdatasync"))?;
    let name = match fstatfs(&file)?.f_type {
        0xef53 => "ext4",
        0x5846_5342 => "xfs",
        0x9123_683e => "btrfs",
        0x794c_7630 => "overlayfs",
        0x0102_1994 => "tmpfs, where nothing is durable: what is said of durable writes does not hold",
        _ => "another file system",
    };
    let mut times = Samples::default();
    for _ in 0..WRITES {
        file.write_all(&[7; 4096])?;
        let start = Instant::now();
        fdatasync(&file)?;
        times.push(start.elapsed().as_secs_f64());
    }
    let [p50, p95] = [times.p50(), times.p95()].map(|time| Unit::Seconds.show(time));
    Ok(format!("fdatasync of 4 KiB: p50 {p50}, p95 {p95}; {name}"))
}
