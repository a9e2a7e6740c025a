//! The person's own terminal while a command runs on one in the sandbox: its size, and its raw mode, which is undone
//! whatever happens.

use cofferdam_protocol::exec::TerminalSize;
use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcgetwinsize, tcsetattr};

pub fn stdin_is_terminal() -> bool {
    isatty(rustix::stdio::stdin())
}

pub fn stdout_is_terminal() -> bool {
    isatty(rustix::stdio::stdout())
}

pub fn stderr_is_terminal() -> bool {
    isatty(rustix::stdio::stderr())
}

/// The size of the terminal that standard output is, or of an ordinary one.
pub fn size() -> TerminalSize {
    let found = tcgetwinsize(rustix::stdio::stdout()).ok().filter(|size| size.ws_row > 0 && size.ws_col > 0);
    found
        .map_or(TerminalSize { rows: 24, columns: 80 }, |size| TerminalSize { rows: size.ws_row, columns: size.ws_col })
}

/// Raw mode, for as long as this lives: every key goes to the command.
pub struct RawMode {
    before: Termios,
}

impl RawMode {
    pub fn enter() -> Option<Self> {
        let before = tcgetattr(rustix::stdio::stdin()).ok()?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, &raw).ok()?;
        Some(Self { before })
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        let _ = tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, &self.before);
    }
}
