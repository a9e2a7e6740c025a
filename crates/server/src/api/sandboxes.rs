//! Sandboxes that people use by hand. Each is a job without steps, so that everything else is as with any job.

use std::time::Duration;

use axum::Json;
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::{IntoResponse, Response};
use cofferdam_protocol::job::{JobId, JobState};

use super::jobs::{JobPage, JobsQuery};
use super::request::SandboxRequest;
use super::schedule::{accept, parse_json};
use super::upload::Staging;
use super::view::JobView;
use super::{Answer, Api, Base, Named, Payload, Query, State, answers, jobs};
use crate::http::problem::Problem;

/// How long a request waits for its sandbox; a full machine takes longer.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Starts a sandbox.
#[utoipa::path(
    post,
    path = "/sandboxes",
    operation_id = "create_sandbox",
    tag = "sandboxes",
    request_body(description = "Everything has a default.", content = SandboxRequest, example = json!({ "limits": { "cpu": 0.5, "memory": "256MiB" } })),
    responses(
        (status = 201, description = "It runs.", body = JobView, headers(("Location" = String, description = "Of the sandbox."))),
        (status = 202, description = "It waits for room.", body = JobView, headers(("Location" = String, description = "Of the sandbox."))),
        answers::NotFound,
        answers::Stalled,
        answers::Conflict,
        answers::TooLarge,
        answers::Invalid,
        answers::TooMany,
        answers::NoSpace,
    ),
)]
pub async fn create(axum::extract::State(api): State, base: Base, Payload(body): Payload) -> Answer<impl IntoResponse> {
    // Everything has a default.
    let request = if body.is_empty() { SandboxRequest::default() } else { parse_json(&body)? };
    let (spec, files) = request.into_spec(&api.jobs.inner().settings)?;
    let id = api.jobs.new_id();
    let staging = Staging::new(&api, &id);
    accept(&api, id.clone(), spec, files, staging, None).await?;
    let view = started(&api, &id, &base).await?;
    let status = if view.status == "running" { StatusCode::CREATED } else { StatusCode::ACCEPTED };
    Ok((status, [(LOCATION, format!("/sandboxes/{id}"))], Json(view)))
}

/// Waits until the sandbox is there, or has failed, or takes too long to wait for.
async fn started(api: &Api, id: &JobId, base: &Base) -> Answer<JobView> {
    let inner = api.jobs.inner();
    let mut reader = inner.feeds.follow(&inner.store, id, 0).await?;
    let deadline = tokio::time::Instant::now() + START_TIMEOUT;
    loop {
        let job = api.job(id).await?;
        if job.state == JobState::Failed {
            let reason = job.reason.unwrap_or_default();
            return Err(Problem::unavailable(format!("the sandbox could not be started: {reason}"), 5));
        }
        if job.sandbox.is_some() || job.state.is_final() {
            return Ok(api.view(&job, base));
        }
        if tokio::time::timeout_at(deadline, reader.next()).await.is_err() {
            return Ok(api.view(&job, base));
        }
    }
}

/// Lists sandboxes, newest first.
#[utoipa::path(
    get,
    path = "/sandboxes",
    operation_id = "sandboxes",
    tag = "sandboxes",
    params(JobsQuery),
    responses((status = 200, description = "A page of sandboxes.", body = JobPage), answers::Invalid),
)]
pub async fn list(state: State, base: Base, Query(query): Query<JobsQuery>) -> Answer<Json<JobPage>> {
    Ok(Json(jobs::page(&state, &base, &query, Some("interactive")).await?))
}

/// Ends a sandbox. Once more is no mistake: it is as it was asked for.
#[utoipa::path(
    delete,
    path = "/sandboxes/{id}",
    operation_id = "end_sandbox",
    tag = "sandboxes",
    params(Named),
    responses(
        (status = 200, description = "It has ended.", body = JobView),
        (status = 202, description = "It is being ended.", body = JobView),
        answers::NotFound,
        answers::Conflict,
        answers::NoSpace,
    ),
)]
pub async fn end(state: State, base: Base, Named(id): Named) -> Answer<Response> {
    let job = state.job(&id).await?;
    if job.kind != "interactive" {
        let detail = format!("{id} is a job with work of its own, not a sandbox; POST /jobs/{id}/cancel ends it");
        return Err(Problem::conflict(detail));
    }
    if job.state.is_final() {
        return Ok(Json(state.view(&job, &base)).into_response());
    }
    Ok(jobs::cancel(state, base, Named(id)).await?.into_response())
}
