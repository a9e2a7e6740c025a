//! Reading what is not the sandbox's: files of the host by path, by link, through other processes, by handle.
//! The runner names a secret file and the bytes in it; finding those bytes is the proof.

use std::fs::{self, File};
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

use crate::Act;
use crate::guard::Place::Anywhere;
use crate::outcome::{Outcome, any, tried};
use crate::sys::{self, CWD, at, text};

pub const ACTS: &[Act] = &[
    ("read-path", Anywhere, |a| read(&a[0])),
    ("read-dot-dot", Anywhere, |a| read(&format!("../../../../../../../..{}", a[0]))),
    ("list-any", Anywhere, list_any),
    ("read-through-symlink", Anywhere, read_through_symlink),
    ("read-through-hard-link", Anywhere, read_through_hard_link),
    ("hard-link", Anywhere, |a| {
        let _ = fs::remove_file("linked");
        tried("a hard link", fs::hard_link(&a[0], "linked"))
    }),
    ("environments", Anywhere, environments),
    ("process-roots", Anywhere, |a| through_processes("root", &a[0])),
    ("process-directories", Anywhere, |a| through_processes("cwd", &a[0])),
    ("process-descriptors", Anywhere, process_descriptors),
    ("inherited-descriptors", Anywhere, inherited_descriptors),
    ("reopen-for-writing", Anywhere, reopen_for_writing),
    ("process-file", Anywhere, process_file),
    ("process-memory", Anywhere, process_memory),
    ("open-by-handle", Anywhere, open_by_handle),
    ("open-devices", Anywhere, open_devices),
    ("kernel-addresses", Anywhere, kernel_addresses),
    ("swap-directory", Anywhere, swap_directory),
    ("print-any", Anywhere, |a| any(a.iter().map(|path| print(path)))),
];

/// The file's bytes are printed: the runner looks for its secret among them.
fn read(path: &str) -> Outcome {
    match fs::read(path) {
        Ok(bytes) => {
            Outcome::Broken(format!("{path} holds {}", String::from_utf8_lossy(&bytes[..bytes.len().min(200)])))
        }
        Err(error) => Outcome::Held(format!("{path}: {error}")),
    }
}

/// Arguments: a directory, then names that may be there.
fn list_any(arguments: &[String]) -> Outcome {
    let Some((directory, allowed)) = arguments.split_first() else { return Outcome::Held("nothing to list".into()) };
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) => return Outcome::Held(format!("{directory}: {error}")),
    };
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    match names.filter(|name| !allowed.contains(name)).collect::<Vec<_>>() {
        foreign if foreign.is_empty() => Outcome::Held(format!("{directory} holds nothing of the host's")),
        foreign => Outcome::Broken(format!("{directory} holds {}", foreign.join(", "))),
    }
}

fn read_through_symlink(arguments: &[String]) -> Outcome {
    let _ = fs::remove_file("symlink-out");
    if let Err(error) = symlink(&arguments[0], "symlink-out") {
        return Outcome::Held(format!("making a symlink: {error}"));
    }
    read("symlink-out")
}

fn read_through_hard_link(arguments: &[String]) -> Outcome {
    let _ = fs::remove_file("hard-link-out");
    match fs::hard_link(&arguments[0], "hard-link-out") {
        Ok(()) => read("hard-link-out"),
        Err(error) => Outcome::Held(format!("linking: {error}")),
    }
}

/// Looks for a marker in the environment of every process that can be seen.
fn environments(arguments: &[String]) -> Outcome {
    let holds = |pid: &i32| {
        // Its own arguments hold the marker, its environment does not.
        fs::read(format!("/proc/{pid}/environ")).is_ok_and(|bytes| contains(&bytes, arguments[0].as_bytes()))
    };
    match sys::processes().into_iter().find(holds) {
        Some(pid) => Outcome::Broken(format!("the environment of process {pid} was read: {}", arguments[0])),
        None => Outcome::Held(format!("{} processes seen, none of them with it", sys::processes().len())),
    }
}

fn through_processes(link: &str, path: &str) -> Outcome {
    let all = sys::processes();
    let number = all.len();
    for pid in all {
        if let found @ Outcome::Broken(_) = read(&format!("/proc/{pid}/{link}/{}", path.trim_start_matches('/'))) {
            return found;
        }
    }
    Outcome::Held(format!("through none of {number} processes"))
}

/// Descriptors of other processes, reopened through /proc.
fn process_descriptors(arguments: &[String]) -> Outcome {
    for pid in sys::processes() {
        for entry in fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten() {
            let mut bytes = Vec::new();
            // Only what looks like a file: a pipe or a terminal would be waited for.
            if fs::metadata(entry.path()).is_ok_and(|found| found.is_file())
                && File::open(entry.path()).and_then(|file| file.take(4096).read_to_end(&mut bytes)).is_ok()
                && contains(&bytes, arguments[0].as_bytes())
            {
                return Outcome::Broken(format!("{} holds {}", entry.path().display(), arguments[0]));
            }
        }
    }
    Outcome::Held("no descriptor of another process leads to it".into())
}

/// Whatever this process was born with beyond the standard three.
fn inherited_descriptors(_: &[String]) -> Outcome {
    let mut found = Vec::new();
    for number in 3..1024 {
        if sys::call(libc::SYS_fcntl, &[number, libc::F_GETFD as usize]).is_ok() {
            let target = fs::read_link(format!("/proc/self/fd/{number}")).unwrap_or_default();
            found.push(format!("{number} is {}", target.display()));
        }
    }
    if found.is_empty() { Outcome::Held("only 0, 1 and 2".into()) } else { Outcome::Broken(found.join(", ")) }
}

fn reopen_for_writing(arguments: &[String]) -> Outcome {
    let file = match File::open(&arguments[0]) {
        Ok(file) => file,
        Err(error) => return Outcome::Held(format!("{}: {error}", arguments[0])),
    };
    let again = File::options().write(true).open(format!("/proc/self/fd/{}", file.as_raw_fd()));
    tried("opening a read-only descriptor for writing", again)
}

/// Arguments: a process, a name below its /proc directory.
fn process_file(arguments: &[String]) -> Outcome {
    let path = format!("/proc/{}/{}", arguments[0], arguments[1]);
    if let Ok(entries) = fs::read_dir(&path) {
        return Outcome::Broken(format!("{path} lists {} names", entries.count()));
    }
    let mut bytes = Vec::new();
    match File::open(&path).and_then(|file| file.take(200).read_to_end(&mut bytes)) {
        Ok(_) => Outcome::Broken(format!("{path} holds {:?}", String::from_utf8_lossy(&bytes))),
        Err(error) => Outcome::Held(format!("{path}: {error}")),
    }
}

/// Reads a process's memory in the two ways there are.
fn process_memory(arguments: &[String]) -> Outcome {
    let pid: usize = arguments[0].parse().unwrap_or(1);
    let mut byte = [0u8; 1];
    let local = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
    // Where a static program without address randomisation lies; where the maps can be read, the first mapping.
    let address = fs::read_to_string(format!("/proc/{pid}/maps"))
        .ok()
        .and_then(|maps| usize::from_str_radix(maps.split('-').next()?, 16).ok())
        .unwrap_or(0x40_0000);
    let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: 1 };
    let (local, remote) = (&raw const local as usize, &raw const remote as usize);
    let both = File::options().read(true).write(true).open(format!("/proc/{pid}/mem"));
    any([
        tried("opening its memory for writing", both),
        tried("process_vm_readv", sys::call(libc::SYS_process_vm_readv, &[pid, local, 1, remote, 1, 0])),
    ])
}

#[repr(C)]
struct Handle {
    bytes: u32,
    kind: i32,
    data: [u8; 128],
}

/// A handle of this directory's, asked for and then opened: with it any inode of the file system is reachable.
fn open_by_handle(_: &[String]) -> Outcome {
    let mut handle = Handle { bytes: 128, kind: 0, data: [0; 128] };
    let mut mount = 0i32;
    let here = text(".");
    let asked =
        sys::call(libc::SYS_name_to_handle_at, &[CWD, at(&here), &raw mut handle as usize, &raw mut mount as usize, 0]);
    if asked.is_err() {
        // The root directory of most file systems, guessed: inode 2 of generation 0.
        handle = Handle { bytes: 8, kind: 1, data: [0; 128] };
        handle.data[0] = 2;
    }
    let Ok(directory) = File::open(".") else { return Outcome::Held("no directory to begin from".into()) };
    let flags = libc::O_RDONLY as usize;
    let opened =
        sys::call(libc::SYS_open_by_handle_at, &[directory.as_raw_fd() as usize, &raw const handle as usize, flags]);
    tried("open_by_handle_at", opened)
}

fn open_devices(arguments: &[String]) -> Outcome {
    any(arguments.iter().map(|path| tried(path, File::open(path))))
}

/// `swap` is a directory, then a symlink to the argument, then a directory again, until the file `stop` appears. The
/// two change places in one step, so there is no moment at which the name is missing.
fn swap_directory(arguments: &[String]) -> Outcome {
    let _ = fs::create_dir("swap");
    let _ = fs::remove_file("swap-link");
    if let Err(error) = symlink(&arguments[0], "swap-link") {
        return Outcome::Held(format!("making a symlink: {error}"));
    }
    let _ = fs::write("swap/secret", "harmless");
    let _ = fs::write("swapping", "");
    let (one, other) = (text("swap"), text("swap-link"));
    let exchange = libc::RENAME_EXCHANGE as usize;
    let end = Instant::now() + Duration::from_secs(10);
    let mut swaps = 0u64;
    while Instant::now() < end && !fs::exists("stop").unwrap_or(true) {
        for _ in 0..64 {
            let _ = sys::call(libc::SYS_renameat2, &[CWD, at(&one), CWD, at(&other), exchange]);
            swaps += 1;
        }
    }
    Outcome::Held(format!("{swaps} swaps"))
}

/// A mask lets itself be opened, and is empty.
fn print(path: &str) -> Outcome {
    let mut byte = [0];
    match File::open(path).and_then(|mut file| file.read(&mut byte)) {
        Ok(0) => Outcome::Held(format!("{path} is empty")),
        Ok(_) => Outcome::Broken(format!("{path} can be read")),
        Err(error) => Outcome::Held(format!("{path}: {error}")),
    }
}

/// Addresses are worth something only if they are not zero.
fn kernel_addresses(_: &[String]) -> Outcome {
    let known = |line: &&str| line.split(' ').next().is_some_and(|address| address.bytes().any(|byte| byte != b'0'));
    match fs::read_to_string("/proc/kallsyms") {
        Ok(text) => match text.lines().find(known) {
            Some(line) => Outcome::Broken(format!("/proc/kallsyms says {line}")),
            None => Outcome::Held("every address is zero".into()),
        },
        Err(error) => Outcome::Held(format!("/proc/kallsyms: {error}")),
    }
}

fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len().max(1)).any(|window| window == wanted)
}
