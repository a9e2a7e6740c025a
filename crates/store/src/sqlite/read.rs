//! The questions that a store answers, as SQL. Each runs on a connection of [`super::readers`].

use std::collections::BTreeMap;

use cofferdam_protocol::event::Event;
use cofferdam_protocol::job::{JobId, JobSpec, JobState};
use rusqlite::{Connection, OptionalExtension, Params};

use super::rows::{self, job_columns};
use crate::{EVENTS_MAX, Job, ListQuery, PAGE_MAX, QueuedJob, StoreError};

pub(super) fn job(connection: &Connection, id: &JobId) -> Result<Job, StoreError> {
    connection
        .prepare_cached(concat!("SELECT ", job_columns!(), " FROM job WHERE id = ?1 AND is_deleted = 0"))?
        .query_row([id.as_str()], rows::job)
        .optional()?
        .ok_or_else(|| StoreError::NotFound(id.clone()))
}

pub(super) fn spec(connection: &Connection, id: &JobId) -> Result<JobSpec, StoreError> {
    connection
        .prepare_cached("SELECT body FROM spec WHERE job = (SELECT number FROM job WHERE id = ?1 AND is_deleted = 0)")?
        .query_row([id.as_str()], |row| rows::json(row, 0))
        .optional()?
        .ok_or_else(|| StoreError::NotFound(id.clone()))
}

/// Each state has its own order by id in the index: the newest of each are merged.
pub(super) fn list(connection: &Connection, query: &ListQuery) -> Result<Vec<Job>, StoreError> {
    let limit = query.limit.min(PAGE_MAX);
    // All that is read belongs to one moment, so that a job that changes its state meanwhile is there once.
    let moment = connection.unchecked_transaction()?;
    let mut jobs = Vec::new();
    if query.states.is_empty() {
        take_matching(&moment, query, None, limit, &mut jobs)?;
    }
    let states: Vec<JobState> = JobState::ALL.into_iter().filter(|state| query.states.contains(state)).collect();
    for state in states {
        take_matching(&moment, query, Some(state), limit, &mut jobs)?;
    }
    jobs.sort_by(|one, other| other.id.cmp(&one.id));
    jobs.truncate(limit);
    Ok(jobs)
}

/// Kinds and labels are compared here, row by row: labels are few and free in form, and no order is kept of either.
fn take_matching(
    connection: &Connection,
    query: &ListQuery,
    state: Option<JobState>,
    limit: usize,
    jobs: &mut Vec<Job>,
) -> Result<(), StoreError> {
    // Greater than every id, whose letters are ASCII.
    let before = query.before.as_ref().map_or("~", JobId::as_str);
    let mut of_state;
    let mut of_tenant;
    let mut found = match state {
        Some(state) => {
            of_state = connection.prepare_cached(concat!(
                "SELECT ",
                job_columns!(),
                " FROM job WHERE tenant = ?1 AND state = ?2 AND id < ?3 AND is_deleted = 0 ORDER BY id DESC"
            ))?;
            of_state.query([&query.tenant, state.as_str(), before])?
        }
        None => {
            of_tenant = connection.prepare_cached(concat!(
                "SELECT ",
                job_columns!(),
                " FROM job WHERE tenant = ?1 AND id < ?2 AND is_deleted = 0 ORDER BY id DESC"
            ))?;
            of_tenant.query([&query.tenant, before])?
        }
    };
    let mut left = limit;
    while left > 0
        && let Some(row) = found.next()?
    {
        let job = rows::job(row)?;
        let is_of_kind = query.kind.as_ref().is_none_or(|kind| *kind == job.kind);
        if is_of_kind && query.labels.iter().all(|(name, value)| job.labels.get(name) == Some(value)) {
            jobs.push(job);
            left -= 1;
        }
    }
    Ok(())
}

pub(super) fn events(connection: &Connection, id: &JobId, after: u64, limit: usize) -> Result<Vec<Event>, StoreError> {
    let moment = connection.unchecked_transaction()?;
    let number = number(&moment, id)?;
    // SQLite's numbers are signed; no job has as many events.
    let after = i64::try_from(after).unwrap_or(i64::MAX);
    let limit = limit.min(EVENTS_MAX) as i64;
    collect(
        moment
            .prepare_cached("SELECT seq, time_ms, body FROM event WHERE job = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3")?,
        (number, after, limit),
        rows::event,
    )
}

/// Reads back from the job's end; whoever takes a job over asks this once, so that no index is kept for it.
pub(super) fn last_event(connection: &Connection, id: &JobId, kind: &str) -> Result<Option<Event>, StoreError> {
    let moment = connection.unchecked_transaction()?;
    let number = number(&moment, id)?;
    let mut statement = moment.prepare_cached(
        "SELECT seq, time_ms, body FROM event WHERE job = ?1 AND kind = ?2 ORDER BY seq DESC LIMIT 1",
    )?;
    Ok(statement.query_row((number, kind), rows::event).optional()?)
}

pub(super) fn deleted(connection: &Connection) -> Result<Vec<JobId>, StoreError> {
    let statement = connection.prepare_cached("SELECT id FROM job WHERE is_deleted = 1 ORDER BY id")?;
    collect(statement, (), |row| rows::id(row, 0))
}

pub(super) fn unmirrored(connection: &Connection) -> Result<Vec<JobId>, StoreError> {
    let statement = connection.prepare_cached(
        "SELECT id FROM job WHERE ended_ms IS NOT NULL AND is_mirrored = 0 AND is_deleted = 0 ORDER BY id",
    )?;
    collect(statement, (), |row| rows::id(row, 0))
}

pub(super) fn queued(connection: &Connection) -> Result<Vec<QueuedJob>, StoreError> {
    let statement = connection
        .prepare_cached("SELECT id, tenant, cpu_milli, memory_bytes FROM job WHERE state = 'scheduled' ORDER BY id")?;
    collect(statement, (), |row| {
        Ok(QueuedJob { id: rows::id(row, 0)?, tenant: row.get(1)?, cpu_milli: row.get(2)?, memory_bytes: row.get(3)? })
    })
}

pub(super) fn running(connection: &Connection) -> Result<Vec<Job>, StoreError> {
    let statement = connection.prepare_cached(concat!(
        "SELECT ",
        job_columns!(),
        " FROM job WHERE state = 'running' ORDER BY id"
    ))?;
    collect(statement, (), rows::job)
}

pub(super) fn counts(connection: &Connection) -> Result<BTreeMap<JobState, u64>, StoreError> {
    let mut statement = connection.prepare_cached("SELECT state, jobs FROM job_count")?;
    let counts = statement.query_map((), |row| Ok((rows::state(row, 0)?, row.get(1)?)))?;
    Ok(counts.collect::<rusqlite::Result<_>>()?)
}

fn number(connection: &Connection, id: &JobId) -> Result<i64, StoreError> {
    connection
        .prepare_cached("SELECT number FROM job WHERE id = ?1 AND is_deleted = 0")?
        .query_row([id.as_str()], |row| row.get(0))
        .optional()?
        .ok_or_else(|| StoreError::NotFound(id.clone()))
}

fn collect<T>(
    mut statement: rusqlite::CachedStatement<'_>,
    parameters: impl Params,
    read: impl FnMut(&rusqlite::Row<'_>) -> rusqlite::Result<T>,
) -> Result<Vec<T>, StoreError> {
    Ok(statement.query_map(parameters, read)?.collect::<rusqlite::Result<_>>()?)
}
