//! Jobs as a resource: look, list, cancel, repeat, forget.

use std::collections::BTreeMap;

use axum::Json;
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::IntoResponse;
use cofferdam_protocol::job::{JobId, JobState};
use cofferdam_store::{ListQuery, PAGE_MAX, StoreError};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::request::Invalid;
use super::upload::Staging;
use super::view::JobView;
use super::{Answer, Api, Base, Named, Query, State, answers, schedule};
use crate::http::problem::Problem;
use crate::jobs::TENANT;
use crate::jobs::directory::incoming;

const PAGE_DEFAULT: usize = 50;

/// Shows a job.
#[utoipa::path(
    get,
    path = "/jobs/{id}",
    operation_id = "job",
    tag = "jobs",
    params(Named),
    responses((status = 200, description = "The job.", body = JobView), answers::NotFound),
)]
pub async fn look(axum::extract::State(api): State, base: Base, Named(id): Named) -> Answer<Json<JobView>> {
    Ok(Json(api.view(&api.job(&id).await?, &base)))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct StatusQuery {
    task_id: Option<String>,
    job_id: Option<String>,
}

/// Shows the job that the query names.
#[utoipa::path(
    get,
    path = "/status",
    operation_id = "status",
    tag = "jobs",
    params(StatusQuery),
    responses((status = 200, description = "The job.", body = JobView), answers::NotFound, answers::Invalid),
)]
pub async fn status_by_query(
    axum::extract::State(api): State,
    base: Base,
    Query(query): Query<StatusQuery>,
) -> Answer<Json<JobView>> {
    let Some(text) = query.task_id.or(query.job_id) else {
        return Err(Invalid::new("task_id", "it is missing; ask for /status?task_id=ID").into());
    };
    let id = JobId::try_from(text).map_err(|error| Problem::not_found(format!("there is no such job: {error}")))?;
    Ok(Json(api.view(&api.job(&id).await?, &base)))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct JobsQuery {
    /// One or more of `scheduled`, `running`, `completed`, `failed`, `cancelled`, with commas.
    status: Option<String>,
    /// `NAME=VALUE`, several with commas.
    label: Option<String>,
    /// 1 to 1000.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// `next_cursor` of the answer before.
    pub cursor: Option<String>,
}

/// A page of jobs, newest first.
#[derive(Debug, Serialize, ToSchema)]
pub struct JobPage {
    pub jobs: Vec<JobView>,
    /// For the page behind this one, if there is one.
    pub next_cursor: Option<String>,
}

/// Lists jobs, newest first.
#[utoipa::path(
    get,
    path = "/jobs",
    operation_id = "jobs",
    tag = "jobs",
    params(JobsQuery),
    responses((status = 200, description = "A page of jobs.", body = JobPage), answers::Invalid),
)]
pub async fn list(
    axum::extract::State(api): State,
    base: Base,
    Query(query): Query<JobsQuery>,
) -> Answer<Json<JobPage>> {
    Ok(Json(page(&api, &base, &query, None).await?))
}

/// `kind`: only jobs of this one.
pub async fn page(api: &Api, base: &Base, query: &JobsQuery, kind: Option<&str>) -> Answer<JobPage> {
    let limit = query.limit.unwrap_or(PAGE_DEFAULT);
    if !(1..=PAGE_MAX).contains(&limit) {
        return Err(Invalid::new("limit", "it is between 1 and 1000").into());
    }
    let states = query.status.iter().flat_map(|states| states.split(',')).map(|text| {
        JobState::parse(text.trim()).ok_or_else(|| {
            let message = format!(
                "\"{text}\" is no status; ask for one or more of scheduled, running, completed, failed, cancelled"
            );
            Invalid::new("status", message)
        })
    });
    let labels = query.label.iter().flat_map(|labels| labels.split(',')).map(|text| {
        let pair = text.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
        pair.ok_or_else(|| Invalid::new("label", "a label is asked for as NAME=VALUE"))
    });
    let before = query.cursor.clone().map(JobId::try_from).transpose();
    let query = ListQuery {
        tenant: TENANT.to_owned(),
        states: states.collect::<Result<_, _>>()?,
        kind: kind.map(str::to_owned),
        labels: labels.collect::<Result<BTreeMap<_, _>, _>>()?,
        before: before
            .map_err(|_| Invalid::new("cursor", "it is not the next_cursor of an earlier answer; leave it out"))?,
        limit,
    };
    let jobs = api.jobs.inner().store.list(&query).await?;
    let next_cursor = (jobs.len() == limit).then(|| jobs.last().map(|job| job.id.to_string())).flatten();
    Ok(JobPage { jobs: jobs.iter().map(|job| api.view(job, base)).collect(), next_cursor })
}

/// Ends a job.
#[utoipa::path(
    post,
    path = "/jobs/{id}/cancel",
    operation_id = "cancel_job",
    tag = "jobs",
    params(Named),
    responses(
        (status = 200, description = "The job is cancelled.", body = JobView),
        (status = 202, description = "The job is being ended.", body = JobView),
        answers::NotFound,
        answers::Conflict,
        answers::NoSpace,
    ),
)]
pub async fn cancel(axum::extract::State(api): State, base: Base, Named(id): Named) -> Answer<impl IntoResponse> {
    let job = api.jobs.cancel(&id).await.map_err(|error| match error {
        StoreError::State { .. } => {
            Problem::conflict(format!("{error}; only a job that has not ended can be cancelled"))
        }
        error => error.into(),
    })?;
    let status = if job.state.is_final() { StatusCode::OK } else { StatusCode::ACCEPTED };
    Ok((status, Json(api.view(&job, &base))))
}

/// Schedules a new job that repeats this one from its beginning, with the input that it was given.
#[utoipa::path(
    post,
    path = "/jobs/{id}/retry",
    operation_id = "retry_job",
    tag = "jobs",
    params(Named),
    responses(
        (status = 202, description = "The new job.", body = JobView, headers(("Location" = String, description = "Of the new job."))),
        answers::NotFound,
        answers::Conflict,
        answers::TooLarge,
        answers::TooMany,
        answers::NoSpace,
    ),
)]
pub async fn retry(axum::extract::State(api): State, base: Base, Named(id): Named) -> Answer<impl IntoResponse> {
    let job = api.job(&id).await?;
    if !job.state.is_final() {
        return Err(Problem::conflict(format!("the job {id} is {}; cancel it first, or wait for its end", job.state)));
    }
    let mut spec = api.jobs.inner().store.spec(&id).await?;
    let new_id = api.jobs.new_id();
    let mut staging = Staging::new(&api, &new_id);
    let (input, uploaded) = (api.directory(&id).input(), incoming(&api.jobs.inner().data, &id));
    if input.is_dir() {
        staging.copy(input).await?;
        // It is part of the input now, and may be gone by itself; of a job that never started it is not.
        spec.parent = spec.parent.filter(|_| job.started_ms.is_none());
    } else if uploaded.is_dir() {
        // It was cancelled before it started.
        staging.copy(uploaded).await?;
    } else if spec.has_input {
        let detail = format!("the input of the job {id} is not there any more; send it as a new job");
        return Err(Problem::conflict(detail));
    }
    spec.retry_of = Some(id);
    let job = schedule::accept(&api, new_id, spec, Vec::new(), staging, None).await?;
    let location = format!("/jobs/{}", job.id);
    Ok((StatusCode::ACCEPTED, [(LOCATION, location)], Json(api.view(&job, &base))))
}

/// Forgets a job that has ended, with its log and its files.
#[utoipa::path(
    delete,
    path = "/jobs/{id}",
    operation_id = "delete_job",
    tag = "jobs",
    params(Named),
    responses(
        (status = 204, description = "It is gone."),
        answers::NotFound,
        answers::Conflict,
        answers::NoSpace,
    ),
)]
pub async fn remove(axum::extract::State(api): State, Named(id): Named) -> Answer<StatusCode> {
    let job = api.job(&id).await?;
    if !job.state.is_final() {
        return Err(Problem::conflict(format!("the job {id} is {}; cancel it first", job.state)));
    }
    api.jobs.delete(&id).await?;
    Ok(StatusCode::NO_CONTENT)
}
