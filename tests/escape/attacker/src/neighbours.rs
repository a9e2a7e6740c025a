//! Two sandboxes side by side. `hold` leaves traces of every kind in one, the other acts look for them in another.
//! Also what is counted per user of the host, and so would be taken from neighbours who are the same user.

use std::fs;
use std::io::{self, Write};
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::time::Duration;

use crate::Act;
use crate::guard::Place::Anywhere;
use crate::outcome::{Outcome, any, tried};
use crate::sys::{self, at, call, text};

pub const ACTS: &[Act] = &[
    ("hold", Anywhere, hold),
    ("find-files", Anywhere, |a| {
        any(["/workspace", "/app", "/tmp", "/var/tmp", "/dev/shm", "/run", "/home/agent"].map(|directory| {
            let path = format!("{directory}/{}", a[0]);
            tried(&path, fs::read(&path))
        }))
    }),
    ("find-shared-memory", Anywhere, |a| tried("its shared memory", shared_memory(key(&a[0]), 0))),
    ("find-queue", Anywhere, |a| tried("its message queue", queue(&a[0], libc::O_RDONLY))),
    ("find-process", Anywhere, find_process),
    ("count-watchers", Anywhere, count_watchers),
];

/// A number for System V interfaces, out of the marker.
fn key(marker: &str) -> usize {
    marker.bytes().fold(0x5eed_usize, |key, byte| key.wrapping_mul(31).wrapping_add(byte.into())) & 0x7fff_ffff
}

fn shared_memory(key: usize, flags: i32) -> io::Result<usize> {
    call(libc::SYS_shmget, &[key, 4096, (flags | 0o666) as usize])
}

fn queue(name: &str, flags: i32) -> io::Result<usize> {
    // The system call takes the name without its slash.
    let name = text(name);
    call(libc::SYS_mq_open, &[at(&name), flags as usize, 0o666, 0])
}

/// Arguments: a marker, a port. Holds until the file `stop` appears beside it, then takes its traces away.
fn hold(arguments: &[String]) -> Outcome {
    let marker = arguments[0].as_str();
    let port = arguments[1].as_str();
    let files: Vec<String> = ["/tmp", "/var/tmp", "/dev/shm"].map(|directory| format!("{directory}/{marker}")).into();
    for file in &files {
        let _ = fs::write(file, marker);
    }
    let memory = shared_memory(key(marker), libc::IPC_CREAT);
    let _queue = queue(marker, libc::O_RDWR | libc::O_CREAT);
    let _abstract = SocketAddr::from_abstract_name(marker.as_bytes()).and_then(|name| UnixListener::bind_addr(&name));
    let _port = TcpListener::bind(format!("127.0.0.1:{port}"));
    let _ = fs::write("holding", marker);
    let _ = io::stdout().flush();
    sys::until(Duration::from_secs(20), || fs::exists("stop").unwrap_or(true));
    for file in &files {
        let _ = fs::remove_file(file);
    }
    if let Ok(id) = memory {
        let _ = call(libc::SYS_shmctl, &[id, libc::IPC_RMID as usize, 0]);
    }
    let _ = call(libc::SYS_mq_unlink, &[at(&text(marker))]);
    Outcome::Held("held".into())
}

/// A process whose arguments hold the marker, other than this one.
fn find_process(arguments: &[String]) -> Outcome {
    let own = std::process::id() as i32;
    let holds = |pid: &i32| {
        *pid != own
            && fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|bytes| {
                String::from_utf8_lossy(&bytes).contains("hold\0")
                    && String::from_utf8_lossy(&bytes).contains(&arguments[0])
            })
    };
    match sys::processes().into_iter().find(holds) {
        Some(pid) => Outcome::Broken(format!("it is process {pid}")),
        None => Outcome::Held(format!("it is none of {} processes", sys::processes().len())),
    }
}

/// Takes as many inotify instances as can be had, up to the number given, says how many, and holds them until the
/// file `stop` appears.
fn count_watchers(arguments: &[String]) -> Outcome {
    let most: usize = arguments[0].parse().unwrap_or(1);
    let taken = (0..most).take_while(|_| call(libc::SYS_inotify_init1, &[0]).is_ok()).count();
    let _ = fs::write("holding", taken.to_string());
    if most > 1 {
        sys::until(Duration::from_secs(20), || fs::exists("stop").unwrap_or(true));
    }
    if taken == most {
        Outcome::Broken(format!("{taken} taken"))
    } else {
        Outcome::Held(format!("only {taken} of {most} were given"))
    }
}
