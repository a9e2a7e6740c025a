//! One job from its start to its end, as a story. [`Run`] is the job in the hands of this server: it records what
//! happens, holds the sandbox, and ends the job. What a step does is in [`super::step`].
//!
//! The order is what makes it crash-proof: a sandbox is named in the store before a command runs in it, a step is
//! recorded as started before its command is sent, its result is recorded before the sandbox may forget it, and the
//! sandbox is gone before the job is said to have ended.

use std::sync::Arc;
use std::time::Duration;

use cofferdam_linux::files::Workspace;
use cofferdam_protocol::event::EventBody;
use cofferdam_protocol::exec::ExecId;
use cofferdam_protocol::job::{JobId, JobSpec, JobState, WhenLost, Work};
use cofferdam_sandbox::client::Client;
use cofferdam_sandbox::local::{Sandbox, SandboxSpec, Workspace as SandboxWorkspace};
use cofferdam_store::{Job, JobChange, Lease, StoreError};
use tokio::time::Instant;
use tracing::{info, warn};

use super::directory::JobDirectory;
use super::log::{Log, trailer};
use super::progress::{Progress, StepProgress};
use super::{Inner, Live, connections};
use crate::clock::now_ms;

/// How long to wait before trying again what a full disk has refused.
const NO_SPACE_PAUSE: Duration = Duration::from_secs(1);
/// How often a sandbox in which nothing runs is looked at.
const INTERACTIVE_CHECK: Duration = Duration::from_secs(2);

/// Why a job is not worked on any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    Completed(Option<String>),
    Failed(String),
    Cancelled,
    /// This server stops. The sandbox goes on, and the next server takes it up.
    Detached,
    /// The job is not ours: cancelled before it started, or taken over by another server.
    NotOurs,
}

/// Work goes on with a value, or the job is over.
pub type Ongoing<T> = Result<T, Ending>;

#[derive(Debug)]
pub struct Run {
    pub(super) jobs: Arc<Inner>,
    pub(super) live: Arc<Live>,
    pub(super) id: JobId,
    pub(super) spec: Arc<JobSpec>,
    pub(super) directory: JobDirectory,
    pub(super) workspace: Workspace,
    pub(super) log: Log,
    /// Events that wait for the next ones to be recorded with.
    pub(super) pending: Vec<EventBody>,
    pub(super) change: JobChange,
    pub(super) steps_done: u32,
    /// None until the job is ours.
    generation: Option<u64>,
    pub(super) deadline: Instant,
    forgiven: u32,
    /// A command whose result the guest may forget once it is recorded.
    pub(super) unforgotten: Option<ExecId>,
}

/// Carries out a job that waits.
pub async fn start(jobs: Arc<Inner>, live: Arc<Live>, id: JobId) {
    let spec = match jobs.store.spec(&id).await {
        Ok(spec) => Arc::new(spec),
        Err(StoreError::NotFound(_)) => return,
        Err(error) => return warn!(job = %id, "the job cannot be read: {error}"),
    };
    let directory = JobDirectory::new(&jobs.data, &id);
    // Copying may take its time: the job is shown as running meanwhile.
    let generation = match spec.has_input || spec.parent.is_some() {
        true => match jobs.store.claim(&id, &jobs.lease(), Vec::new(), JobChange::default()).await {
            Ok(job) => Some(job.generation),
            Err(error) => return warn!(job = %id, "the job cannot be started: {error}"),
        },
        false => None,
    };
    go(jobs, live, id, spec, directory, generation, now_ms(), Progress::default(), None).await;
}

/// Goes on with a job of a server that is no more. `job` is ours already.
pub async fn resume(jobs: Arc<Inner>, live: Arc<Live>, job: Job) {
    let read =
        async { Ok::<_, StoreError>((jobs.store.spec(&job.id).await?, Progress::read(&*jobs.store, &job.id).await?)) };
    let (spec, progress) = match read.await {
        Ok(read) => read,
        Err(error) => return warn!(job = %job.id, "the job cannot be read: {error}"),
    };
    let directory = JobDirectory::new(&jobs.data, &job.id);
    let started_ms = job.started_ms.unwrap_or_else(now_ms);
    let lost = match live.sandbox.read().await.is_none() {
        true => job.sandbox,
        false => None,
    };
    go(jobs, live, job.id, Arc::new(spec), directory, Some(job.generation), started_ms, progress, lost).await;
}

#[expect(clippy::too_many_arguments, reason = "the two beginnings differ in each of them")]
async fn go(
    jobs: Arc<Inner>,
    live: Arc<Live>,
    id: JobId,
    spec: Arc<JobSpec>,
    directory: JobDirectory,
    generation: Option<u64>,
    started_ms: u64,
    progress: Progress,
    lost_sandbox: Option<String>,
) {
    let remaining_ms = (started_ms + spec.timeout_ms).saturating_sub(now_ms());
    let deadline = Instant::now() + Duration::from_millis(remaining_ms);
    let opened = {
        let (jobs, id, spec, directory) = (jobs.clone(), id.clone(), spec.clone(), directory.clone());
        let log_end = progress.log_end;
        tokio::task::spawn_blocking(move || -> Result<_, super::directory::PrepareError> {
            directory.prepare(&jobs.data, &id, &spec)?;
            Ok((Workspace::open(&directory.workspace())?, Log::open(&directory.log(), log_end)?))
        })
        .await
    };
    let (workspace, log) = match opened {
        Ok(Ok(opened)) => opened,
        Ok(Err(error)) => return fail_unprepared(&jobs, &id, generation, &error.to_string()).await,
        Err(error) => return fail_unprepared(&jobs, &id, generation, &error.to_string()).await,
    };
    let mut run = Run {
        jobs,
        live,
        id,
        spec,
        directory,
        workspace,
        log,
        pending: Vec::new(),
        change: JobChange::default(),
        steps_done: 0,
        generation,
        deadline,
        forgiven: progress.forgiven,
        unforgotten: None,
    };
    if let Some(sandbox) = lost_sandbox {
        let reason = "it was gone when the server was started again".to_owned();
        run.pending.push(EventBody::SandboxLost { sandbox, reason });
        run.change.sandbox = Some(None);
    }
    run.carry_out(progress.step).await;
}

/// A job whose task has ended without ending the job: a bug, which must not leave it running for ever.
pub async fn fail_abandoned(jobs: &Inner, id: &JobId) {
    let Ok(job) = jobs.store.job(id).await else { return };
    if !job.state.is_final() {
        let generation = (job.state == JobState::Running).then_some(job.generation);
        fail_unprepared(jobs, id, generation, "the server failed while it carried the job out; its log says why").await;
    }
}

/// A job that has no directory to work in.
async fn fail_unprepared(jobs: &Inner, id: &JobId, generation: Option<u64>, reason: &str) {
    let generation = match generation {
        Some(generation) => Ok(generation),
        None => jobs.store.claim(id, &jobs.lease(), Vec::new(), JobChange::default()).await.map(|job| job.generation),
    };
    let Ok(generation) = generation else { return };
    let (events, change) = end_of(JobState::Failed, Some(reason.to_owned()));
    if let Err(error) = jobs.store.append(id, generation, now_ms(), events, change).await {
        warn!(job = %id, "its end cannot be recorded, the next start of the server will try again: {error}");
    }
}

fn end_of(state: JobState, reason: Option<String>) -> (Vec<EventBody>, JobChange) {
    let change = JobChange { state: Some(state), reason: reason.clone(), ..JobChange::default() };
    (vec![EventBody::Ended { state, reason }], change)
}

impl Run {
    async fn carry_out(mut self, progress: StepProgress) {
        let ending = match self.work(progress).await {
            Ok(()) => Ending::Completed(None),
            Err(ending) => ending,
        };
        let (state, reason) = match ending {
            Ending::Detached => return,
            Ending::NotOurs if self.generation.is_some() => return,
            Ending::NotOurs => return self.destroy_sandbox().await,
            Ending::Completed(reason) => (JobState::Completed, reason.or_else(|| self.forgiven_reason())),
            Ending::Failed(reason) => (JobState::Failed, Some(reason)),
            Ending::Cancelled if self.spec.work == Work::Interactive => {
                (JobState::Completed, Some("ended by request".to_owned()))
            }
            Ending::Cancelled => (JobState::Cancelled, Some("cancelled by request".to_owned())),
        };
        // What came of the last step is recorded while the sandbox still knows it.
        if !self.pending.is_empty() && self.record(Vec::new()).await.is_err() {
            return;
        }
        self.destroy_sandbox().await;
        let (events, change) = end_of(state, reason.clone());
        self.change.state = change.state;
        self.change.reason = change.reason;
        if self.record(events).await.is_ok() {
            self.jobs.metrics.job_finished(state);
            info!(job = %self.id, %state, reason, "the job has ended");
        }
    }

    fn forgiven_reason(&self) -> Option<String> {
        match self.forgiven {
            0 => None,
            1 => Some("one step failed and was allowed to".to_owned()),
            number => Some(format!("{number} steps failed and were allowed to")),
        }
    }

    async fn work(&mut self, progress: StepProgress) -> Ongoing<()> {
        if self.live.cancel.is_cancelled() && progress == StepProgress::NotStarted {
            return Err(Ending::Cancelled);
        }
        let spec = self.spec.clone();
        match &spec.work {
            Work::Goal(_) => Err(Ending::Failed(super::NO_MODEL.to_owned())),
            Work::Interactive => self.interactive().await,
            Work::Steps(steps) => {
                let (mut next, mut running) = (1, None);
                match progress {
                    StepProgress::NotStarted => {}
                    StepProgress::Running { step, .. } => {
                        next = step;
                        running = Some(progress);
                    }
                    StepProgress::Finished { step, is_ok, result, duration_ms } => {
                        let line = self.log.line(&trailer(&result, duration_ms));
                        self.write_log(line).await?;
                        self.steps_done = step;
                        self.after_step(step, is_ok, &result)?;
                        next = step + 1;
                    }
                }
                self.steps_done = next - 1;
                for number in next..=steps.len() as u32 {
                    let (is_ok, result) = self.step(number, running.take()).await?;
                    self.after_step(number, is_ok, &result)?;
                }
                Ok(())
            }
        }
    }

    /// Whether the job goes on behind this step.
    fn after_step(&mut self, number: u32, is_ok: bool, result: &cofferdam_protocol::event::StepResult) -> Ongoing<()> {
        let step = &self.spec.work.steps()[number as usize - 1];
        if is_ok {
            return Ok(());
        }
        if step.continue_on_error {
            self.forgiven += 1;
            return Ok(());
        }
        Err(Ending::Failed(format!("step {number} ({}) {result}", step.tool.name())))
    }

    /// A sandbox that people use, until somebody ends it or its time is over.
    async fn interactive(&mut self) -> Ongoing<()> {
        let is_lost = self.change.sandbox == Some(None);
        if is_lost && self.spec.when_lost == WhenLost::Fail {
            return Err(Ending::Failed("its sandbox was gone when the server was started again".to_owned()));
        }
        let client = self.sandbox().await?;
        self.record(Vec::new()).await?;
        loop {
            tokio::select! {
                () = self.live.cancel.cancelled() => return Err(Ending::Cancelled),
                () = self.jobs.detach.cancelled() => return Err(Ending::Detached),
                () = tokio::time::sleep_until(self.deadline) => {
                    return Err(Ending::Completed(Some("its time to live is over".to_owned())));
                }
                () = tokio::time::sleep(INTERACTIVE_CHECK) => {
                    if let Err(error) = client.renew_lease(self.jobs.settings.sandbox_lease_ms).await {
                        self.lose_sandbox(&error.to_string()).await;
                        return Err(Ending::Failed(format!("its sandbox was lost: {error}")));
                    }
                }
            }
        }
    }

    /// The sandbox's guest: of the sandbox it has, of the one it had under an earlier server, or of a fresh one. A
    /// fresh one is in the events that wait to be recorded.
    pub(super) async fn sandbox(&mut self) -> Ongoing<Client> {
        if let Some(sandbox) = &*self.live.sandbox.read().await {
            return Ok(sandbox.client().clone());
        }
        let started = Instant::now();
        let limits = self.spec.limits;
        let spec = SandboxSpec {
            workspace: SandboxWorkspace::Directory(self.directory.workspace()),
            limits,
            network: self.spec.network.clone(),
        };
        let log = connections::log(&self.jobs, &self.id, &self.spec, &self.directory);
        let launched = async {
            let sandbox = self.jobs.pool.take(&spec, log).await?;
            sandbox.client().renew_lease(self.jobs.settings.sandbox_lease_ms).await?;
            Ok::<Sandbox, cofferdam_sandbox::SandboxError>(sandbox)
        };
        let sandbox =
            launched.await.map_err(|error| Ending::Failed(format!("its sandbox could not be started: {error}")))?;
        self.jobs.metrics.sandbox_started(started.elapsed());
        self.pending.push(EventBody::SandboxStarted { sandbox: sandbox.id().to_owned() });
        self.change.sandbox = Some(Some(sandbox.id().to_owned()));
        let client = sandbox.client().clone();
        *self.live.sandbox.write().await = Some(sandbox);
        Ok(client)
    }

    /// The sandbox is gone, or as good as gone.
    pub(super) async fn lose_sandbox(&mut self, reason: &str) {
        if let Some(sandbox) = self.live.sandbox.write().await.take() {
            self.pending.push(EventBody::SandboxLost { sandbox: sandbox.id().to_owned(), reason: reason.to_owned() });
            self.change.sandbox = Some(None);
            let _ = sandbox.destroy().await;
        }
    }

    async fn destroy_sandbox(&self) {
        if let Some(sandbox) = self.live.sandbox.write().await.take() {
            let _ = sandbox.destroy().await;
        }
    }

    /// Makes durable what has happened: the events that wait, then these, and the changes to the job's row. Returns
    /// when they are. A disk that is full is waited for.
    pub(super) async fn record(&mut self, events: Vec<EventBody>) -> Ongoing<()> {
        let mut all = std::mem::take(&mut self.pending);
        all.extend(events);
        let mut change = std::mem::take(&mut self.change);
        change.steps_done = Some(self.steps_done);
        loop {
            let store = &self.jobs.store;
            let recorded = match self.generation {
                None => store.claim(&self.id, &self.jobs.lease(), all.clone(), change.clone()).await,
                Some(generation) => store.append(&self.id, generation, now_ms(), all.clone(), change.clone()).await,
            };
            match recorded {
                Ok(job) => {
                    if self.generation.is_none() {
                        self.jobs.metrics.queue_waited(Duration::from_millis(now_ms().saturating_sub(job.created_ms)));
                    }
                    self.generation = Some(job.generation);
                    return Ok(());
                }
                Err(
                    StoreError::NotFound(_) | StoreError::State { .. } | StoreError::Fenced(_) | StoreError::Closed,
                ) => return Err(Ending::NotOurs),
                Err(error) => {
                    warn!(job = %self.id, "nothing can be recorded, trying again: {error}");
                    self.pause().await?;
                }
            }
        }
    }

    pub(super) async fn write_log(&mut self, bytes: Vec<u8>) -> Ongoing<()> {
        while let Err(error) = self.log.append(bytes.clone()).await {
            warn!(job = %self.id, "the log cannot be written, trying again: {error}");
            self.pause().await?;
        }
        Ok(())
    }

    async fn pause(&self) -> Ongoing<()> {
        tokio::select! {
            () = self.jobs.detach.cancelled() => Err(Ending::Detached),
            () = tokio::time::sleep(NO_SPACE_PAUSE) => Ok(()),
        }
    }
}

impl Inner {
    pub(super) fn lease(&self) -> Lease {
        let now_ms = now_ms();
        Lease { owner: self.owner.clone(), now_ms, until_ms: now_ms + super::LEASE_MS }
    }
}
