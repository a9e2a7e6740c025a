//! Jobs as a resource: look, list, cancel, repeat, forget.

use std::collections::BTreeMap;

use axum::Json;
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::IntoResponse;
use cofferdam_protocol::job::{JobId, JobState};
use cofferdam_store::{ListQuery, PAGE_MAX};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::request::Invalid;
use super::upload::Staging;
use super::view::JobView;
use super::{Answer, Base, Named, Query, State, schedule};
use crate::http::problem::Problem;
use crate::jobs::TENANT;

const PAGE_DEFAULT: usize = 50;

pub async fn look(axum::extract::State(api): State, base: Base, Named(id): Named) -> Answer<Json<JobView>> {
    Ok(Json(api.view(&api.job(&id).await?, &base)))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct StatusQuery {
    task_id: Option<String>,
    job_id: Option<String>,
}

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
    cursor: Option<String>,
}

/// A page of jobs, newest first.
#[derive(Debug, Serialize, ToSchema)]
pub struct JobPage {
    pub jobs: Vec<JobView>,
    /// For the page behind this one, if there is one.
    pub next_cursor: Option<String>,
}

pub async fn list(
    axum::extract::State(api): State,
    base: Base,
    Query(query): Query<JobsQuery>,
) -> Answer<Json<JobPage>> {
    let limit = query.limit.unwrap_or(PAGE_DEFAULT);
    if !(1..=PAGE_MAX).contains(&limit) {
        return Err(Invalid::new("limit", "it is between 1 and 1000").into());
    }
    let states = query.status.iter().flat_map(|states| states.split(',')).map(|text| {
        JobState::parse(text.trim()).ok_or_else(|| {
            let message = format!("\"{text}\" is none of scheduled, running, completed, failed and cancelled");
            Invalid::new("status", message)
        })
    });
    let labels = query.label.iter().flat_map(|labels| labels.split(',')).map(|text| {
        let pair = text.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
        pair.ok_or_else(|| Invalid::new("label", "a label is asked for as NAME=VALUE"))
    });
    let before = query.cursor.map(JobId::try_from).transpose();
    let query = ListQuery {
        tenant: TENANT.to_owned(),
        states: states.collect::<Result<_, _>>()?,
        labels: labels.collect::<Result<BTreeMap<_, _>, _>>()?,
        before: before.map_err(|_| Invalid::new("cursor", "it is not the next_cursor of an earlier answer"))?,
        limit,
    };
    let jobs = api.jobs.inner().store.list(&query).await?;
    let next_cursor = (jobs.len() == limit).then(|| jobs.last().map(|job| job.id.to_string())).flatten();
    Ok(Json(JobPage { jobs: jobs.iter().map(|job| api.view(job, &base)).collect(), next_cursor }))
}

pub async fn cancel(axum::extract::State(api): State, base: Base, Named(id): Named) -> Answer<impl IntoResponse> {
    let job = api.jobs.cancel(&id).await?;
    let status = if job.state.is_final() { StatusCode::OK } else { StatusCode::ACCEPTED };
    Ok((status, Json(api.view(&job, &base))))
}

/// A new job that repeats this one from its beginning, with the input that it was given.
pub async fn retry(axum::extract::State(api): State, base: Base, Named(id): Named) -> Answer<impl IntoResponse> {
    let job = api.job(&id).await?;
    if !job.state.is_final() {
        return Err(Problem::conflict(format!("the job {id} is {}; cancel it first, or wait for its end", job.state)));
    }
    let mut spec = api.jobs.inner().store.spec(&id).await?;
    let new_id = api.jobs.new_id();
    let mut staging = Staging::new(&api, &new_id);
    let input = api.directory(&id).input();
    if input.is_dir() {
        staging.copy(input).await?;
        // It is part of the input now, and may be gone by itself; of a job that never started it is not.
        spec.parent = spec.parent.filter(|_| job.started_ms.is_none());
    } else if spec.has_input {
        let detail = format!("the input of the job {id} is not there any more; send it as a new job");
        return Err(Problem::conflict(detail));
    }
    spec.retry_of = Some(id);
    let job = schedule::accept(&api, new_id, spec, Vec::new(), staging, None).await?;
    let location = format!("/jobs/{}", job.id);
    Ok((StatusCode::ACCEPTED, [(LOCATION, location)], Json(api.view(&job, &base))))
}

pub async fn remove(axum::extract::State(api): State, Named(id): Named) -> Answer<StatusCode> {
    let job = api.job(&id).await?;
    if !job.state.is_final() {
        return Err(Problem::conflict(format!("the job {id} is {}; cancel it first", job.state)));
    }
    api.jobs.delete(&id).await?;
    Ok(StatusCode::NO_CONTENT)
}
