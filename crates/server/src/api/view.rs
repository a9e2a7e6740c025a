//! A job as people and programs see it.

use std::collections::BTreeMap;

use cofferdam_protocol::job::JobState;
use cofferdam_store::Job;
use serde::Serialize;
use utoipa::ToSchema;

use crate::clock::rfc3339;
use crate::data::DataDirectory;

/// A job. `task_id` is another name for `job_id`, `state` and `sandbox_status` are other words for `status`.
#[derive(Debug, Serialize, ToSchema)]
pub struct JobView {
    pub job_id: String,
    pub task_id: String,
    /// `steps`, `goal` or `interactive`.
    #[schema(pattern = "^(steps|goal|interactive)$")]
    pub kind: String,
    pub title: String,
    #[schema(value_type = JobState)]
    pub status: &'static str,
    /// `pending`, `running`, `complete` or `error`.
    #[schema(pattern = "^(pending|running|complete|error)$")]
    pub state: &'static str,
    /// `starting`, `running` or `exited`.
    #[schema(pattern = "^(starting|running|exited)$")]
    pub sandbox_status: &'static str,
    /// Why it ended, where there is something to say.
    pub reason: Option<String>,
    pub cancel_requested: bool,
    pub steps_total: u32,
    pub steps_done: u32,
    /// How many are before it, while it waits.
    pub queue_position: Option<usize>,
    pub created_at: String,
    pub started_at: Option<String>,
    pub ended_at: Option<String>,
    pub labels: BTreeMap<String, String>,
    /// The number of its last event.
    pub last_seq: u64,
    /// Where its log lies on the server.
    pub log_path: String,
    pub status_url: String,
    pub events_url: String,
    pub log_url: String,
    pub files_url: String,
    /// Once it has ended.
    pub download_url: Option<String>,
}

impl JobView {
    /// `base`: the scheme and host that links begin with.
    pub fn new(job: &Job, queue_position: Option<usize>, base: &str, data: &DataDirectory) -> Self {
        let id = &job.id;
        let (state, sandbox_status) = match job.state {
            JobState::Scheduled => ("pending", "starting"),
            JobState::Running if job.sandbox.is_none() && job.steps_done == 0 => ("running", "starting"),
            JobState::Running => ("running", "running"),
            JobState::Completed => ("complete", "exited"),
            JobState::Failed | JobState::Cancelled => ("error", "exited"),
        };
        Self {
            job_id: id.to_string(),
            task_id: id.to_string(),
            kind: job.kind.clone(),
            title: job.title.clone(),
            status: job.state.as_str(),
            state,
            sandbox_status,
            reason: job.reason.clone(),
            cancel_requested: job.cancel_requested,
            steps_total: job.steps_total,
            steps_done: job.steps_done,
            queue_position,
            created_at: rfc3339(job.created_ms),
            started_at: job.started_ms.map(rfc3339),
            ended_at: job.ended_ms.map(rfc3339),
            labels: job.labels.clone(),
            last_seq: job.last_seq,
            log_path: data.task(id).join("agent.log").display().to_string(),
            status_url: format!("{base}/status/{id}"),
            events_url: format!("{base}/jobs/{id}/events"),
            log_url: format!("{base}/jobs/{id}/log"),
            files_url: format!("{base}/jobs/{id}/files"),
            download_url: job.state.is_final().then(|| format!("{base}/jobs/{id}/download")),
        }
    }
}
