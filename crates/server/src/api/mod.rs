//! The API: one file for each resource. Handlers read the request, call [`crate::jobs`], and show the answer; what a
//! refusal is in HTTP is decided in [`refuse`].

mod diff;
mod download;
mod events;
mod exec;
mod files;
mod jobs;
mod log;
mod pty;
mod refuse;
mod request;
mod sandboxes;
mod schedule;
mod steps;
mod system;
mod upload;
pub mod view;

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, FromRequest, FromRequestParts, Request};
use axum::http::HeaderMap;
use axum::http::request::Parts;
use axum::routing::{delete, get, post};
use cofferdam_linux::files::Workspace;
use cofferdam_protocol::job::{JobId, JobState};
use cofferdam_store::Job;
use http_body_util::Limited;
use hyper::body::Body as _;
use tokio_util::sync::CancellationToken;

use crate::http::BODY_BYTES_MAX;
use crate::http::problem::Problem;
use crate::jobs::Jobs;
use crate::jobs::directory::JobDirectory;
use view::JobView;

/// What handlers work with.
#[derive(Debug, Clone)]
pub struct Api {
    jobs: Jobs,
    /// The server is about to stop: streams end.
    stop: CancellationToken,
}

pub fn router(jobs: Jobs, stop: CancellationToken) -> Router {
    let files = || get(files::read).put(files::write).delete(files::remove);
    let unbounded = DefaultBodyLimit::disable;
    Router::new()
        .route("/schedule", post(schedule::schedule).layer(unbounded()))
        .route("/status", get(jobs::status_by_query))
        .route("/status/{id}", get(jobs::look))
        .route("/jobs", get(jobs::list))
        .route("/jobs/{id}", get(jobs::look).delete(jobs::remove))
        .route("/jobs/{id}/cancel", post(jobs::cancel))
        .route("/jobs/{id}/retry", post(jobs::retry))
        .route("/jobs/{id}/events", get(events::events))
        .route("/jobs/{id}/log", get(log::log))
        .route("/jobs/{id}/steps", get(steps::steps))
        .route("/jobs/{id}/files", get(files::read_root).post(upload::upload).layer(unbounded()))
        .route("/jobs/{id}/files/", get(files::read_root))
        .route("/jobs/{id}/files/{*path}", files().layer(unbounded()))
        .route("/jobs/{id}/move", post(files::rename))
        .route("/jobs/{id}/diff", get(diff::diff))
        .route("/jobs/{id}/download", get(download::download))
        .route("/sandboxes", get(sandboxes::list).post(sandboxes::create))
        .route("/sandboxes/{id}", get(jobs::look).merge(delete(sandboxes::end)))
        .route("/sandboxes/{id}/exec", post(exec::exec))
        .route("/sandboxes/{id}/pty", get(pty::pty))
        .route("/sandboxes/{id}/files", get(files::read_root).post(upload::upload).layer(unbounded()))
        .route("/sandboxes/{id}/files/", get(files::read_root))
        .route("/sandboxes/{id}/files/{*path}", files().layer(unbounded()))
        .route("/sandboxes/{id}/move", post(files::rename))
        .route("/healthz", get(system::health))
        .route("/readyz", get(system::ready))
        .route("/metrics", get(system::metrics))
        .with_state(Arc::new(Api { jobs, stop }))
}

type State = axum::extract::State<Arc<Api>>;
type Answer<T> = Result<T, Problem>;

/// The job that a path names with its second part, if it can be one at all.
#[derive(Debug)]
pub struct Named(pub JobId);

impl<S: Send + Sync> FromRequestParts<S> for Named {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        // Not through the router's own decoding, which wants the whole path to be UTF-8: names of files need not be.
        let text = parts.uri.path().split('/').nth(2).unwrap_or_default().to_owned();
        JobId::try_from(text).map(Self).map_err(|error| {
            Problem::not_found(format!("there is no such job: {error}; GET /jobs lists those that there are"))
        })
    }
}

/// What stands behind the `?` of a URL.
#[derive(Debug)]
pub struct Query<T>(pub T);

impl<S: Send + Sync, T: serde::de::DeserializeOwned> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let axum::extract::Query(query) = axum::extract::Query::from_request_parts(parts, state).await?;
        Ok(Self(query))
    }
}

/// A body that is small enough to be read whole.
#[derive(Debug)]
pub struct Payload(pub Bytes);

impl<S: Send + Sync> FromRequest<S> for Payload {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        // Who says beforehand that there is too much is told before sending it.
        if request.body().size_hint().lower() > BODY_BYTES_MAX as u64 {
            return Err(Problem::body_too_large());
        }
        // Not left to the router: some routes take uploads of any size besides.
        let request = request.map(|body| Body::new(Limited::new(body, BODY_BYTES_MAX)));
        Ok(Self(Bytes::from_request(request, state).await?))
    }
}

/// How the client calls this server; links in answers begin with it.
#[derive(Debug)]
pub struct Base(pub String);

impl<S: Send + Sync> FromRequestParts<S> for Base {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let host = parts.headers.get(axum::http::header::HOST).and_then(|host| host.to_str().ok());
        Ok(Self(format!("http://{}", host.unwrap_or("localhost"))))
    }
}

impl Api {
    fn view(&self, job: &Job, base: &Base) -> JobView {
        JobView::new(job, self.jobs.queue_position(job), &base.0, &self.jobs.inner().data)
    }

    async fn job(&self, id: &JobId) -> Answer<Job> {
        Ok(self.jobs.inner().store.job(id).await?)
    }

    fn directory(&self, id: &JobId) -> JobDirectory {
        JobDirectory::new(&self.jobs.inner().data, id)
    }

    /// The files of a job that has begun.
    async fn workspace(&self, id: &JobId) -> Answer<Workspace> {
        let job = self.job(id).await?;
        match Workspace::open(&self.directory(id).workspace()) {
            Ok(workspace) => Ok(workspace),
            Err(_) if job.state == JobState::Scheduled => {
                Err(Problem::conflict("the job has not started, it has no files yet; wait until it runs"))
            }
            Err(_) => Err(Problem::not_found(
                "the job has no files: it ended before it started; POST /jobs/ID/retry starts it anew",
            )),
        }
    }
}

/// What a browser must never take for a page of ours.
const UNTRUSTED_POLICY: &str = "sandbox; default-src 'none'; frame-ancestors 'none'";

fn untrusted(headers: &mut HeaderMap) {
    use axum::http::{HeaderValue, header};
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(UNTRUSTED_POLICY));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
}

/// Runs what blocks on a thread where that is allowed.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Answer<T> + Send + 'static) -> Answer<T> {
    tokio::task::spawn_blocking(work).await.map_err(Problem::internal)?
}
