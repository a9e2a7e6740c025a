//! What every store has to do, checked through [`Store`] alone. A new implementation calls [`run_all`] from its tests;
//! what is particular to a database, such as crashes and full disks, it tests itself.

mod cancelling;
mod creating;
mod deleting;
mod events;
mod hook;
mod leases;
mod listing;
mod running;

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use cofferdam_protocol::event::{Event, EventBody, FileAction};
use cofferdam_protocol::job::{JobId, JobSpec, JobState, Step, Tool, WhenLost, Work};
use cofferdam_protocol::{Limits, NetworkPolicy};

use crate::{CommitHook, Job, JobChange, Lease, NewJob, Store, StoreError};

/// For what has to happen soon; far beyond any store's pace.
const PATIENCE: Duration = Duration::from_secs(10);

/// Runs every check, each with an empty store of its own that `open` makes.
pub async fn run_all(open: impl Fn(CommitHook) -> Arc<dyn Store>) {
    creating::run(&open).await;
    running::run(&open).await;
    leases::run(&open).await;
    cancelling::run(&open).await;
    deleting::run(&open).await;
    events::run(&open).await;
    listing::run(&open).await;
    hook::run(&open).await;
}

type Open<'o> = &'o dyn Fn(CommitHook) -> Arc<dyn Store>;
type Told = Vec<(Job, Vec<Event>)>;

/// An empty store, and what its hook was told.
struct Subject {
    store: Arc<dyn Store>,
    told: Arc<Mutex<Told>>,
}

impl Subject {
    fn new(open: Open<'_>) -> Self {
        let told: Arc<Mutex<Told>> = Arc::default();
        let kept = told.clone();
        let hook = move |job: &Job, events: &[Event]| {
            kept.lock().unwrap_or_else(PoisonError::into_inner).push((job.clone(), events.to_vec()));
        };
        Self { store: open(Box::new(hook)), told }
    }

    /// Since the last time.
    fn told(&self) -> Told {
        std::mem::take(&mut self.told.lock().unwrap_or_else(PoisonError::into_inner))
    }

    async fn scheduled(&self, number: u64) -> Job {
        self.store.create(new_job(number)).await.expect("a new job").job
    }

    /// Of the owner `one`, from 1,000 to 2,000.
    async fn running(&self, number: u64) -> Job {
        let job = self.scheduled(number).await;
        let lease = lease("one", 1_000, 2_000);
        self.store.claim(&job.id, &lease, vec![], JobChange::default()).await.expect("a claimed job")
    }

    async fn ended(&self, number: u64, state: JobState) -> Job {
        let job = self.running(number).await;
        let change = JobChange { state: Some(state), ..JobChange::default() };
        let ended = EventBody::Ended { state, reason: None };
        self.store.append(&job.id, job.generation, 1_500, vec![ended], change).await.expect("an ended job")
    }

    async fn bodies(&self, id: &JobId) -> Vec<EventBody> {
        let events = self.store.events(id, 0, usize::MAX).await.expect("its events");
        events.into_iter().map(|event| event.body).collect()
    }

    /// A request that was refused has changed nothing and told nobody.
    async fn refuses<T: std::fmt::Debug>(
        &self,
        before: &Job,
        request: impl Future<Output = Result<T, StoreError>>,
        expected: StoreError,
    ) {
        self.told();
        assert_eq!(request.await.expect_err("a refusal"), expected);
        assert_eq!(self.store.job(&before.id).await.as_ref(), Ok(before));
        assert_eq!(self.bodies(&before.id).await.len() as u64, before.last_seq);
        assert_eq!(self.told(), []);
    }
}

/// Later numbers sort behind earlier ones.
pub fn id(number: u64) -> JobId {
    JobId::new(1_000_000 + number, 0)
}

/// A job of two steps, of the tenant `acme`.
pub fn new_job(number: u64) -> NewJob {
    let step = Step {
        tool: Tool::Shell { command: "make".to_owned() },
        timeout_ms: 0,
        env: BTreeMap::new(),
        cwd: None,
        continue_on_error: false,
    };
    let spec = JobSpec {
        work: Work::Steps(vec![step.clone(), step]),
        env: [("LANG".to_owned(), "C".to_owned())].into(),
        limits: Limits::default(),
        network: NetworkPolicy::None,
        timeout_ms: 60_000,
        idle_timeout_ms: 0,
        labels: BTreeMap::new(),
        when_lost: WhenLost::Fail,
        parent: None,
        retry_of: None,
        has_input: false,
    };
    NewJob {
        id: id(number),
        tenant: "acme".to_owned(),
        title: "make".to_owned(),
        kind: "steps".to_owned(),
        spec,
        now_ms: 500,
        idempotency: None,
        queue_max: 1_000,
    }
}

/// The job that [`new_job`] becomes.
fn new_row(number: u64) -> Job {
    Job {
        id: id(number),
        tenant: "acme".to_owned(),
        state: JobState::Scheduled,
        reason: None,
        title: "make".to_owned(),
        kind: "steps".to_owned(),
        labels: BTreeMap::new(),
        created_ms: 500,
        started_ms: None,
        ended_ms: None,
        steps_total: 2,
        steps_done: 0,
        sandbox: None,
        cancel_requested: false,
        generation: 0,
        owner: None,
        lease_until_ms: None,
        last_seq: 1,
        is_mirrored: false,
    }
}

fn lease(owner: &str, now_ms: u64, until_ms: u64) -> Lease {
    Lease { owner: owner.to_owned(), now_ms, until_ms }
}

fn file_changed(path: &str) -> EventBody {
    EventBody::FileChanged { path: path.to_owned(), action: FileAction::Written }
}

fn wrong_state(id: &JobId, state: JobState) -> StoreError {
    StoreError::State { id: id.clone(), state }
}

/// Asks until `condition` holds.
async fn eventually<F: Future<Output = bool>>(what: &str, mut condition: impl FnMut() -> F) {
    let begin = Instant::now();
    while !condition().await {
        assert!(begin.elapsed() < PATIENCE, "{what}: not after {PATIENCE:?}");
        tokio::task::yield_now().await;
    }
}
