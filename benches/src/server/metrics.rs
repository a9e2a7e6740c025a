//! What the server counts itself, read from `/metrics`: how many jobs are in which state, who reads, what is ready.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::http::{Connection, get};

const POLL: Duration = Duration::from_millis(20);

pub const POOL_READY: &str = "cofferdam_pool_ready";
pub const READERS: &str = "cofferdam_event_readers";

pub fn jobs_in(state: &str) -> String {
    format!("cofferdam_jobs{{state=\"{state}\"}}")
}

/// A number that the server has not told yet is 0.
pub async fn read(connection: &mut Connection, name: &str) -> Result<f64> {
    let text = std::str::from_utf8(connection.ask(&get("/metrics")).await?)?;
    find(text, name).map_or(Ok(0.0), |value| value.parse().with_context(|| format!("{name} is {value}")))
}

pub async fn wait_for(connection: &mut Connection, name: &str, wanted: f64, timeout: Duration) -> Result<()> {
    let deadline = Instant::now() + timeout;
    loop {
        let now = read(connection, name).await?;
        if now >= wanted {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "{name} is {now} after {timeout:?}, not {wanted}");
        tokio::time::sleep(POLL).await;
    }
}

fn find<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_found_by_its_whole_name() {
        let text = "# TYPE cofferdam_jobs gauge\ncofferdam_jobs{state=\"failed\"} 2\ncofferdam_pool_ready 4\n# EOF\n";
        assert_eq!(find(text, &jobs_in("failed")), Some("2"));
        assert_eq!(find(text, POOL_READY), Some("4"));
        assert_eq!(find(text, "cofferdam_pool"), None);
    }
}
