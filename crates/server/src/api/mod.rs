//! The API: one file for each resource. Handlers read the request, call [`crate::jobs`], and show the answer; what a
//! refusal is in HTTP is decided in [`refuse`].

mod answers;
mod diff;
mod docs;
mod download;
mod events;
mod exec;
mod files;
mod jobs;
mod log;
mod openapi;
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
use axum::routing::get;
use cofferdam_linux::files::Workspace;
use cofferdam_protocol::job::{JobId, JobState};
use cofferdam_store::Job;
use http_body_util::Limited;
use hyper::body::Body as _;
use tokio_util::sync::CancellationToken;
use utoipa::openapi::Required;
use utoipa::openapi::path::{Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouterExt};
use utoipa_axum::routes;

use crate::http::BODY_BYTES_MAX;
use crate::http::problem::Problem;
use crate::jobs::Jobs;
use crate::jobs::directory::JobDirectory;
use openapi::at;
use view::JobView;

/// What handlers work with.
#[derive(Debug, Clone)]
pub struct Api {
    jobs: Jobs,
    /// The server is about to stop: streams end.
    stop: CancellationToken,
    /// What `GET /openapi.json` answers.
    document: Bytes,
}

pub fn router(jobs: Jobs, stop: CancellationToken) -> Router {
    let (router, document) = routes().split_for_parts();
    let document = Bytes::from(openapi::finish(document).to_string());
    // For people who type an address, and not part of what is documented.
    let router = router
        .route("/", get(docs::root))
        .route("/docs/docs.css", get(docs::style))
        .route("/docs/docs.js", get(docs::script))
        .route("/jobs/{id}/files/", get(files::read_root))
        .route("/sandboxes/{id}/files/", get(files::read_root));
    router.with_state(Arc::new(Api { jobs, stop, document }))
}

/// Every route with its documentation: there is no other way to add one here.
fn routes() -> OpenApiRouter<Arc<Api>> {
    let unbounded = DefaultBodyLimit::disable;
    OpenApiRouter::with_openapi(openapi::empty())
        .routes(routes!(schedule::schedule).layer(unbounded()))
        .routes(routes!(jobs::status_by_query))
        .routes(at("/status", routes!(jobs::look)))
        .routes(routes!(jobs::list))
        .routes(routes!(jobs::look, jobs::remove))
        .routes(routes!(jobs::cancel))
        .routes(routes!(jobs::retry))
        .routes(routes!(events::events))
        .routes(routes!(log::log))
        .routes(routes!(steps::steps))
        .routes(routes!(files::read_root, upload::upload).layer(unbounded()))
        .routes(routes!(files::read, files::write, files::remove).layer(unbounded()))
        .routes(routes!(files::rename))
        .routes(routes!(diff::diff))
        .routes(routes!(download::download))
        .routes(routes!(sandboxes::list, sandboxes::create))
        .routes(at("/sandboxes", routes!(jobs::look)))
        .routes(routes!(sandboxes::end))
        .routes(routes!(exec::exec))
        .routes(routes!(pty::pty))
        .routes(at("/sandboxes", routes!(files::read_root, upload::upload).layer(unbounded())))
        .routes(at("/sandboxes", routes!(files::read, files::write, files::remove).layer(unbounded())))
        .routes(at("/sandboxes", routes!(files::rename)))
        .routes(routes!(system::health))
        .routes(routes!(system::ready))
        .routes(routes!(system::metrics))
        .routes(routes!(docs::document))
        .routes(routes!(docs::page))
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

impl utoipa::IntoParams for Named {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        let text = ObjectBuilder::new().schema_type(Type::String).pattern(Some("^[0-9a-hjkmnp-tv-z]{26}$"));
        let id = ParameterBuilder::new()
            .name("id")
            .parameter_in(ParameterIn::Path)
            .required(Required::True)
            .description(Some("The job's `job_id`."))
            .schema(Some(text));
        vec![id.build()]
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
