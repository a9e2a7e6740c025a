//! What a job changed in what it was given, as a patch.

use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::Response;
use cofferdam_artifacts::diff::write_patch;
use cofferdam_linux::files::Workspace;

use super::download::stream;
use super::{Answer, Named, State, answers, untrusted};

/// Gives what the job changed in what it was given, as a patch in git's format.
#[utoipa::path(
    get,
    path = "/jobs/{id}/diff",
    operation_id = "job_diff",
    tag = "jobs",
    params(Named),
    responses(
        (status = 200, description = "The patch.", body = String, content_type = "text/x-diff"),
        answers::NotFound,
        answers::Conflict,
    ),
)]
pub async fn diff(axum::extract::State(api): State, Named(id): Named) -> Answer<Response> {
    let workspace = api.workspace(&id).await?;
    let input = api.directory(&id).input();
    let base = if input.is_dir() { Some(Workspace::open(&input)?) } else { None };
    let body = stream(move |out| write_patch(base.as_ref(), &workspace, out, Default::default()).map(drop));
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/x-diff; charset=utf-8"));
    untrusted(response.headers_mut());
    Ok(response)
}
