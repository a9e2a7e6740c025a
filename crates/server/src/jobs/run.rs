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
use cofferdam_protocol::job::{JobId, JobSpec, JobState, Work};
use cofferdam_sandbox::SandboxError;
use cofferdam_sandbox::client::Client;
use cofferdam_sandbox::local::{ConnectionLog, Sandbox, SandboxSpec, Workspace as SandboxWorkspace};
use cofferdam_store::{JobChange, Lease, StoreError};
use tokio::time::Instant;
use tracing::{info, warn};

use super::begin::{LostSandbox, insist};
use super::directory::JobDirectory;
use super::log::{Log, trailer};
use super::progress::StepProgress;
use super::{Inner, Live, connections};
use crate::clock::now_ms;

/// How long to wait before trying again what a full disk has refused.
const NO_SPACE_PAUSE: Duration = Duration::from_secs(1);
/// How often a sandbox that ends while it starts is replaced by another.
const LAUNCHES_MAX: u32 = 3;
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
    pub(super) generation: Option<u64>,
    pub(super) deadline: Instant,
    pub(super) forgiven: u32,
    /// A command whose result the guest may forget once it is recorded.
    pub(super) unforgotten: Option<ExecId>,
    /// Not told yet: a job that had done everything does not miss it.
    pub(super) lost: Option<LostSandbox>,
}

pub(super) fn end_of(state: JobState, reason: Option<String>) -> (Vec<EventBody>, JobChange) {
    let change = JobChange { state: Some(state), reason: reason.clone(), ..JobChange::default() };
    (vec![EventBody::Ended { state, reason }], change)
}

impl Run {
    pub(super) async fn carry_out(mut self, progress: StepProgress, reason: Option<String>) {
        let ending = match self.work(progress, reason).await {
            Ok(()) => Ending::Completed(None),
            Err(ending) => ending,
        };
        let (state, reason) = match ending {
            Ending::Detached => return,
            Ending::NotOurs if self.generation.is_some() => return,
            Ending::NotOurs => {
                self.destroy_sandbox().await;
                // Deleted before it started, and its directory perhaps made after that.
                if let Err(StoreError::NotFound(_)) = self.jobs.store.job(&self.id).await {
                    self.jobs.mirror.remove(&self.id);
                }
                return;
            }
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

    async fn work(&mut self, progress: StepProgress, reason: Option<String>) -> Ongoing<()> {
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
                        if self.live.cancel.is_cancelled() {
                            return Err(Ending::Cancelled);
                        }
                        // The step was ended together with the job.
                        if let Some(reason) = reason {
                            return Err(Ending::Failed(reason));
                        }
                        self.after_step(step, is_ok, &result)?;
                        next = step + 1;
                    }
                }
                self.steps_done = next - 1;
                for number in next..=steps.len() as u32 {
                    if self.live.cancel.is_cancelled() && running.is_none() {
                        return Err(Ending::Cancelled);
                    }
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
        if self.live.cancel.is_cancelled() {
            return Err(Ending::Cancelled);
        }
        if let Some(lost) = self.lost.take_if(|_| Instant::now() < self.deadline) {
            let reason = format!("its sandbox was lost: {}", lost.reason);
            self.lost = Some(lost);
            self.tell_lost();
            return Err(Ending::Failed(reason));
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
                () = tokio::time::sleep(INTERACTIVE_CHECK.min(self.jobs.renew_interval())) => {
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
        self.tell_lost();
        let started = Instant::now();
        let limits = self.spec.limits;
        let spec = SandboxSpec {
            workspace: SandboxWorkspace::Directory(self.directory.workspace()),
            limits,
            network: self.spec.network.clone(),
        };
        let log = connections::log(&self.jobs, &self.id, &self.spec, &self.directory);
        let mut launches = 0;
        let sandbox = loop {
            launches += 1;
            match self.launch(&spec, log.clone()).await {
                Ok(sandbox) => break sandbox,
                // Killed before anything ran in it.
                Err(SandboxError::Vanished | SandboxError::Connection(_)) if launches < LAUNCHES_MAX => {}
                Err(error @ SandboxError::NoSpace { .. }) => {
                    warn!(job = %self.id, "its sandbox cannot be started, trying again: {error}");
                    self.jobs.pause().await?;
                    if self.live.cancel.is_cancelled() {
                        return Err(Ending::Cancelled);
                    }
                }
                Err(error) => return Err(Ending::Failed(format!("its sandbox could not be started: {error}"))),
            }
        };
        self.jobs.metrics.sandbox_started(started.elapsed());
        self.pending.push(EventBody::SandboxStarted { sandbox: sandbox.id().to_owned() });
        self.change.sandbox = Some(Some(sandbox.id().to_owned()));
        let client = sandbox.client().clone();
        *self.live.sandbox.write().await = Some(sandbox);
        Ok(client)
    }

    async fn launch(&self, spec: &SandboxSpec, log: Option<ConnectionLog>) -> Result<Sandbox, SandboxError> {
        let sandbox = self.jobs.pool.take(spec, log).await?;
        match sandbox.client().renew_lease(self.jobs.settings.sandbox_lease_ms).await {
            Ok(()) => Ok(sandbox),
            Err(error) => {
                let _ = sandbox.destroy().await;
                Err(error)
            }
        }
    }

    /// What became of the sandbox that it had under an earlier server, once that matters.
    pub(super) fn tell_lost(&mut self) {
        if let Some(LostSandbox { id, reason }) = self.lost.take() {
            self.pending.push(EventBody::SandboxLost { sandbox: id, reason });
            self.change.sandbox = Some(None);
        }
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
        let (store, id, lease) = (&self.jobs.store, &self.id, self.jobs.lease());
        let begun = Instant::now();
        let job = match self.generation {
            None => insist(&self.jobs, id, || store.claim(id, &lease, all.clone(), change.clone())).await?,
            Some(generation) => {
                insist(&self.jobs, id, || store.append(id, generation, now_ms(), all.clone(), change.clone())).await?
            }
        };
        self.jobs.metrics.store_committed(begun.elapsed());
        if self.generation.replace(job.generation).is_none() {
            self.jobs.metrics.queue_waited(Duration::from_millis(now_ms().saturating_sub(job.created_ms)));
        }
        Ok(())
    }

    pub(super) async fn write_log(&mut self, bytes: Vec<u8>) -> Ongoing<()> {
        while let Err(error) = self.log.append(bytes.clone()).await {
            warn!(job = %self.id, "the log cannot be written, trying again: {error}");
            self.jobs.pause().await?;
        }
        Ok(())
    }
}

impl Inner {
    pub(super) async fn pause(&self) -> Ongoing<()> {
        tokio::select! {
            () = self.detach.cancelled() => Err(Ending::Detached),
            () = tokio::time::sleep(NO_SPACE_PAUSE) => Ok(()),
        }
    }

    pub(super) fn lease(&self) -> Lease {
        let now_ms = now_ms();
        Lease { owner: self.owner.clone(), now_ms, until_ms: now_ms + super::LEASE_MS }
    }
}
