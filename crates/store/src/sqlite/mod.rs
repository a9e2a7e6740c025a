//! The store in one file on a local disk, for a single server. One thread writes ([`writer`]) and commits for all who
//! wait; a few connections read beside it ([`readers`]). Which statements they run is in [`write`] and [`read`].

mod error;
mod open;
mod read;
mod readers;
mod rows;
#[cfg(test)]
mod tests;
mod write;
mod writer;

use std::collections::BTreeMap;
use std::path::Path;

use async_trait::async_trait;
use cofferdam_protocol::event::{Event, EventBody};
use cofferdam_protocol::job::{JobId, JobSpec, JobState};

use self::readers::Readers;
use self::writer::Writer;
use crate::{CommitHook, Created, Job, JobChange, Lease, ListQuery, NewJob, QueuedJob, Store, StoreError, rules};

/// Dropping it waits until what was asked for is written.
#[derive(Debug)]
pub struct SqliteStore {
    writer: Writer,
    readers: Readers,
}

impl SqliteStore {
    /// The file is made if it is not there, and brought up to date if it is. Its directory must exist.
    pub fn open(path: &Path, hook: CommitHook) -> Result<Self, StoreError> {
        let writer = Writer::start(open::writer(path)?, hook)?;
        Ok(Self { writer, readers: Readers::new(path) })
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        self.readers.close();
        self.writer.close();
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn create(&self, job: NewJob) -> Result<Created, StoreError> {
        let spec = write::json(&job.spec)?;
        self.writer.write(move |batch| batch.create(&job, &spec)).await
    }

    async fn job(&self, id: &JobId) -> Result<Job, StoreError> {
        let id = id.clone();
        self.readers.read(move |connection| read::job(connection, &id)).await
    }

    async fn spec(&self, id: &JobId) -> Result<JobSpec, StoreError> {
        let id = id.clone();
        self.readers.read(move |connection| read::spec(connection, &id)).await
    }

    async fn list(&self, query: &ListQuery) -> Result<Vec<Job>, StoreError> {
        let query = query.clone();
        self.readers.read(move |connection| read::list(connection, &query)).await
    }

    async fn events(&self, id: &JobId, after: u64, limit: usize) -> Result<Vec<Event>, StoreError> {
        let id = id.clone();
        self.readers.read(move |connection| read::events(connection, &id, after, limit)).await
    }

    async fn last_event(&self, id: &JobId, kind: &str) -> Result<Option<Event>, StoreError> {
        let (id, kind) = (id.clone(), kind.to_owned());
        self.readers.read(move |connection| read::last_event(connection, &id, &kind)).await
    }

    async fn claim(
        &self,
        id: &JobId,
        lease: &Lease,
        events: Vec<EventBody>,
        change: JobChange,
    ) -> Result<Job, StoreError> {
        let (id, lease) = (id.clone(), lease.clone());
        self.writer.write(move |batch| batch.update(&id, |job| rules::claim(job, &lease, events, change))).await
    }

    async fn take_over(&self, id: &JobId, lease: &Lease, reason: &str, is_owner_dead: bool) -> Result<Job, StoreError> {
        let (id, lease, reason) = (id.clone(), lease.clone(), reason.to_owned());
        self.writer
            .write(move |batch| batch.update(&id, |job| rules::take_over(job, &lease, &reason, is_owner_dead)))
            .await
    }

    async fn append(
        &self,
        id: &JobId,
        generation: u64,
        now_ms: u64,
        events: Vec<EventBody>,
        change: JobChange,
    ) -> Result<Job, StoreError> {
        let id = id.clone();
        self.writer
            .write(move |batch| batch.update(&id, |job| rules::append(job, generation, now_ms, events, change)))
            .await
    }

    async fn note(&self, id: &JobId, now_ms: u64, events: Vec<EventBody>) -> Result<Job, StoreError> {
        let id = id.clone();
        self.writer.write(move |batch| batch.update(&id, |job| Ok(rules::note(job, now_ms, events)))).await
    }

    async fn cancel(&self, id: &JobId, now_ms: u64, reason: &str) -> Result<Job, StoreError> {
        let (id, reason) = (id.clone(), reason.to_owned());
        self.writer.write(move |batch| batch.update(&id, |job| rules::cancel(job, now_ms, &reason))).await
    }

    async fn renew(&self, owner: &str, until_ms: u64) -> Result<u64, StoreError> {
        let owner = owner.to_owned();
        self.writer.write(move |batch| batch.renew(&owner, until_ms)).await
    }

    async fn delete(&self, id: &JobId) -> Result<(), StoreError> {
        let id = id.clone();
        self.writer.write(move |batch| batch.delete(&id)).await
    }

    async fn purge(&self, id: &JobId) -> Result<(), StoreError> {
        let id = id.clone();
        self.writer.write(move |batch| batch.purge(&id)).await
    }

    async fn deleted(&self) -> Result<Vec<JobId>, StoreError> {
        self.readers.read(read::deleted).await
    }

    async fn set_mirrored(&self, id: &JobId, last_seq: u64) -> Result<(), StoreError> {
        self.writer.set_mirrored(id.clone(), last_seq).await
    }

    async fn unmirrored(&self) -> Result<Vec<JobId>, StoreError> {
        self.readers.read(read::unmirrored).await
    }

    async fn queued(&self) -> Result<Vec<QueuedJob>, StoreError> {
        self.readers.read(read::queued).await
    }

    async fn running(&self) -> Result<Vec<Job>, StoreError> {
        self.readers.read(read::running).await
    }

    async fn counts(&self) -> Result<BTreeMap<JobState, u64>, StoreError> {
        self.readers.read(read::counts).await
    }
}
