//! Every setting of the server, defined once: flag, variable, default, type and help. The configuration file, the
//! output of `--print-config` and docs/configuration.md are made from this by `config_file`.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use cofferdam_protocol::limits::Unit;
use cofferdam_server::Settings;
use cofferdam_server::http::trace::LogFormat;

/// Serve the API: take jobs, work on them, keep what they did
#[derive(Debug, Clone, Args)]
pub struct ServeArguments {
    /// Where to listen
    #[arg(long, env = "COFFERDAM_LISTEN", value_name = "ADDRESS:PORT", default_value = Settings::DEFAULT_LISTEN)]
    pub listen: SocketAddr,
    /// Where jobs are kept; $XDG_DATA_HOME/cofferdam or ~/.local/share/cofferdam if it is not given
    #[arg(long, env = "COFFERDAM_DATA", value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// A name besides the loopback ones under which requests may come; may be repeated
    #[arg(long, env = "COFFERDAM_ALLOWED_HOST", value_name = "NAME", value_delimiter = ',')]
    pub allowed_host: Vec<String>,
    /// Jobs at once; four for each processor if it is not given; 0 takes jobs in without starting them
    #[arg(long, env = "COFFERDAM_JOBS_MAX", value_name = "N")]
    pub jobs_max: Option<u32>,
    /// Jobs that may wait
    #[arg(long, env = "COFFERDAM_QUEUE_MAX", value_name = "N", default_value_t = defaults().queue_max)]
    pub queue_max: u64,
    /// Sandboxes kept ready
    #[arg(long, env = "COFFERDAM_POOL", value_name = "N", default_value_t = defaults().pool)]
    pub pool: usize,
    /// How long a job that does not say may run
    #[arg(long, env = "COFFERDAM_JOB_TIMEOUT", value_name = "DURATION", default_value_t = Milliseconds(defaults().job_timeout_ms))]
    pub job_timeout: Milliseconds,
    /// How long such a job may neither print nor use the processor; 0 for ever
    #[arg(long, env = "COFFERDAM_IDLE_TIMEOUT", value_name = "DURATION", default_value_t = Milliseconds(defaults().idle_timeout_ms))]
    pub idle_timeout: Milliseconds,
    /// How long a stopping server waits for jobs that run
    #[arg(long, env = "COFFERDAM_DRAIN_TIMEOUT", value_name = "DURATION", default_value_t = Milliseconds(defaults().drain_timeout_ms))]
    pub drain_timeout: Milliseconds,
    /// How long a sandbox lives without a server, for the next one to take it up
    #[arg(long, env = "COFFERDAM_SANDBOX_LEASE", value_name = "DURATION", default_value_t = Milliseconds(defaults().sandbox_lease_ms))]
    pub sandbox_lease: Milliseconds,
    /// The most that one job may print
    #[arg(long, env = "COFFERDAM_LOG_MAX", value_name = "SIZE", default_value_t = Bytes(defaults().log_max_bytes))]
    pub log_max: Bytes,
    /// The largest upload
    #[arg(long, env = "COFFERDAM_UPLOAD_MAX", value_name = "SIZE", default_value_t = Bytes(defaults().upload_max_bytes))]
    pub upload_max: Bytes,
    /// A directory of this machine that sandboxes see read-only under its own name; may be repeated
    #[arg(long, env = "COFFERDAM_READ_ONLY", value_name = "DIR", value_delimiter = ':')]
    pub read_only: Vec<PathBuf>,
    /// How the server's own messages are written; text on a terminal and json elsewhere if it is not given
    #[arg(long, env = "COFFERDAM_LOG_FORMAT", value_name = "text|json")]
    pub log_format: Option<LogFormat>,
    /// Which messages: error, warn, info, debug, trace, or a filter such as info,cofferdam_server=debug
    #[arg(long, env = "COFFERDAM_LOG_LEVEL", value_name = "LEVEL", default_value = "info")]
    pub log_level: String,
    /// A file with these settings; $XDG_CONFIG_HOME/cofferdam/config.toml or ~/.config/cofferdam/config.toml is read
    /// if it is there
    #[arg(long, env = "COFFERDAM_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print every setting as a configuration file, and end
    #[arg(long)]
    pub print_config: bool,
}

/// What is an argument of `serve` and yet not a setting.
pub const NOT_SETTINGS: &[&str] = &["config", "print_config"];

impl ServeArguments {
    pub fn settings(&self, data: PathBuf) -> Settings {
        Settings {
            allowed_hosts: self.allowed_host.clone(),
            jobs_max: self.jobs_max,
            queue_max: self.queue_max,
            pool: self.pool,
            job_timeout_ms: self.job_timeout.0,
            idle_timeout_ms: self.idle_timeout.0,
            drain_timeout_ms: self.drain_timeout.0,
            sandbox_lease_ms: self.sandbox_lease.0,
            log_max_bytes: self.log_max.0,
            upload_max_bytes: self.upload_max.0,
            read_only: self.read_only.clone(),
            ..Settings::new(self.listen, data)
        }
    }
}

/// The defaults of everything that does not depend on where the server is.
fn defaults() -> Settings {
    Settings::new(SocketAddr::from(([127, 0, 0, 1], 0)), PathBuf::new())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Milliseconds(pub u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bytes(pub u64);

fn parse(unit: Unit, text: &str) -> Result<u64, String> {
    unit.parse(text.trim()).ok_or_else(|| format!("write {}", unit.example()))
}

/// As it can be written again: without the space that people are shown.
fn compact(unit: Unit, value: u64) -> String {
    unit.show(value).replace("min", "m").replace(' ', "")
}

impl FromStr for Milliseconds {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        parse(Unit::Duration, text).map(Self)
    }
}

impl FromStr for Bytes {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        parse(Unit::Bytes, text).map(Self)
    }
}

impl fmt::Display for Milliseconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&compact(Unit::Duration, self.0))
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&compact(Unit::Bytes, self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_sizes_read_back_as_they_are_shown() {
        for text in ["0s", "500ms", "30s", "5m", "1h"] {
            assert_eq!(text.parse::<Milliseconds>().unwrap().to_string(), text);
        }
        for text in ["1B", "512MiB", "4GiB"] {
            assert_eq!(text.parse::<Bytes>().unwrap().to_string(), text);
        }
        assert_eq!("soon".parse::<Milliseconds>(), Err("write a duration such as 30s, 5m or 500ms".to_owned()));
    }
}
