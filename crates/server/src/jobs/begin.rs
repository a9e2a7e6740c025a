//! How a job comes into the hands of this server: one that waits is started, one whose server is no more is resumed.
//! Either way its directory is made ready first; a disk that is full is waited for. The rest is [`Run`]'s.

use std::sync::Arc;
use std::time::Duration;

use cofferdam_linux::files::Workspace;
use cofferdam_protocol::job::{JobId, JobSpec, JobState};
use cofferdam_store::{Job, JobChange, StoreError};
use tokio::time::Instant;
use tracing::warn;

use super::directory::{JobDirectory, PrepareError};
use super::log::Log;
use super::progress::Progress;
use super::run::{Ending, Ongoing, Run, end_of};
use super::{Inner, Live};
use crate::clock::now_ms;

/// Where a run begins.
#[derive(Debug, Default)]
struct Beginning {
    /// None until the job is ours.
    generation: Option<u64>,
    started_ms: u64,
    progress: Progress,
    lost: Option<LostSandbox>,
    /// Why the job was about to end when its server did.
    reason: Option<String>,
}

/// The sandbox that a job was in under an earlier server, and that is gone.
#[derive(Debug)]
pub struct LostSandbox {
    pub id: String,
    pub reason: String,
}

/// Carries out a job that waits.
pub async fn start(jobs: Arc<Inner>, live: Arc<Live>, id: JobId) {
    let Ok(spec) = insist(&jobs, &id, || jobs.store.spec(&id)).await else { return };
    let mut beginning = Beginning { started_ms: now_ms(), ..Beginning::default() };
    // Copying may take its time: the job is shown as running meanwhile.
    if spec.has_input || spec.parent.is_some() {
        let Ok(generation) = claim(&jobs, &id).await else { return };
        beginning.generation = Some(generation);
    }
    go(jobs, live, id, Arc::new(spec), beginning).await;
}

/// Goes on with a job of a server that is no more. `job` is ours already.
pub async fn resume(jobs: Arc<Inner>, live: Arc<Live>, job: Job, spec: JobSpec, lost: Option<LostSandbox>) {
    let Ok(progress) = insist(&jobs, &job.id, || Progress::read(&*jobs.store, &job.id)).await else { return };
    let beginning = Beginning {
        generation: Some(job.generation),
        started_ms: job.started_ms.unwrap_or_else(now_ms),
        progress,
        lost,
        reason: job.reason,
    };
    go(jobs, live, job.id, Arc::new(spec), beginning).await;
}

async fn go(jobs: Arc<Inner>, live: Arc<Live>, id: JobId, spec: Arc<JobSpec>, beginning: Beginning) {
    let Beginning { generation, started_ms, progress, lost, reason } = beginning;
    let remaining_ms = (started_ms + spec.timeout_ms).saturating_sub(now_ms());
    let deadline = Instant::now() + Duration::from_millis(remaining_ms);
    let directory = JobDirectory::new(&jobs.data, &id);
    let (workspace, log) = match open(&jobs, &live, &id, &spec, &directory, progress.log_end).await {
        Ok(opened) => opened,
        Err(Ending::Failed(reason)) => {
            return end_unprepared(&jobs, &live, &id, generation, JobState::Failed, reason).await;
        }
        Err(Ending::Cancelled) => {
            let reason = "cancelled by request".to_owned();
            return end_unprepared(&jobs, &live, &id, generation, JobState::Cancelled, reason).await;
        }
        Err(_) => return,
    };
    let run = Run {
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
        lost,
    };
    run.carry_out(progress.step, reason).await;
}

/// The job's directory, made ready. A disk that is full is waited for.
async fn open(
    jobs: &Arc<Inner>,
    live: &Live,
    id: &JobId,
    spec: &Arc<JobSpec>,
    directory: &JobDirectory,
    log_end: u64,
) -> Ongoing<(Workspace, Log)> {
    loop {
        let (data, id_, spec, directory) = (jobs.data.clone(), id.clone(), spec.clone(), directory.clone());
        let opened = tokio::task::spawn_blocking(move || -> Result<_, PrepareError> {
            directory.prepare(&data, &id_, &spec)?;
            let log = Log::open(&directory.log(), log_end).map_err(PrepareError::Log)?;
            Ok((Workspace::open(&directory.workspace())?, log))
        });
        match opened.await {
            Ok(Ok(opened)) => return Ok(opened),
            Ok(Err(error)) if error.is_no_space() => {
                warn!(job = %id, "its directory cannot be made, trying again: {error}");
                jobs.pause().await?;
                if live.cancel.is_cancelled() {
                    return Err(Ending::Cancelled);
                }
            }
            Ok(Err(error)) => return Err(Ending::Failed(error.to_string())),
            Err(error) => return Err(Ending::Failed(error.to_string())),
        }
    }
}

/// A job whose task has ended without ending the job: a bug, which must not leave it running for ever.
pub async fn fail_abandoned(jobs: &Inner, live: &Live, id: &JobId) {
    let Ok(job) = jobs.store.job(id).await else { return };
    if !job.state.is_final() {
        let generation = (job.state == JobState::Running).then_some(job.generation);
        let reason = "the server failed while it carried the job out; its log says why".to_owned();
        end_unprepared(jobs, live, id, generation, JobState::Failed, reason).await;
    }
}

/// A job that has no directory to work in.
async fn end_unprepared(
    jobs: &Inner,
    live: &Live,
    id: &JobId,
    generation: Option<u64>,
    state: JobState,
    reason: String,
) {
    let generation = match generation {
        Some(generation) => Ok(generation),
        None => claim(jobs, id).await,
    };
    let Ok(generation) = generation else { return };
    if let Some(sandbox) = live.sandbox.write().await.take() {
        let _ = sandbox.destroy().await;
    }
    let (events, change) = end_of(state, Some(reason));
    let _ = insist(jobs, id, || jobs.store.append(id, generation, now_ms(), events.clone(), change.clone())).await;
}

async fn claim(jobs: &Inner, id: &JobId) -> Ongoing<u64> {
    let lease = jobs.lease();
    insist(jobs, id, || jobs.store.claim(id, &lease, Vec::new(), JobChange::default())).await.map(|job| job.generation)
}

/// Asks the store until it can answer: a disk that is full is waited for. What it refuses is not ours to do.
pub(super) async fn insist<T, F>(jobs: &Inner, id: &JobId, ask: impl Fn() -> F) -> Ongoing<T>
where
    F: Future<Output = Result<T, StoreError>>,
{
    loop {
        match ask().await {
            Ok(answer) => return Ok(answer),
            Err(StoreError::NotFound(_) | StoreError::State { .. } | StoreError::Fenced(_) | StoreError::Closed) => {
                return Err(Ending::NotOurs);
            }
            Err(error) => {
                warn!(job = %id, "the store does not answer, trying again: {error}");
                jobs.pause().await?;
            }
        }
    }
}
