//! How soon a server is ready that finds many finished jobs. They are put into the store and onto the disk as a server
//! would have left them, without having been run.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use cofferdam_protocol::event::EventBody;
use cofferdam_protocol::job::{JobId, JobSpec, JobState, Step, Tool, WhenLost, Work};
use cofferdam_protocol::{Limits, NetworkPolicy};
use cofferdam_store::{JobChange, Lease, NewJob, SqliteStore, Store};
use tokio::task::JoinSet;

use super::Setup;
use super::process::{cofferdam, fresh};
use crate::bench::Turns;
use crate::stats::{Section, Unit};

const AFTER_STOP: &str = "cofferdam, after a stop";
const AFTER_KILL: &str = "cofferdam, after a kill";
/// The store gathers what is written at the same time into one commit.
const WRITERS: usize = 256;

#[derive(Debug)]
pub struct Restart {
    pub jobs: usize,
    pub times: Section,
}

pub fn measure(setup: &Setup) -> Result<Restart> {
    let jobs = setup.sized(100_000, 2_000);
    let data = fresh(setup.scratch());
    fs::create_dir(&data)?;
    tokio::runtime::Runtime::new()?.block_on(finish_jobs(&data, jobs))?;
    // The first one brings the directory into the shape that servers leave.
    cofferdam(&setup.program, &data, &[])?.stop()?;
    let mut turns = Turns::new();
    let mut before = AFTER_STOP;
    for _ in 0..2 * setup.sized(5, 2) {
        let server = cofferdam(&setup.program, &data, &[])?;
        turns.add(before, server.ready_after);
        if before == AFTER_STOP {
            server.kill()?;
            before = AFTER_KILL;
        } else {
            server.stop()?;
            before = AFTER_STOP;
        }
    }
    let times = Section {
        title: "Restart with many finished jobs",
        note: format!(
            "From the start of the process until `GET /readyz` succeeds, with {jobs} finished jobs in the data \
             directory; files are in the system's cache."
        ),
        unit: Unit::Seconds,
        rows: turns.into_rows(),
    };
    Ok(Restart { jobs, times })
}

async fn finish_jobs(data: &Path, count: usize) -> Result<()> {
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&data.join("cofferdam.db"), Box::new(|_, _| {}))?);
    let tasks = data.join("tasks");
    fs::create_dir(&tasks)?;
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let (store, tasks) = (store.clone(), tasks.clone());
        writers.spawn(async move {
            for index in (writer..count).step_by(WRITERS) {
                finish_job(store.as_ref(), &tasks, index as u64).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(written) = writers.join_next().await {
        written??;
    }
    Ok(())
}

async fn finish_job(store: &dyn Store, tasks: &Path, index: u64) -> Result<()> {
    let now_ms = 1_700_000_000_000 + index;
    let id = JobId::new(now_ms, u128::from(index) << 40);
    let job = new_job(id.clone(), now_ms);
    let task = serde_json::to_vec_pretty(&job.spec)?;
    store.create(job).await?;
    let lease = Lease { owner: "bench".to_owned(), now_ms, until_ms: now_ms + 60_000 };
    let text = "true".to_owned();
    let begun = vec![
        EventBody::SandboxStarted { sandbox: format!("s{index}") },
        EventBody::StepStarted { step: 1, attempt: 1, tool: "shell".to_owned(), text, log_from: 0 },
    ];
    store.claim(&id, &lease, begun, JobChange::default()).await?;
    let ended = vec![EventBody::Ended { state: JobState::Completed, reason: None }];
    let change = JobChange { state: Some(JobState::Completed), steps_done: Some(1), ..JobChange::default() };
    let job = store.append(&id, 1, now_ms, ended, change).await?;
    store.set_mirrored(&id, job.last_seq).await?;
    let directory = tasks.join(id.as_str());
    fs::create_dir_all(directory.join("workspace"))?;
    fs::write(directory.join("task.json"), task)?;
    Ok(fs::write(directory.join("status.json"), serde_json::to_vec_pretty(&job)?)?)
}

fn new_job(id: JobId, now_ms: u64) -> NewJob {
    let step = Step {
        tool: Tool::Shell { command: "true".to_owned() },
        timeout_ms: 0,
        env: Default::default(),
        cwd: None,
        continue_on_error: false,
    };
    let spec = JobSpec {
        work: Work::Steps(vec![step]),
        env: Default::default(),
        limits: Limits::default(),
        network: NetworkPolicy::None,
        timeout_ms: 3_600_000,
        idle_timeout_ms: 0,
        labels: Default::default(),
        when_lost: WhenLost::Fail,
        parent: None,
        retry_of: None,
        has_input: false,
    };
    NewJob {
        id,
        tenant: "default".to_owned(),
        title: "true".to_owned(),
        kind: "steps".to_owned(),
        spec,
        now_ms,
        idempotency: None,
        queue_max: u64::MAX,
    }
}
