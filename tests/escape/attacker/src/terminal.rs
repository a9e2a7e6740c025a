//! Terminals: typing into one on somebody's behalf, changing how one works, reaching one that is not the sandbox's.

use std::fs::{self, File};
use std::io;

use libc::c_int;

use crate::Act;
use crate::guard::Place::Anywhere;
use crate::outcome::{Outcome, tried};
use crate::sys::{self, call};

pub const ACTS: &[Act] = &[
    ("type-into-terminal", Anywhere, |_| {
        on_a_terminal("typing", |terminal| {
            let letter = b'x';
            call(libc::SYS_ioctl, &[terminal as usize, libc::TIOCSTI as usize, &raw const letter as usize])
        })
    }),
    ("type-with-high-bits", Anywhere, |_| {
        on_a_terminal("typing", |terminal| {
            // The kernel looks at 32 bits of the request; a filter that compares 64 could be led astray.
            let letter = b'x';
            let request = (1 << 32) | libc::TIOCSTI as usize;
            call(libc::SYS_ioctl, &[terminal as usize, request, &raw const letter as usize])
        })
    }),
    ("paste-into-terminal", Anywhere, |_| {
        on_a_terminal("pasting", |terminal| {
            // TIOCL_PASTESEL; only virtual consoles have it.
            let what = 3u8;
            call(libc::SYS_ioctl, &[terminal as usize, 0x541C, &raw const what as usize])
        })
    }),
    ("change-line-discipline", Anywhere, |_| {
        on_a_terminal("another line discipline", |terminal| {
            // N_NULL, the most harmless; the others load modules with a history of bugs.
            let discipline: c_int = 27;
            call(libc::SYS_ioctl, &[terminal as usize, libc::TIOCSETD as usize, &raw const discipline as usize])
        })
    }),
    ("open-own-terminal", Anywhere, |_| {
        tried("opening /dev/tty", File::options().read(true).write(true).open("/dev/tty"))
    }),
    ("other-terminals", Anywhere, other_terminals),
];

/// On standard input if it is a terminal, else on one made for this, as the controlling terminal of a child.
fn on_a_terminal(what: &str, act: impl Fn(c_int) -> io::Result<usize>) -> Outcome {
    // SAFETY: takes a number and answers with one.
    if unsafe { libc::isatty(0) } == 1 {
        return tried(what, act(0));
    }
    let (mut controller, mut terminal): (c_int, c_int) = (-1, -1);
    // SAFETY: both numbers outlive the call; no name, settings or size is asked for.
    if unsafe {
        libc::openpty(&mut controller, &mut terminal, std::ptr::null_mut(), std::ptr::null(), std::ptr::null())
    } < 0
    {
        return Outcome::Held(format!("no terminal: {}", io::Error::last_os_error()));
    }
    let done = sys::in_child(|| {
        let _ = call(libc::SYS_setsid, &[]);
        let _ = call(libc::SYS_ioctl, &[terminal as usize, libc::TIOCSCTTY as usize, 0]);
        match act(terminal) {
            Ok(_) => 0,
            Err(error) => error.raw_os_error().unwrap_or(1),
        }
    });
    let result = match done {
        Ok(0) => Ok(0),
        Ok(errno) => Err(io::Error::from_raw_os_error(errno)),
        Err(error) => Err(error),
    };
    tried(what, result)
}

/// Terminals that somebody else uses.
fn other_terminals(_: &[String]) -> Outcome {
    let entries = fs::read_dir("/dev/pts").into_iter().flatten().flatten();
    let names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    let terminals: Vec<&String> = names.iter().filter(|name| name.bytes().all(|byte| byte.is_ascii_digit())).collect();
    if terminals.is_empty() {
        Outcome::Held("there is none".into())
    } else {
        Outcome::Broken(format!("/dev/pts holds {terminals:?}"))
    }
}
