//! The guest: the program through which everything in a sandbox is done. It starts single-threaded, makes the
//! namespaces, forks the *spawner* (which builds the root directory, forks the *reaper*, closes the walls and then
//! starts commands), and stays outside those walls itself, serving HTTP/2 to whoever launched it.
//!
//! Reading order: [`launch`] tells the start as a story, [`spawner`] what happens inside, [`server`] the interface.

mod cgroup;
mod error;
mod exec;
mod files;
mod launch;
mod reaper;
mod root;
mod seal;
mod server;
mod spawner;
mod sys;
mod usage;

use std::os::fd::{FromRawFd, OwnedFd};
use std::process::ExitCode;

fn main() -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|argument| argument == "hold-user-namespace") {
        return launch::hold_user_namespace();
    }
    // SAFETY: descriptor 0 is the control socket that the launcher put there; nothing else in this process owns it.
    let control = unsafe { OwnedFd::from_raw_fd(0) };
    match launch::run(control) {
        Ok(()) => ExitCode::SUCCESS,
        // The launcher has been told over the control socket, or is gone; there is nobody else to tell.
        Err(_) => ExitCode::FAILURE,
    }
}
