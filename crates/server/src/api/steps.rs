//! The steps of a job, each with what came of it so far.

use std::fs::File;
use std::os::unix::fs::FileExt;

use axum::Json;
use cofferdam_protocol::event::{Event, EventBody, StepResult};
use cofferdam_protocol::exec::ExecOutcome;
use cofferdam_protocol::job::{JobState, Step};
use cofferdam_store::EVENTS_MAX;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::request::Invalid;
use super::{Answer, Named, Query, State, answers, blocking};
use crate::clock::rfc3339;
use crate::jobs::shorten;

const STEPS_DEFAULT: u32 = 1_000;
/// Of each step's output, its end.
const OUTPUT_MAX_BYTES: u64 = 4 * 1024;
const TEXT_MAX_CHARS: usize = 500;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct StepsQuery {
    /// The first one wanted, counted from 1.
    #[param(minimum = 1)]
    from: Option<u32>,
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct StepList {
    pub steps: Vec<StepView>,
    pub total: u32,
}

#[derive(Debug, Default, Serialize, ToSchema)]
pub struct StepView {
    pub step: u32,
    pub tool: String,
    /// The beginning of the command, code or path.
    pub text: String,
    /// `pending`, `running`, `completed`, `failed` or `skipped`.
    #[schema(pattern = "^(pending|running|completed|failed|skipped)$")]
    pub status: &'static str,
    pub attempts: u32,
    /// How it ended, in words.
    pub result: Option<String>,
    pub exit_code: Option<i32>,
    pub started_at: Option<String>,
    pub duration_ms: Option<u64>,
    /// The end of its output; what is not UTF-8 is replaced.
    pub output: String,
    pub output_is_cut: bool,
    /// Where its whole output is in the log.
    pub log_from: Option<u64>,
    pub log_to: Option<u64>,
}

/// Lists the steps of a job, each with what came of it so far.
#[utoipa::path(
    get,
    path = "/jobs/{id}/steps",
    operation_id = "job_steps",
    tag = "jobs",
    params(Named, StepsQuery),
    responses((status = 200, description = "The steps.", body = StepList), answers::NotFound, answers::Invalid),
)]
pub async fn steps(
    axum::extract::State(api): State,
    Named(id): Named,
    Query(query): Query<StepsQuery>,
) -> Answer<Json<StepList>> {
    let (from, limit) = (query.from.unwrap_or(1), query.limit.unwrap_or(STEPS_DEFAULT));
    if from == 0 {
        return Err(Invalid::new("from", "steps are counted from 1").into());
    }
    if !(1..=STEPS_DEFAULT).contains(&limit) {
        return Err(Invalid::new("limit", "it is between 1 and 1000").into());
    }
    let job = api.job(&id).await?;
    let store = &api.jobs.inner().store;
    let spec = store.spec(&id).await?;
    let total = spec.work.steps().len() as u32;
    let wanted = spec.work.steps().iter().enumerate().skip(from as usize - 1).take(limit as usize);
    let mut views: Vec<StepView> = wanted.map(|(index, step)| StepView::pending(index as u32 + 1, step)).collect();
    let mut after = 0;
    loop {
        let events = store.events(&id, after, EVENTS_MAX).await?;
        let Some(last) = events.last() else { break };
        after = last.seq;
        for event in &events {
            let step = event.body.step().and_then(|step| step.checked_sub(from));
            if let Some(view) = step.and_then(|index| views.get_mut(index as usize)) {
                view.add(event);
            }
        }
    }
    let log = api.directory(&id).log();
    let has_ended = job.state.is_final();
    blocking(move || {
        let log = File::open(log).ok();
        for view in &mut views {
            view.read_output(log.as_ref());
            if has_ended && matches!(view.status, "pending" | "running") {
                view.status =
                    if view.status == "running" && job.state == JobState::Failed { "failed" } else { "skipped" };
            }
        }
        Ok(Json(StepList { steps: views, total }))
    })
    .await
}

impl StepView {
    fn pending(number: u32, step: &Step) -> Self {
        Self {
            step: number,
            tool: step.tool.name().to_owned(),
            text: shorten(step.tool.text(), TEXT_MAX_CHARS),
            status: "pending",
            ..Self::default()
        }
    }

    fn add(&mut self, event: &Event) {
        match &event.body {
            EventBody::StepStarted { attempt, log_from, .. } => {
                self.status = "running";
                self.attempts = *attempt;
                self.started_at = Some(rfc3339(event.time_ms));
                (self.log_from, self.log_to) = (Some(*log_from), Some(*log_from));
            }
            EventBody::Output { log_to, .. } => self.log_to = Some(*log_to),
            EventBody::StepFinished { ok, result, duration_ms, log_to, .. } => {
                self.status = if *ok { "completed" } else { "failed" };
                self.result = Some(result.to_string());
                self.duration_ms = Some(*duration_ms);
                self.log_to = Some(*log_to);
                if let StepResult::Exec { outcome: ExecOutcome::Exited { code } } = result {
                    self.exit_code = Some(*code);
                }
            }
            _ => {}
        }
    }

    fn read_output(&mut self, log: Option<&File>) {
        let (Some(log), Some(from), Some(to)) = (log, self.log_from, self.log_to) else { return };
        let start = from.max(to.saturating_sub(OUTPUT_MAX_BYTES));
        let mut bytes = vec![0; (to - start) as usize];
        if log.read_exact_at(&mut bytes, start).is_ok() {
            self.output = String::from_utf8_lossy(&bytes).into_owned();
            self.output_is_cut = start > from;
        }
    }
}
