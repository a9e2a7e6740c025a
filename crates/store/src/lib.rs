//! Jobs, their events and their leases, kept durably: an answer means that what it reports survives a crash, and an
//! event reaches a reader only after that. [`Store`] says what any database has to offer; the only place with SQL is
//! below this folder.
//!
//! A running job belongs to one server at a time. The row carries the owner, until when the lease runs, and a
//! generation that grows with every change of hands: whoever writes for a job names the generation it was given, and
//! is refused once another has taken over. Everything that happens to a job goes through here together with the
//! events that tell it; which job is next is decided elsewhere.

#[cfg(feature = "conformance")]
pub mod conformance;
mod rules;
mod sqlite;

use std::collections::BTreeMap;
use std::fmt;

use async_trait::async_trait;
use cofferdam_protocol::event::{Event, EventBody};
use cofferdam_protocol::job::{JobId, JobSpec, JobState};
use serde::{Deserialize, Serialize};

pub use self::sqlite::SqliteStore;

/// Jobs that one answer of [`Store::list`] holds at most.
pub const PAGE_MAX: usize = 1_000;
/// Events that one answer of [`Store::events`] holds at most.
pub const EVENTS_MAX: usize = 1_000;

/// A job without its specification, which may be large.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    pub id: JobId,
    pub tenant: String,
    pub state: JobState,
    /// Why it ended, or is about to, as a sentence.
    pub reason: Option<String>,
    /// What it is about, in a line: the goal or the first step's text, cut.
    pub title: String,
    /// `steps`, `goal` or `interactive`.
    pub kind: String,
    pub labels: BTreeMap<String, String>,
    pub created_ms: u64,
    pub started_ms: Option<u64>,
    pub ended_ms: Option<u64>,
    pub steps_total: u32,
    /// Steps that have ended, whichever way.
    pub steps_done: u32,
    /// The sandbox that it runs in, while it does.
    pub sandbox: Option<String>,
    /// Somebody asked for its end; its owner will see to it.
    pub cancel_requested: bool,
    /// Grows with every change of hands; 0 before the first.
    pub generation: u64,
    pub owner: Option<String>,
    pub lease_until_ms: Option<u64>,
    /// The number of its last event.
    pub last_seq: u64,
    /// Whether the files beside the workspace tell its end, and what was noted after it.
    pub is_mirrored: bool,
}

/// A job as it enters. It gets one event, [`EventBody::Scheduled`].
#[derive(Debug, Clone)]
pub struct NewJob {
    pub id: JobId,
    pub tenant: String,
    pub title: String,
    pub kind: String,
    pub spec: JobSpec,
    pub now_ms: u64,
    /// The same key of the same tenant again answers with the first job; `fingerprint` tells whether it asks for the
    /// same thing. A deleted job keeps its key until it is purged.
    pub idempotency: Option<Idempotency>,
    /// Refused when as many jobs are waiting already.
    pub queue_max: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Idempotency {
    pub key: String,
    pub fingerprint: String,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Created {
    pub job: Job,
    /// False when an earlier request with the same idempotency key had made it.
    pub is_new: bool,
}

/// Whose a job becomes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    pub owner: String,
    pub now_ms: u64,
    pub until_ms: u64,
}

/// What changes in a job's row. `None` leaves a field as it is, except that an end without a reason has none.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct JobChange {
    pub state: Option<JobState>,
    pub reason: Option<String>,
    pub steps_done: Option<u32>,
    /// `Some(None)`: it is in no sandbox any more.
    pub sandbox: Option<Option<String>>,
}

/// Which jobs to list: all conditions hold together. Newest first.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ListQuery {
    pub tenant: String,
    /// Any of these; all states if empty.
    pub states: Vec<JobState>,
    /// Only of this kind, see [`Job::kind`].
    pub kind: Option<String>,
    /// Each of these labels with this value.
    pub labels: BTreeMap<String, String>,
    /// Only jobs before this one in the order of the list.
    pub before: Option<JobId>,
    /// At most [`PAGE_MAX`].
    pub limit: usize,
}

/// A waiting job, as the scheduler wants to know it.
#[derive(Debug, Clone, PartialEq)]
pub struct QueuedJob {
    pub id: JobId,
    pub tenant: String,
    pub cpu_milli: u64,
    pub memory_bytes: u64,
}

/// Told of every change, in the order of the changes of each job, once it is durable and before its answer is given.
/// A renewed lease is a change without events; deleting, purging and the mark as mirrored are not told. Called on the
/// store's own thread: it must be quick.
pub type CommitHook = Box<dyn Fn(&Job, &[Event]) + Send + Sync>;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    #[error("there is no job {0}")]
    NotFound(JobId),
    /// The job's state does not allow what was asked for.
    #[error("the job {id} is {state} already")]
    State { id: JobId, state: JobState },
    /// The generation is not the job's any more: another server has taken over.
    #[error("the job {0} belongs to another server now")]
    Fenced(JobId),
    #[error("the idempotency key {key:?} was used for a different job, {id}; use a new key for a new request")]
    KeyReused { key: String, id: JobId },
    #[error("the queue is full: {waiting} jobs are waiting")]
    QueueFull { waiting: u64 },
    #[error("no space is left for the database; free some space on the disk of the data directory")]
    NoSpace,
    #[error("the database cannot be written: {0}; check the permissions and the disk of the data directory")]
    ReadOnly(String),
    #[error("the database was made by a newer version of cofferdam (schema {found}, this one knows {known}); update")]
    Newer { found: u32, known: u32 },
    #[error("the database is damaged: {0}; restore it from a backup, or move it away and start afresh")]
    Damaged(String),
    #[error("the database: {0}")]
    Other(String),
    #[error("the store has been closed")]
    Closed,
}

/// Every method that changes something returns when the change is durable. Clocks are the caller's.
#[async_trait]
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// A new job in the state `scheduled`.
    async fn create(&self, job: NewJob) -> Result<Created, StoreError>;

    async fn job(&self, id: &JobId) -> Result<Job, StoreError>;

    async fn spec(&self, id: &JobId) -> Result<JobSpec, StoreError>;

    async fn list(&self, query: &ListQuery) -> Result<Vec<Job>, StoreError>;

    /// Events with a greater number than `after`, in order; at most `limit` and [`EVENTS_MAX`].
    async fn events(&self, id: &JobId, after: u64, limit: usize) -> Result<Vec<Event>, StoreError>;

    /// The last event of this kind (see [`EventBody::kind`]), if there is one.
    async fn last_event(&self, id: &JobId, kind: &str) -> Result<Option<Event>, StoreError>;

    /// `scheduled` becomes `running`, with the next generation. [`EventBody::Started`] is added, then `events`; `change`
    /// is applied. Refused with [`StoreError::State`] in any other state.
    async fn claim(
        &self,
        id: &JobId,
        lease: &Lease,
        events: Vec<EventBody>,
        change: JobChange,
    ) -> Result<Job, StoreError>;

    /// A running job changes hands: next generation, with an event [`EventBody::Resumed`]. Refused with
    /// [`StoreError::Fenced`] while the lease of another owner runs, unless `is_owner_dead`.
    async fn take_over(&self, id: &JobId, lease: &Lease, reason: &str, is_owner_dead: bool) -> Result<Job, StoreError>;

    /// Adds events to a running job and changes its row, all or nothing. A change to a final state sets `ended_ms`,
    /// clears owner, lease and sandbox, and is the job's last: what comes after is refused with [`StoreError::State`].
    /// So is a change back to `scheduled`.
    async fn append(
        &self,
        id: &JobId,
        generation: u64,
        now_ms: u64,
        events: Vec<EventBody>,
        change: JobChange,
    ) -> Result<Job, StoreError>;

    /// Adds events that do not come from the job's owner, such as files changed through the API; allowed in every
    /// state.
    async fn note(&self, id: &JobId, now_ms: u64, events: Vec<EventBody>) -> Result<Job, StoreError>;

    /// A scheduled job becomes `cancelled` at once, with [`EventBody::CancelRequested`] and [`EventBody::Ended`]; a
    /// running one is marked, with the first event only. Asking again changes nothing. Refused with
    /// [`StoreError::State`] when it has ended otherwise.
    async fn cancel(&self, id: &JobId, now_ms: u64, reason: &str) -> Result<Job, StoreError>;

    /// Extends the leases of all running jobs of this owner; how many. One that runs longer already is left as it is.
    async fn renew(&self, owner: &str, until_ms: u64) -> Result<u64, StoreError>;

    /// Marks a job that has ended as deleted: from then on it is not found. Its directory is removed by the caller, who
    /// then calls [`Store::purge`]. Refused with [`StoreError::State`] before its end.
    async fn delete(&self, id: &JobId) -> Result<(), StoreError>;

    /// Forgets a deleted job and its events. Refused with [`StoreError::State`] if it is not deleted.
    async fn purge(&self, id: &JobId) -> Result<(), StoreError>;

    /// Deleted and not purged.
    async fn deleted(&self) -> Result<Vec<JobId>, StoreError>;

    /// The files of a job that has ended tell all of it up to this event. May become durable late: whoever does not
    /// find it does it again. Without effect on a job that has not ended, has further events or is not there.
    async fn set_mirrored(&self, id: &JobId, last_seq: u64) -> Result<(), StoreError>;

    /// Jobs that have ended and are not marked as mirrored.
    async fn unmirrored(&self) -> Result<Vec<JobId>, StoreError>;

    /// All scheduled jobs, oldest first.
    async fn queued(&self) -> Result<Vec<QueuedJob>, StoreError>;

    /// All running jobs, of whichever owner.
    async fn running(&self) -> Result<Vec<Job>, StoreError>;

    /// How many jobs there are in each state. Its cost must not grow with the number of jobs.
    async fn counts(&self) -> Result<BTreeMap<JobState, u64>, StoreError>;
}
