//! `cofferdam serve`: the server in the foreground, until a signal asks it to stop. Its settings are in
//! [`definition`], where they come from in [`config_file`]; the server itself is a crate of its own.

mod config_file;
mod definition;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use cofferdam_server::http::trace::set_up_log;
use cofferdam_server::{Server, Settings};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::client::reachable;
use crate::exec::Failure;
use crate::text::{print_line, say};
use crate::{exit_code, terminal};
use config_file::Loaded;
pub use definition::ServeArguments;

/// The words were read once, to find the command; they are read again with the configuration file's values below them.
pub fn main() -> ExitCode {
    crate::finish(|| {
        let loaded = Loaded::from_words(std::env::args_os().skip(2))?;
        if loaded.arguments.print_config {
            print_line(&loaded.to_toml())?;
            return Ok(0);
        }
        let data = data_directory(&loaded)?;
        let settings = loaded.arguments.settings(data);
        set_up_log(loaded.arguments.log_format, &loaded.arguments.log_level)
            .map_err(|error| Failure::new(exit_code::USAGE, error))?;
        crate::runtime()?.block_on(serve(settings))
    })
}

/// The settings for a server that a command starts for itself: from environment and file, on a port that is free.
pub fn embedded_settings(data: Option<PathBuf>) -> Result<Settings, Failure> {
    let loaded = Loaded::from_words(std::iter::empty::<OsString>())?;
    let data = data.map_or_else(|| data_directory(&loaded), Ok)?;
    let mut settings = loaded.arguments.settings(data);
    settings.listen = ([127, 0, 0, 1], 0).into();
    Ok(settings)
}

fn data_directory(loaded: &Loaded) -> Result<PathBuf, Failure> {
    loaded.arguments.data.clone().map_or_else(config_file::default_data, Ok)
}

async fn serve(settings: Settings) -> Result<u8, Failure> {
    // Before the start: a signal that comes while jobs are recovered is a request to stop as well.
    let mut signals = StopSignals::new()?;
    let data = settings.data.clone();
    let beyond_loopback = !settings.listen.ip().is_loopback();
    let starting = Server::start(settings);
    let server = tokio::select! {
        server = starting => server.map_err(|error| Failure::new(exit_code::SERVER, error))?,
        // What was taken up so far lives on in its sandbox, as after any stop.
        _ = signals.recv() => return Ok(0),
    };
    if terminal::stdout_is_terminal() {
        let data = data.canonicalize().unwrap_or(data);
        print_line(&format!("Cofferdam is at {}, its data in {}", reachable(&server.url()), data.display()))?;
    }
    if beyond_loopback {
        say(
            "whoever can reach this address can run jobs, since there is no authentication; listen on 127.0.0.1 unless the network is yours alone",
        );
    }
    signals.recv().await;
    if terminal::stderr_is_terminal() {
        say("stopping; jobs that run get their time to end, a second signal ends this at once");
    }
    tokio::select! {
        () = server.stop() => Ok(0),
        code = signals.recv() => Ok(code),
    }
}

/// The two signals that ask for an end.
struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
}

impl StopSignals {
    fn new() -> Result<Self, Failure> {
        let listen = |kind| {
            signal(kind).map_err(|error| Failure::new(exit_code::FAILED, format!("signals cannot be heard: {error}")))
        };
        Ok(Self { interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())? })
    }

    /// The code that shells give to a process which the signal has ended.
    async fn recv(&mut self) -> u8 {
        tokio::select! {
            _ = self.interrupt.recv() => exit_code::CANCELLED,
            _ = self.terminate.recv() => exit_code::TERMINATED,
        }
    }
}
