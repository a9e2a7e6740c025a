//! Between a job's row and [`Job`], an event's row and [`Event`].

use cofferdam_protocol::event::Event;
use cofferdam_protocol::job::{JobId, JobState};
use rusqlite::Row;
use rusqlite::types::Type;
use serde::de::DeserializeOwned;

use crate::Job;

/// In the order in which [`job`] reads them.
macro_rules! job_columns {
    () => {
        "id, tenant, state, reason, title, kind, labels, created_ms, started_ms, ended_ms, steps_total, steps_done, \
         sandbox, cancel_requested, generation, owner, lease_until_ms, last_seq, is_mirrored"
    };
}
pub(super) use job_columns;

/// How many columns [`job`] reads: others may follow them.
pub(super) const JOB_COLUMNS: usize = 19;

pub(super) fn job(row: &Row<'_>) -> rusqlite::Result<Job> {
    Ok(Job {
        id: id(row, 0)?,
        tenant: row.get(1)?,
        state: state(row, 2)?,
        reason: row.get(3)?,
        title: row.get(4)?,
        kind: row.get(5)?,
        labels: json(row, 6)?,
        created_ms: row.get(7)?,
        started_ms: row.get(8)?,
        ended_ms: row.get(9)?,
        steps_total: row.get(10)?,
        steps_done: row.get(11)?,
        sandbox: row.get(12)?,
        cancel_requested: row.get(13)?,
        generation: row.get(14)?,
        owner: row.get(15)?,
        lease_until_ms: row.get(16)?,
        last_seq: row.get(17)?,
        is_mirrored: row.get(18)?,
    })
}

/// Of the columns `seq, time_ms, body`.
pub(super) fn event(row: &Row<'_>) -> rusqlite::Result<Event> {
    Ok(Event { seq: row.get(0)?, time_ms: row.get(1)?, body: json(row, 2)? })
}

pub(super) fn id(row: &Row<'_>, column: usize) -> rusqlite::Result<JobId> {
    JobId::try_from(row.get::<_, String>(column)?).map_err(|error| unreadable(column, error))
}

pub(super) fn state(row: &Row<'_>, column: usize) -> rusqlite::Result<JobState> {
    let text = row.get_ref(column)?.as_str()?;
    JobState::parse(text).ok_or_else(|| unreadable(column, format!("there is no state {text:?}")))
}

pub(super) fn json<T: DeserializeOwned>(row: &Row<'_>, column: usize) -> rusqlite::Result<T> {
    serde_json::from_str(row.get_ref(column)?.as_str()?).map_err(|error| unreadable(column, error))
}

fn unreadable(column: usize, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, Type::Text, error.into())
}
