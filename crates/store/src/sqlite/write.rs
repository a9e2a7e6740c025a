//! The changes that a store makes, as SQL. Each runs inside the writer's transaction; what it does to a job is decided
//! by [`crate::rules`].

use cofferdam_protocol::job::JobId;
use rusqlite::{Connection, OptionalExtension, named_params};

use super::rows::{self, JOB_COLUMNS, job_columns};
use crate::rules::{self, Update};
use crate::{Created, Idempotency, Job, NewJob, StoreError};

/// Changes that will be committed together, and told together once they are.
#[derive(Debug)]
pub(super) struct Batch<'c> {
    pub(super) connection: &'c Connection,
    pub(super) told: Vec<Update>,
}

impl Batch<'_> {
    /// `spec` is the job's specification as JSON, made by the caller's thread: the writer is the one that all wait for.
    pub(super) fn create(&mut self, new: &NewJob, spec: &str) -> Result<Created, StoreError> {
        if let Some(idempotency) = &new.idempotency
            && let Some(job) = self.job_with_key(&new.tenant, idempotency)?
        {
            return Ok(Created { job, is_new: false });
        }
        let waiting: u64 = self
            .connection
            .prepare_cached("SELECT jobs FROM job_count WHERE state = 'scheduled'")?
            .query_row((), |row| row.get(0))?;
        if waiting >= new.queue_max {
            return Err(StoreError::QueueFull { waiting });
        }
        let update = rules::create(new);
        let number = self.insert(&update.job, new)?;
        self.connection.prepare_cached("INSERT INTO spec (job, body) VALUES (?1, ?2)")?.execute((number, spec))?;
        self.insert_events(number, &update)?;
        let job = update.job.clone();
        self.told.push(update);
        Ok(Created { job, is_new: true })
    }

    /// Reads the job, lets `rule` decide, and writes what has become of it.
    pub(super) fn update(
        &mut self,
        id: &JobId,
        rule: impl FnOnce(Job) -> Result<Update, StoreError>,
    ) -> Result<Job, StoreError> {
        let (number, before) = self.find(id)?;
        let update = rule(before.clone())?;
        if update.job == before {
            return Ok(before);
        }
        self.save(number, &before, &update.job)?;
        self.insert_events(number, &update)?;
        let job = update.job.clone();
        self.told.push(update);
        Ok(job)
    }

    pub(super) fn renew(&mut self, owner: &str, until_ms: u64) -> Result<u64, StoreError> {
        let jobs: Vec<(Job, i64)> = self
            .connection
            .prepare_cached(concat!(
                "SELECT ",
                job_columns!(),
                ", number FROM job WHERE state = 'running' AND owner = ?1 ORDER BY id"
            ))?
            .query_map([owner], |row| Ok((rows::job(row)?, row.get(JOB_COLUMNS)?)))?
            .collect::<rusqlite::Result<_>>()?;
        let count = jobs.len() as u64;
        for (before, number) in jobs {
            if before.lease_until_ms < Some(until_ms) {
                let job = Job { lease_until_ms: Some(until_ms), ..before.clone() };
                self.save(number, &before, &job)?;
                self.told.push(Update { job, events: Vec::new() });
            }
        }
        Ok(count)
    }

    pub(super) fn delete(&mut self, id: &JobId) -> Result<(), StoreError> {
        let (number, job) = self.find(id)?;
        rules::delete(&job)?;
        self.connection.prepare_cached("UPDATE job SET is_deleted = 1 WHERE number = ?1")?.execute([number])?;
        Ok(())
    }

    /// Specification, events and idempotency key go with the row.
    pub(super) fn purge(&mut self, id: &JobId) -> Result<(), StoreError> {
        let removed = self
            .connection
            .prepare_cached("DELETE FROM job WHERE id = ?1 AND is_deleted = 1")?
            .execute([id.as_str()])?;
        if removed == 0 {
            let (_, job) = self.find(id)?;
            return Err(rules::refused_by_state(&job));
        }
        Ok(())
    }

    pub(super) fn set_mirrored(&mut self, id: &JobId, last_seq: u64) -> Result<(), StoreError> {
        self.connection
            .prepare_cached("UPDATE job SET is_mirrored = 1 WHERE id = ?1 AND last_seq = ?2 AND ended_ms IS NOT NULL")?
            .execute((id.as_str(), last_seq))?;
        Ok(())
    }

    fn find(&self, id: &JobId) -> Result<(i64, Job), StoreError> {
        self.connection
            .prepare_cached(concat!("SELECT ", job_columns!(), ", number FROM job WHERE id = ?1 AND is_deleted = 0"))?
            .query_row([id.as_str()], |row| Ok((row.get(JOB_COLUMNS)?, rows::job(row)?)))
            .optional()?
            .ok_or_else(|| StoreError::NotFound(id.clone()))
    }

    /// A deleted job cannot be answered with, and its key is not free before it is purged.
    fn job_with_key(&self, tenant: &str, idempotency: &Idempotency) -> Result<Option<Job>, StoreError> {
        let Idempotency { key, fingerprint } = idempotency;
        let found = self
            .connection
            .prepare_cached(concat!(
                "SELECT ",
                job_columns!(),
                ", idempotency_fingerprint = ?3 AND is_deleted = 0",
                " FROM job WHERE tenant = ?1 AND idempotency_key = ?2"
            ))?
            .query_row([tenant, key, fingerprint], |row| Ok((rows::job(row)?, row.get(JOB_COLUMNS)?)))
            .optional()?;
        match found {
            Some((job, false)) => Err(StoreError::KeyReused { key: key.clone(), id: job.id }),
            Some((job, true)) => Ok(Some(job)),
            None => Ok(None),
        }
    }

    fn insert(&self, job: &Job, new: &NewJob) -> Result<i64, StoreError> {
        let labels = json(&job.labels)?;
        let mut statement = self.connection.prepare_cached(
            "INSERT INTO job (id, tenant, state, title, kind, labels, created_ms, steps_total, steps_done,
                 cancel_requested, generation, last_seq, cpu_milli, memory_bytes, idempotency_key,
                 idempotency_fingerprint)
             VALUES (:id, :tenant, :state, :title, :kind, :labels, :created_ms, :steps_total, :steps_done,
                 :cancel_requested, :generation, :last_seq, :cpu_milli, :memory_bytes, :key, :fingerprint)",
        )?;
        let number = statement.insert(named_params! {
            ":id": job.id.as_str(),
            ":tenant": job.tenant,
            ":state": job.state.as_str(),
            ":title": job.title,
            ":kind": job.kind,
            ":labels": labels,
            ":created_ms": job.created_ms,
            ":steps_total": job.steps_total,
            ":steps_done": job.steps_done,
            ":cancel_requested": job.cancel_requested,
            ":generation": job.generation,
            ":last_seq": job.last_seq,
            ":cpu_milli": new.spec.limits.cpu_milli,
            ":memory_bytes": new.spec.limits.memory_bytes,
            ":key": new.idempotency.as_ref().map(|idempotency| &idempotency.key),
            ":fingerprint": new.idempotency.as_ref().map(|idempotency| &idempotency.fingerprint),
        })?;
        Ok(number)
    }

    /// Most changes keep the state: they then leave its indexes alone, which SQLite would rewrite for every statement
    /// that names an indexed column.
    fn save(&self, number: i64, before: &Job, job: &Job) -> Result<(), StoreError> {
        if (before.state, before.ended_ms) != (job.state, job.ended_ms) {
            self.connection
                .prepare_cached("UPDATE job SET state = ?2, started_ms = ?3, ended_ms = ?4 WHERE number = ?1")?
                .execute((number, job.state.as_str(), job.started_ms, job.ended_ms))?;
        }
        let mut statement = self.connection.prepare_cached(
            "UPDATE job SET reason = :reason, steps_done = :steps_done, sandbox = :sandbox,
                 cancel_requested = :cancel_requested, generation = :generation, owner = :owner,
                 lease_until_ms = :lease_until_ms, last_seq = :last_seq, is_mirrored = :is_mirrored
             WHERE number = :number",
        )?;
        statement.execute(named_params! {
            ":number": number,
            ":reason": job.reason,
            ":steps_done": job.steps_done,
            ":sandbox": job.sandbox,
            ":cancel_requested": job.cancel_requested,
            ":generation": job.generation,
            ":owner": job.owner,
            ":lease_until_ms": job.lease_until_ms,
            ":last_seq": job.last_seq,
            ":is_mirrored": job.is_mirrored,
        })?;
        Ok(())
    }

    fn insert_events(&self, number: i64, update: &Update) -> Result<(), StoreError> {
        let mut statement = self
            .connection
            .prepare_cached("INSERT INTO event (job, seq, time_ms, kind, body) VALUES (?1, ?2, ?3, ?4, ?5)")?;
        for event in &update.events {
            let body = json(&event.body)?;
            statement.execute((number, event.seq, event.time_ms, event.body.kind(), body))?;
        }
        Ok(())
    }
}

pub(super) fn json(value: &impl serde::Serialize) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|error| StoreError::Other(error.to_string()))
}
