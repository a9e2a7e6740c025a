//! Jobs: taken in, started when there is room, carried out, ended, and taken up again after a crash. [`Jobs`] is the
//! interface; [`run`] is the story of one job; the store has the truth, and everything here can be lost at any
//! instant.

mod begin;
mod connections;
pub mod directory;
pub mod feed;
mod log;
mod mirror;
mod output;
mod program;
mod progress;
mod recovery;
mod run;
mod step;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cofferdam_protocol::event::EventBody;
use cofferdam_protocol::job::{JobId, JobSpec, JobState, Work};
use cofferdam_sandbox::client::Client;
use cofferdam_sandbox::local::{LocalRuntime, Sandbox};
use cofferdam_sandbox::pool::Pool;
use cofferdam_store::{Created, Idempotency, Job, NewJob, Store, StoreError};
use tokio::sync::{Notify, RwLock};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

pub use self::log::shorten;
use crate::Settings;
use crate::clock::{JobIds, now_ms};
use crate::data::DataDirectory;
use crate::http::Metrics;
use crate::scheduler::{Demand, Scheduler};
use feed::Feeds;
use mirror::Mirror;

/// How long a job belongs to a server that gives no sign.
const LEASE_MS: u64 = 60_000;
const RENEW_INTERVAL: Duration = Duration::from_secs(20);
/// How often the gauges are brought up to date.
const GAUGE_INTERVAL: Duration = Duration::from_secs(5);
/// Of the goal or the first step, as a title.
const TITLE_MAX_CHARS: usize = 120;
/// The only tenant there is.
pub const TENANT: &str = "default";

/// What becomes of a goal on a server without a model.
const NO_MODEL: &str = "no model is configured, so a goal in plain text cannot be carried out; set COFFERDAM_MODEL \
                        with OPENAI_API_KEY or ANTHROPIC_API_KEY and restart the server, or send steps";

/// All jobs of this server. Clones share them.
#[derive(Debug, Clone)]
pub struct Jobs(Arc<Inner>);

#[derive(Debug)]
pub struct Inner {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) data: Arc<DataDirectory>,
    pub(crate) settings: Settings,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) feeds: Arc<Feeds>,
    runtime: Arc<LocalRuntime>,
    pool: Pool,
    scheduler: Mutex<Scheduler>,
    /// There may be room for another job, or another job for the room.
    wake: Notify,
    live: Mutex<HashMap<JobId, Arc<Live>>>,
    mirror: Arc<Mirror>,
    ids: JobIds,
    /// This server, among all that ever were.
    owner: String,
    /// No further job is started.
    stop: CancellationToken,
    /// Jobs that run are let go.
    detach: CancellationToken,
    runs: TaskTracker,
    mirroring: Mutex<Option<std::thread::JoinHandle<()>>>,
}

/// A job in the hands of this server.
#[derive(Debug, Default)]
pub struct Live {
    pub cancel: CancellationToken,
    pub sandbox: RwLock<Option<Sandbox>>,
}

/// What a job needs besides its specification.
#[derive(Debug)]
pub struct Submission {
    pub id: JobId,
    pub spec: JobSpec,
    pub idempotency: Option<Idempotency>,
}

/// What the jobs work with.
#[derive(Debug)]
pub struct Parts {
    pub store: Arc<dyn Store>,
    pub data: Arc<DataDirectory>,
    pub settings: Settings,
    pub metrics: Arc<Metrics>,
    pub observer: Arc<Observer>,
    pub runtime: Arc<LocalRuntime>,
    pub scheduler: Scheduler,
    pub url: String,
}

/// Told by the store of everything that has become durable.
#[derive(Debug, Default)]
pub struct Observer {
    feeds: Arc<Feeds>,
    mirror: Arc<Mirror>,
}

impl Observer {
    pub fn committed(&self, job: &Job, events: &[cofferdam_protocol::event::Event]) {
        self.feeds.publish(job, events);
        // Output changes nothing in the files, and there is much of it.
        let is_news = |event: &cofferdam_protocol::event::Event| !matches!(event.body, EventBody::Output { .. });
        if events.iter().any(is_news) {
            self.mirror.write(job);
        }
    }
}

impl Jobs {
    /// Takes up what earlier servers left, then starts what waits.
    pub async fn start(parts: Parts) -> Result<Self, StoreError> {
        let Parts { store, data, settings, metrics, observer, runtime, scheduler, url } = parts;
        let mirroring = mirror::start(observer.mirror.clone(), store.clone(), data.clone(), url);
        // Before there is a pool, whose sandboxes would be among them.
        let found = runtime.leased();
        // With no jobs to start there is nothing to keep ready.
        let pool_size = if settings.jobs_max == Some(0) { 0 } else { settings.pool };
        let pool = Pool::new(runtime.clone(), cofferdam_protocol::Limits::default(), pool_size);
        let jobs = Self(Arc::new(Inner {
            owner: format!("{}-{:x}", std::process::id(), crate::clock::random()),
            store,
            data,
            settings,
            metrics,
            feeds: observer.feeds.clone(),
            runtime,
            pool,
            scheduler: Mutex::new(scheduler),
            wake: Notify::new(),
            live: Mutex::default(),
            mirror: observer.mirror.clone(),
            ids: JobIds::default(),
            stop: CancellationToken::new(),
            detach: CancellationToken::new(),
            runs: TaskTracker::new(),
            mirroring: Mutex::new(Some(mirroring)),
        }));
        recovery::recover(&jobs.0, found).await?;
        tokio::spawn(jobs.0.clone().dispatch());
        tokio::spawn(jobs.0.clone().keep());
        Ok(jobs)
    }

    pub fn inner(&self) -> &Arc<Inner> {
        &self.0
    }

    pub fn new_id(&self) -> JobId {
        self.0.ids.next()
    }

    /// Takes a job in; returns when it is durable. `accepted` is told first, whether or not somebody still waits.
    pub async fn submit(
        &self,
        submission: Submission,
        accepted: impl FnOnce(&Created) + Send + 'static,
    ) -> Result<Created, StoreError> {
        let jobs = self.clone();
        whole(async move {
            let created = jobs.take_in(submission).await?;
            accepted(&created);
            Ok(created)
        })
        .await
    }

    async fn take_in(&self, submission: Submission) -> Result<Created, StoreError> {
        let Submission { id, spec, idempotency } = submission;
        let (kind, title) = match &spec.work {
            Work::Steps(steps) => ("steps", steps.first().map_or("", |step| step.tool.text())),
            Work::Goal(goal) => ("goal", goal.as_str()),
            Work::Interactive => ("interactive", "sandbox"),
        };
        let demand = Demand {
            id: id.clone(),
            tenant: TENANT.to_owned(),
            cpu_milli: spec.limits.cpu_milli,
            memory_bytes: spec.limits.memory_bytes,
        };
        let job = NewJob {
            id,
            tenant: TENANT.to_owned(),
            title: shorten(title, TITLE_MAX_CHARS),
            kind: kind.to_owned(),
            spec,
            now_ms: now_ms(),
            idempotency,
            queue_max: self.0.settings.queue_max,
        };
        let begun = std::time::Instant::now();
        let created = self.0.store.create(job).await?;
        self.0.metrics.store_committed(begun.elapsed());
        if created.is_new {
            self.0.scheduler().enqueue(demand);
            self.0.wake.notify_one();
        }
        Ok(created)
    }

    pub async fn cancel(&self, id: &JobId) -> Result<Job, StoreError> {
        let (jobs, id) = (self.clone(), id.clone());
        whole(async move {
            let job = jobs.0.store.cancel(&id, now_ms(), "cancelled by request").await?;
            if jobs.0.scheduler().remove(&id) {
                jobs.0.wake.notify_one();
            }
            if let Some(live) = jobs.live(&id) {
                live.cancel.cancel();
            }
            Ok(job)
        })
        .await
    }

    /// Forgets a job that has ended, with its directory.
    pub async fn delete(&self, id: &JobId) -> Result<(), StoreError> {
        let (jobs, id) = (self.clone(), id.clone());
        whole(async move {
            jobs.0.store.delete(&id).await?;
            jobs.0.mirror.remove(&id);
            Ok(())
        })
        .await
    }

    pub fn queue_position(&self, job: &Job) -> Option<usize> {
        (job.state == JobState::Scheduled).then(|| self.0.scheduler().queue_position(&job.id)).flatten()
    }

    pub fn live(&self, id: &JobId) -> Option<Arc<Live>> {
        self.0.live().get(id).cloned()
    }

    /// A connection of one's own to the guest of a running job.
    pub async fn connect(&self, id: &JobId) -> Option<Client> {
        let live = self.live(id)?;
        let sandbox = live.sandbox.read().await;
        sandbox.as_ref()?.connect().await.ok()
    }

    /// Whether jobs are still taken in.
    pub fn is_stopping(&self) -> bool {
        self.0.stop.is_cancelled()
    }

    /// Starts nothing more, gives what runs the time it was promised, then lets go of it. Sandboxes that are let go of
    /// live on for the next server.
    pub async fn stop(&self) {
        self.0.stop.cancel();
        self.0.scheduler().pause();
        self.0.runs.close();
        let patience = Duration::from_millis(self.0.settings.drain_timeout_ms);
        if tokio::time::timeout(patience, self.0.runs.wait()).await.is_err() {
            info!("{} jobs go on without this server; start it again to take them up", self.0.live().len());
            self.0.detach.cancel();
            self.0.runs.wait().await;
        }
        self.0.pool.close().await;
        self.0.mirror.close();
        let mirroring = self.0.mirroring.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mirroring) = mirroring {
            let _ = tokio::task::spawn_blocking(move || mirroring.join()).await;
        }
    }
}

/// Does what must not be left half done when a client hangs up: a change in the store, and what follows from it.
async fn whole<T: Send + 'static>(
    work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
) -> Result<T, StoreError> {
    tokio::spawn(work).await.unwrap_or(Err(StoreError::Closed))
}

impl Inner {
    /// Often enough that a sandbox does not outlive its lease while a renewal or two come late.
    fn renew_interval(&self) -> Duration {
        Duration::from_millis((self.settings.sandbox_lease_ms / 4).max(1))
    }

    fn scheduler(&self) -> MutexGuard<'_, Scheduler> {
        self.scheduler.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn live(&self) -> MutexGuard<'_, HashMap<JobId, Arc<Live>>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts what waits as soon as there is room.
    async fn dispatch(self: Arc<Self>) {
        loop {
            loop {
                let next = self.scheduler().next(now_ms());
                let Some(id) = next else { break };
                let inner = self.clone();
                self.hold(id.clone(), |live| async move { begin::start(inner, live, id).await });
            }
            tokio::select! {
                () = self.stop.cancelled() => return,
                () = self.wake.notified() => {}
            }
        }
    }

    /// Lists a job as live while it is being worked on, and gives its room back afterwards.
    fn hold<F: Future<Output = ()> + Send + 'static>(self: &Arc<Self>, id: JobId, work: impl FnOnce(Arc<Live>) -> F) {
        let live = Arc::new(Live::default());
        self.live().insert(id.clone(), live.clone());
        let (inner, work) = (self.clone(), work(live.clone()));
        self.runs.spawn(async move {
            // In a task of its own: a bug in the work must not cost the room it was given.
            if let Err(error) = tokio::spawn(work).await {
                warn!(job = %id, "the job's task has ended abruptly: {error}");
                begin::fail_abandoned(&inner, &live, &id).await;
            }
            inner.live().remove(&id);
            inner.scheduler().finished(&id);
            inner.wake.notify_one();
        });
    }

    /// Keeps leases and gauges up to date.
    async fn keep(self: Arc<Self>) {
        let mut renew = tokio::time::interval(RENEW_INTERVAL);
        let mut gauge = tokio::time::interval(GAUGE_INTERVAL);
        loop {
            tokio::select! {
                () = self.stop.cancelled() => return,
                _ = renew.tick() => {
                    if let Err(error) = self.store.renew(&self.owner, now_ms() + LEASE_MS).await {
                        warn!("leases cannot be renewed: {error}");
                    }
                }
                _ = gauge.tick() => self.gauge().await,
            }
        }
    }

    pub(crate) async fn gauge(&self) {
        if let Ok(counts) = self.store.counts().await {
            for state in JobState::ALL {
                self.metrics.set_jobs(state, counts.get(&state).copied().unwrap_or_default());
            }
        }
        self.metrics.pool_ready.set(self.pool.ready() as i64);
    }
}
