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
    sum(connection, &[name]).await
}

pub async fn wait_for(connection: &mut Connection, name: &str, wanted: f64, timeout: Duration) -> Result<()> {
    wait_for_sum(connection, &[name], wanted, timeout).await
}

/// Until so many jobs have ended, whichever way; how many of them failed.
pub async fn wait_for_ended(connection: &mut Connection, jobs: usize, timeout: Duration) -> Result<usize> {
    let (completed, failed) = (jobs_in("completed"), jobs_in("failed"));
    wait_for_sum(connection, &[&completed, &failed], jobs as f64, timeout).await?;
    Ok(read(connection, &failed).await? as usize)
}

async fn sum(connection: &mut Connection, names: &[&str]) -> Result<f64> {
    let text = std::str::from_utf8(connection.ask(&get("/metrics")).await?)?;
    let mut sum = 0.0;
    for value in names.iter().filter_map(|name| find(text, name)) {
        sum += value.parse::<f64>().with_context(|| format!("{names:?}: {value}"))?;
    }
    Ok(sum)
}

async fn wait_for_sum(connection: &mut Connection, names: &[&str], wanted: f64, timeout: Duration) -> Result<()> {
    let deadline = Instant::now() + timeout;
    loop {
        let now = sum(connection, names).await?;
        if now >= wanted {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "{names:?}: {now} after {timeout:?}, not {wanted}");
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
