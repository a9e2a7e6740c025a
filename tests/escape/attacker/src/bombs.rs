//! Using things up: processes, memory, files, descriptors, output, time. Every bomb is bounded in number and in time
//! by itself, so that even one that works does no lasting harm.

use std::ffi::c_void;
use std::fs::{self, File};
use std::io::{self, Write};
use std::time::{Duration, Instant};

use crate::Act;
use crate::guard::Place::{Anywhere, Sandbox};
use crate::outcome::Outcome;
use crate::sys::{self, call};

pub const ACTS: &[Act] = &[
    ("fork-bomb", Sandbox, fork_bomb),
    ("fork-daemons", Sandbox, fork_daemons),
    ("thread-bomb", Sandbox, thread_bomb),
    ("memory-bomb", Sandbox, memory_bomb),
    ("fill", Sandbox, fill),
    ("make-files", Sandbox, make_files),
    ("open-files", Sandbox, open_files),
    ("print", Anywhere, print),
    ("zombies", Sandbox, zombies),
    ("ignore-signals", Anywhere, ignore_signals),
    ("daemon", Anywhere, daemon),
];

fn number(arguments: &[String], index: usize) -> usize {
    arguments.get(index).and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn bound(what: &str, reached: usize, limit: usize) -> Outcome {
    if reached > limit {
        Outcome::Broken(format!("{reached} {what}, more than {limit}"))
    } else {
        Outcome::Held(format!("{reached} {what}, then no more"))
    }
}

/// Arguments: tries, the most that may live. Children wait; the parent ends them all.
fn fork_bomb(arguments: &[String]) -> Outcome {
    let mut children = Vec::new();
    for _ in 0..number(arguments, 0) {
        match sys::fork() {
            Ok(0) => {
                std::thread::sleep(Duration::from_secs(20));
                sys::exit(0)
            }
            Ok(child) => children.push(child),
            Err(_) => {}
        }
    }
    let reached = children.len();
    for child in children {
        let _ = sys::kill(child, libc::SIGKILL);
        let _ = sys::wait(child);
    }
    bound("processes at once", reached, number(arguments, 1))
}

/// Every process makes two more in sessions of their own, and the first ends never by itself. Argument: seconds after
/// which all of them end.
fn fork_daemons(arguments: &[String]) -> Outcome {
    let end = Instant::now() + Duration::from_secs(number(arguments, 0) as u64);
    while Instant::now() < end {
        match sys::fork() {
            Ok(0) => drop(call(libc::SYS_setsid, &[])),
            Ok(_) => {}
            Err(_) => std::thread::yield_now(),
        }
    }
    Outcome::Broken("nobody ended it".into())
}

fn thread_bomb(arguments: &[String]) -> Outcome {
    let start =
        || std::thread::Builder::new().stack_size(16 * 1024).spawn(|| std::thread::sleep(Duration::from_secs(9)));
    let reached = (0..number(arguments, 0)).take_while(|_| start().is_ok()).count();
    println!("{}", bound("threads at once", reached, number(arguments, 1)));
    // The threads end with the process.
    std::process::exit(0)
}

/// Arguments: kind, MiB to take. Says so only if it got all of it.
fn memory_bomb(arguments: &[String]) -> Outcome {
    let wanted = number(arguments, 1);
    let piece = 1 << 20;
    let mut got = 0;
    while got < wanted {
        let taken = match arguments[0].as_str() {
            "private" => map(piece, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS),
            "shared" => map(piece, libc::MAP_SHARED | libc::MAP_ANONYMOUS),
            _ => memory_file(piece),
        };
        if let Err(error) = taken {
            return Outcome::Held(format!("{got} MiB, then {error}"));
        }
        got += 1;
    }
    // Long enough for whoever counts from time to time.
    sys::until(Duration::from_secs(2), || false);
    Outcome::Broken(format!("{got} MiB were given"))
}

/// Touched, so that it is really there.
fn map(length: usize, flags: i32) -> io::Result<()> {
    // SAFETY: a new mapping at an address of the kernel's choice, which nothing else uses; written within its length.
    unsafe {
        let start =
            libc::mmap(std::ptr::null_mut::<c_void>(), length, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        std::ptr::write_bytes(start.cast::<u8>(), 1, length);
    }
    Ok(())
}

/// In a file without a name, which no process has mapped.
fn memory_file(length: usize) -> io::Result<()> {
    let file = call(libc::SYS_memfd_create, &[c"bomb".as_ptr() as usize, 0])?;
    let bytes = vec![1u8; length];
    let mut written = 0;
    while written < length {
        written += call(libc::SYS_write, &[file, bytes.as_ptr() as usize + written, length - written])?;
    }
    Ok(())
}

/// Arguments: a file, MiB to write, MiB that may be written. Several files, because one has a limit of its own.
fn fill(arguments: &[String]) -> Outcome {
    // SAFETY: ignoring a signal runs no code; too large a file is an error then, not the end.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    let piece = vec![1u8; 1 << 20];
    let name = |number: usize| format!("{}-{number}", arguments[0]);
    let write = |number: &usize| {
        let file = File::options().append(true).create(true).open(name(number / 4));
        file.and_then(|mut file| file.write_all(&piece)).is_ok()
    };
    let written = (0..number(arguments, 1)).take_while(write).count();
    // Long enough for whoever counts from time to time; then away with it.
    if written > number(arguments, 2) {
        sys::until(Duration::from_secs(2), || false);
    }
    for number in 0..=written / 4 {
        let _ = fs::remove_file(name(number));
    }
    bound("MiB", written, number(arguments, 2))
}

/// Arguments: a directory, files to make, files that may be made.
fn make_files(arguments: &[String]) -> Outcome {
    let directory = format!("{}/many", arguments[0]);
    let _ = fs::create_dir(&directory);
    let make = |number: &usize| File::create(format!("{directory}/{number}")).is_ok();
    let made = (0..number(arguments, 1)).take_while(make).count();
    let _ = fs::remove_dir_all(&directory);
    bound("files", made, number(arguments, 2))
}

/// Arguments: files to open, files that may be open. The limit cannot be raised, either.
fn open_files(arguments: &[String]) -> Outcome {
    let raised = [1u64 << 20, 1 << 20];
    let _ = call(libc::SYS_prlimit64, &[0, libc::RLIMIT_NOFILE as usize, raised.as_ptr() as usize, 0]);
    let files: Vec<File> = (0..number(arguments, 0)).map_while(|_| File::open("/dev/null").ok()).collect();
    bound("files open", files.len(), number(arguments, 1))
}

/// Argument: MiB to print.
fn print(arguments: &[String]) -> Outcome {
    let line = [b'x'; 64 * 1024];
    let mut output = io::stdout().lock();
    for _ in 0..number(arguments, 0) * 16 {
        if output.write_all(&line).is_err() {
            break;
        }
    }
    Outcome::Broken("all of it was taken".into())
}

/// Orphans that have ended already, a hundred at a time. Argument: how many. None may be left.
fn zombies(arguments: &[String]) -> Outcome {
    for _ in 0..number(arguments, 0) / 100 {
        let _ = sys::in_child(|| {
            for _ in 0..100 {
                if matches!(sys::fork(), Ok(0)) {
                    sys::exit(0);
                }
            }
            0
        });
    }
    let own = std::process::id() as i32;
    let left = || sys::processes().into_iter().filter(|pid| *pid != 1 && *pid != own).count();
    if sys::until(Duration::from_secs(5), || left() == 0) {
        Outcome::Held("all of them were collected".into())
    } else {
        Outcome::Broken(format!("{} are left", left()))
    }
}

fn ignore_all() {
    for signal in 1..=64 {
        // SAFETY: ignoring a signal runs no code; the two that cannot be ignored answer with an error.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

fn ignore_signals(_: &[String]) -> Outcome {
    ignore_all();
    std::thread::sleep(Duration::from_secs(20));
    Outcome::Broken("nobody ended it".into())
}

/// Forks twice, leaves the session, and lives on beside a parent that waits.
fn daemon(_: &[String]) -> Outcome {
    let made = sys::in_child(|| {
        let _ = call(libc::SYS_setsid, &[]);
        if matches!(sys::fork(), Ok(0)) {
            ignore_all();
            let _ = fs::write("daemon", std::process::id().to_string());
            std::thread::sleep(Duration::from_secs(20));
            sys::exit(0);
        }
        0
    });
    if made.is_err() {
        return Outcome::Held("no daemon could be made".into());
    }
    std::thread::sleep(Duration::from_secs(20));
    Outcome::Broken("nobody ended it".into())
}
