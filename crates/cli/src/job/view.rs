//! What the API says of jobs and steps, as far as people are shown it, and how they are shown it. Output for scripts
//! (`--json`) never passes through these types.

use std::collections::BTreeMap;

use cofferdam_protocol::job::JobState;
use serde::Deserialize;

use crate::text::{self, Colour, Colours};

#[derive(Debug, Clone, Deserialize)]
pub struct Job {
    pub job_id: String,
    #[serde(default)]
    pub title: String,
    pub status: JobState,
    #[serde(default)]
    pub reason: Option<String>,
    #[serde(default)]
    pub cancel_requested: bool,
    #[serde(default)]
    pub steps_total: u32,
    #[serde(default)]
    pub steps_done: u32,
    #[serde(default)]
    pub queue_position: Option<u64>,
    pub created_at: String,
    #[serde(default)]
    pub started_at: Option<String>,
    #[serde(default)]
    pub ended_at: Option<String>,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    #[serde(default)]
    pub parent: Option<String>,
    #[serde(default)]
    pub retry_of: Option<String>,
    #[serde(default)]
    pub log_path: Option<String>,
}

#[derive(Debug, Deserialize)]
pub struct JobList {
    pub jobs: Vec<Job>,
    #[serde(default)]
    pub next_cursor: Option<String>,
}

impl Job {
    /// `2/3`, or nothing where there are no steps to count.
    pub fn progress(&self) -> String {
        match self.steps_total {
            0 => String::new(),
            total => format!("{}/{total}", self.steps_done),
        }
    }

    /// Since it was made.
    pub fn age(&self, now_ms: u64) -> String {
        text::parse_time(&self.created_at).map_or_else(String::new, |at| text::age(now_ms.saturating_sub(at)))
    }

    /// Between its start and its end, or now.
    pub fn took(&self, now_ms: u64) -> Option<String> {
        let from = text::parse_time(self.started_at.as_deref()?)?;
        let to = self.ended_at.as_deref().map_or(Some(now_ms), text::parse_time)?;
        Some(text::duration(to.saturating_sub(from)))
    }
}

pub fn colour_of(state: JobState) -> Colour {
    match state {
        JobState::Scheduled => Colour::Dim,
        JobState::Running | JobState::Cancelled => Colour::Yellow,
        JobState::Completed => Colour::Green,
        JobState::Failed => Colour::Red,
    }
}

/// `✓ completed`, `✗ failed: the reason`.
pub fn verdict(colours: Colours, state: JobState, reason: Option<&str>) -> String {
    let sign = match state {
        JobState::Completed => "✓",
        JobState::Failed | JobState::Cancelled => "✗",
        JobState::Scheduled | JobState::Running => "·",
    };
    let reason = reason.map(|reason| format!(": {}", text::printable(reason))).unwrap_or_default();
    format!("{}{reason}", colours.paint(colour_of(state), &format!("{sign} {state}")))
}

/// Columns as wide as their widest cell, two spaces apart; the last one is as long as it likes.
pub fn columns(rows: &[Vec<String>]) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width =
        |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| visible(cell)).max().unwrap_or(0);
    let widths: Vec<usize> = (0..count).map(width).collect();
    let line = |row: &Vec<String>| {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            line.push_str(cell);
            if column + 1 < row.len() {
                line.push_str(&" ".repeat(widths[column] - visible(cell) + 2));
            }
        }
        line.trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Characters without the colours around them.
fn visible(cell: &str) -> usize {
    text::printable(cell).chars().count()
}
