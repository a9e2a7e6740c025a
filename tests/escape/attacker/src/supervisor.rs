//! The sandbox's own processes: ending, stopping, tracing, slowing, impersonating the reaper (process 1), the spawner
//! and the guest, and signalling processes of the host. What cannot be judged from inside is judged by the runner:
//! such acts report what they did as held.

use std::fs::{self, File};
use std::io::Read;
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use crate::Act;
use crate::guard::Place::{Anywhere, Sandbox};
use crate::outcome::{Outcome, any, tried};
use crate::sys::{self, call};

pub const ACTS: &[Act] = &[
    ("nothing", Anywhere, |_| Outcome::Held("it runs".into())),
    ("wait", Anywhere, wait_for_end_of_input),
    ("signal-first", Sandbox, signal_first),
    ("signal-all", Sandbox, |_| Outcome::Held(format!("kill(-1, SIGKILL): {:?}", sys::kill(-1, libc::SIGKILL)))),
    ("signal", Anywhere, |a| {
        let pid = number(&a[0]) as i32;
        let by_pidfd = call(libc::SYS_pidfd_open, &[pid as usize, 0])
            .and_then(|pidfd| call(libc::SYS_pidfd_send_signal, &[pidfd, number(&a[1]), 0, 0]));
        any([
            tried("kill", sys::kill(pid, number(&a[1]) as i32)),
            tried("tkill", call(libc::SYS_tkill, &[pid as usize, number(&a[1])])),
            tried("pidfd_send_signal", by_pidfd),
        ])
    }),
    ("trace", Anywhere, |a| {
        let pid = number(&a[0]);
        any([
            tried("PTRACE_SEIZE", call(libc::SYS_ptrace, &[0x4206, pid, 0, 0])),
            tried("PTRACE_ATTACH", call(libc::SYS_ptrace, &[16, pid, 0, 0])),
        ])
    }),
    ("set-limits", Anywhere, |a| {
        // Limits that do not bind yet, so that a process of the runner's survives it.
        let limit = [3600u64, 3600];
        let set = |resource: usize| call(libc::SYS_prlimit64, &[number(&a[0]), resource, limit.as_ptr() as usize, 0]);
        any([tried("its processor time", set(0)), tried("its number of processes", set(6))])
    }),
    ("slow-down", Sandbox, slow_down),
    ("slow-everybody-down", Sandbox, slow_everybody_down),
    ("take-descriptor", Anywhere, |a| {
        let taken = call(libc::SYS_pidfd_open, &[number(&a[0]), 0])
            .and_then(|pidfd| call(libc::SYS_pidfd_getfd, &[pidfd, 0, 0]));
        tried("taking its descriptor 0", taken)
    }),
    ("write-program", Anywhere, |a| {
        let path = format!("/proc/{}/exe", a[0]);
        let opened = File::options().write(true).open(&path);
        any([tried("opening its program for writing", opened), tried("reading its program", File::open(&path))])
    }),
    ("offer-to-memory-killer", Anywhere, |a| {
        tried("raising its score", fs::write(format!("/proc/{}/oom_score_adj", a[0]), "1000"))
    }),
    ("flood-of-refusals", Sandbox, flood_of_refusals),
    ("stop-newborns", Sandbox, stop_newborns),
    ("unwanted-children", Sandbox, unwanted_children),
    ("take-port", Anywhere, take_port),
    ("named-sockets", Anywhere, named_sockets),
];

fn number(text: &str) -> usize {
    text.parse().unwrap_or(1)
}

/// A process of the runner's own, for others to attack.
fn wait_for_end_of_input(_: &[String]) -> Outcome {
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    Outcome::Held("not disturbed".into())
}

/// Every signal there is.
fn signal_first(_: &[String]) -> Outcome {
    let sent = (1..=64).filter(|signal| sys::kill(1, *signal).is_ok()).count();
    let state = fs::read_to_string("/proc/1/stat").unwrap_or_default();
    match state.rsplit(')').next().map(str::trim_start).and_then(|rest| rest.chars().next()) {
        Some('S' | 'R') => Outcome::Held(format!("{sent} of 64 signals were sent, process 1 lives")),
        other => Outcome::Broken(format!("process 1 is in state {other:?}")),
    }
}

/// The kernel lets a user slow down processes of its own; the sandbox has to work all the same.
fn slow_down(arguments: &[String]) -> Outcome {
    let pid = number(&arguments[0]);
    let one_processor: [u64; 16] = {
        let mut mask = [0; 16];
        mask[0] = 1;
        mask
    };
    let priority = 0u32;
    let done = [
        call(libc::SYS_sched_setaffinity, &[pid, 128, one_processor.as_ptr() as usize]),
        call(libc::SYS_sched_setscheduler, &[pid, libc::SCHED_IDLE as usize, &raw const priority as usize]),
        call(libc::SYS_setpriority, &[0, pid, 19]),
        call(libc::SYS_ioprio_set, &[1, pid, 3 << 13]),
    ];
    Outcome::Held(format!("{} of 4 ways did something", done.iter().filter(|result| result.is_ok()).count()))
}

/// All processes of this user: outside, that user may have others.
fn slow_everybody_down(_: &[String]) -> Outcome {
    let done = [
        call(libc::SYS_setpriority, &[libc::PRIO_USER as usize, 0, 19]),
        call(libc::SYS_setpriority, &[libc::PRIO_USER as usize, 1000, 19]),
        call(libc::SYS_ioprio_set, &[3, 1000, 3 << 13]),
    ];
    Outcome::Held(format!("{} of 3 ways did something", done.iter().filter(|result| result.is_ok()).count()))
}

/// Each refused call is reported to the guest, so these are as many requests to it.
fn flood_of_refusals(arguments: &[String]) -> Outcome {
    let began = Instant::now();
    let times = number(&arguments[0]);
    let through = (0..times).filter(|_| call(libc::SYS_chroot, &[c"/".as_ptr() as usize]).is_ok()).count();
    if through > 0 {
        return Outcome::Broken(format!("{through} calls got through"));
    }
    Outcome::Held(format!("{times} refused in {} ms", began.elapsed().as_millis()))
}

/// Stops whatever can be stopped, again and again: also what is just being started, before it has become a program.
fn stop_newborns(arguments: &[String]) -> Outcome {
    let end = Instant::now() + Duration::from_millis(number(&arguments[0]) as u64);
    let mut rounds = 0u64;
    while Instant::now() < end {
        let _ = sys::kill(-1, libc::SIGSTOP);
        rounds += 1;
    }
    Outcome::Held(format!("{rounds} rounds"))
}

/// Children that are not this process's but its parent's, which did not ask for them: they stay unless it collects
/// them, and take up the sandbox's number of processes.
fn unwanted_children(arguments: &[String]) -> Outcome {
    let flags = (libc::CLONE_PARENT | libc::SIGCHLD) as usize;
    let mut made = 0;
    for _ in 0..number(&arguments[0]) {
        match call(libc::SYS_clone, &[flags, 0, 0, 0, 0]) {
            Ok(0) => sys::exit(0),
            Ok(_) => made += 1,
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
    Outcome::Held(format!("{made} children left to the parent"))
}

/// Listening where the proxy listens, in its place or beside it.
fn take_port(arguments: &[String]) -> Outcome {
    let port = number(&arguments[0]) as u16;
    let shared = |address: &str| -> std::io::Result<()> {
        let socket = call(libc::SYS_socket, &[libc::AF_INET as usize, libc::SOCK_STREAM as usize, 0])?;
        let on = 1u32;
        for option in [libc::SO_REUSEADDR, libc::SO_REUSEPORT] {
            let value = &raw const on as usize;
            call(libc::SYS_setsockopt, &[socket, libc::SOL_SOCKET as usize, option as usize, value, 4])?;
        }
        let ip: std::net::Ipv4Addr = address.parse().unwrap_or(std::net::Ipv4Addr::LOCALHOST);
        let name = libc::sockaddr_in {
            sin_family: libc::AF_INET as u16,
            sin_port: port.to_be(),
            sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(ip.octets()) },
            sin_zero: [0; 8],
        };
        call(libc::SYS_bind, &[socket, &raw const name as usize, 16])?;
        call(libc::SYS_listen, &[socket, 1]).map(drop)
    };
    any([
        tried("127.0.0.1", TcpListener::bind(("127.0.0.1", port)).map(|socket| socket.as_raw_fd())),
        tried("0.0.0.0", TcpListener::bind(("0.0.0.0", port)).map(|socket| socket.as_raw_fd())),
        tried("127.0.0.1, shared", shared("127.0.0.1")),
        tried("0.0.0.0, shared", shared("0.0.0.0")),
    ])
}

/// Sockets with a name, in the file system or not: nobody but this process could have made one here.
fn named_sockets(_: &[String]) -> Outcome {
    let table = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let names: Vec<&str> = table.lines().skip(1).filter_map(|line| line.split_whitespace().nth(7)).collect();
    if names.is_empty() {
        Outcome::Held("no Unix socket has a name".into())
    } else {
        Outcome::Broken(format!("there are sockets called {}", names.join(", ")))
    }
}
