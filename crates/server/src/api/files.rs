//! The files of a job's workspace, one at a time, while it runs and after.

use axum::Json;
use axum::body::Body;
use axum::extract::FromRequestParts;
use axum::http::header::{CONTENT_TYPE, LAST_MODIFIED};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use cofferdam_linux::files::{RelativePath, WriteOptions, percent_decode};
use cofferdam_protocol::event::{EventBody, FileAction};
use cofferdam_protocol::files::{FileKind, FileList};
use serde::{Deserialize, Serialize};
use std::time::{Duration, UNIX_EPOCH};
use utoipa::openapi::Required;
use utoipa::openapi::path::{Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::{Object, Type};
use utoipa::{IntoParams, ToSchema};

use super::log::ranged;
use super::request::{Invalid, to_path};
use super::schedule::{parse_json, upload_problem};
use super::upload::write_stream;
use super::{Answer, Api, Named, Payload, Query, State, answers, blocking, untrusted};
use crate::clock::now_ms;
use crate::http::problem::Problem;

/// Deeper trees are listed directory by directory.
const TREE_DEPTH: usize = 100;

/// The file that a request's path names, byte for byte.
#[derive(Debug)]
pub struct FilePath(RelativePath);

impl<S: Send + Sync> FromRequestParts<S> for FilePath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        // Not through the router's own decoding: names need not be UTF-8.
        let path = parts.uri.path();
        let encoded = path.split_once("/files/").map_or("", |(_, rest)| rest);
        Ok(Self(RelativePath::parse(&percent_decode(encoded)?)?))
    }
}

impl IntoParams for FilePath {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        let path = ParameterBuilder::new()
            .name("path")
            .parameter_in(ParameterIn::Path)
            .required(Required::True)
            .description(Some("Relative to the workspace; bytes that are not UTF-8 are percent-encoded."))
            .schema(Some(Object::with_type(Type::String)));
        vec![path.build()]
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ReadQuery {
    /// Of a directory: everything below it.
    recursive: Option<bool>,
}

/// Lists the workspace of a job.
#[utoipa::path(
    get,
    path = "/jobs/{id}/files",
    operation_id = "list_files",
    tag = "files",
    params(Named, ReadQuery),
    responses(
        (status = 200, description = "Its entries.", body = FileList),
        answers::NotFound,
        answers::Conflict,
        answers::TooLarge,
        answers::Invalid,
    ),
)]
pub async fn read_root(state: State, named: Named, query: Query<ReadQuery>, headers: HeaderMap) -> Answer<Response> {
    read(state, named, FilePath(RelativePath::root()), query, headers).await
}

/// Gives a file, or lists a directory.
#[utoipa::path(
    get,
    path = "/jobs/{id}/files/{*path}",
    operation_id = "read_file",
    tag = "files",
    params(
        Named,
        FilePath,
        ReadQuery,
        ("Range" = Option<String>, Header, description = "A part of a file, such as `bytes=0-99`.", nullable = false),
    ),
    responses(
        (status = 200, description = "The bytes of a file, or the entries of a directory.", content(
            (inline(answers::Raw) = "application/octet-stream"),
            (FileList = "application/json"),
        )),
        (status = 206, description = "The part of the file that was asked for.", body = inline(answers::Raw),
            content_type = "application/octet-stream",
            headers(("Content-Range" = String, description = "Which part, of how much."))),
        answers::NotFound,
        answers::Conflict,
        answers::TooLarge,
        answers::BehindTheEnd,
        answers::Invalid,
    ),
)]
pub async fn read(
    axum::extract::State(api): State,
    Named(id): Named,
    FilePath(path): FilePath,
    Query(query): Query<ReadQuery>,
    headers: HeaderMap,
) -> Answer<Response> {
    let workspace = api.workspace(&id).await?;
    let is_recursive = query.recursive == Some(true);
    let found = blocking(move || {
        let stat = workspace.stat(&path, true)?;
        if stat.kind == FileKind::Directory {
            let list = if is_recursive { workspace.tree(&path, TREE_DEPTH)? } else { workspace.list(&path)? };
            return Ok(Err(list));
        }
        let (content, stat) = workspace.read(&path, None)?;
        Ok(Ok((content.into_inner(), stat)))
    });
    let (file, stat) = match found.await? {
        Ok(file) => file,
        Err(list) => return Ok(Json(list).into_response()),
    };
    let mut response = ranged(Some(tokio::fs::File::from_std(file)), 0..stat.size_bytes, &headers).await?;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    let modified = UNIX_EPOCH + Duration::from_millis(u64::try_from(stat.modified_ms).unwrap_or_default());
    if let Ok(value) = HeaderValue::from_str(&httpdate::fmt_http_date(modified)) {
        headers.insert(LAST_MODIFIED, value);
    }
    untrusted(headers);
    Ok(response)
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct WriteQuery {
    /// Permission bits in octal, such as `755`.
    #[param(pattern = "^[0-7]{1,3}$")]
    mode: Option<String>,
    /// Makes a directory; the body is ignored.
    directory: Option<bool>,
}

/// What is now in the workspace under that name.
#[derive(Debug, Serialize, ToSchema)]
pub struct Written {
    pub path: String,
    pub size_bytes: u64,
    /// Permission bits.
    pub mode: u32,
}

/// Writes a file, or makes a directory, with the directories above it.
#[utoipa::path(
    put,
    path = "/jobs/{id}/files/{*path}",
    operation_id = "write_file",
    tag = "files",
    params(Named, FilePath, WriteQuery),
    request_body(description = "What the file is to hold.", content = inline(answers::Raw), content_type = "application/octet-stream"),
    responses(
        (status = 200, description = "What is there now.", body = Written),
        answers::NotFound,
        answers::Stalled,
        answers::Conflict,
        answers::TooLarge,
        answers::Invalid,
        answers::NoSpace,
    ),
)]
pub async fn write(
    axum::extract::State(api): State,
    Named(id): Named,
    FilePath(path): FilePath,
    Query(query): Query<WriteQuery>,
    body: Body,
) -> Answer<Json<Written>> {
    let mode = query.mode.map(|mode| {
        let parsed = u32::from_str_radix(&mode, 8).ok().filter(|mode| *mode <= 0o777);
        parsed.ok_or_else(|| Invalid::new("mode", "it is written in octal, between 0 and 777"))
    });
    let mode = mode.transpose()?;
    let workspace = api.workspace(&id).await?;
    let most = api.jobs.inner().settings.upload_max_bytes;
    let name = path.to_string();
    let stat = if query.directory == Some(true) {
        blocking(move || {
            workspace.mkdir(&path, true)?;
            Ok(workspace.stat(&path, false)?)
        })
        .await?
    } else {
        let options = WriteOptions { mode, append: false, parents: true };
        write_stream(workspace, path, options, body.into_data_stream(), &mut most.clone(), most, |_: &[u8]| ())
            .await
            .map_err(upload_problem)?
    };
    note(&api, &id, &name, FileAction::Written).await?;
    Ok(Json(Written { path: name, size_bytes: stat.size_bytes, mode: stat.mode }))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct RemoveQuery {
    /// A directory with everything in it.
    recursive: Option<bool>,
}

/// Removes a file or a directory.
#[utoipa::path(
    delete,
    path = "/jobs/{id}/files/{*path}",
    operation_id = "remove_file",
    tag = "files",
    params(Named, FilePath, RemoveQuery),
    responses(
        (status = 204, description = "It is gone."),
        answers::NotFound,
        answers::Conflict,
        answers::Invalid,
        answers::NoSpace,
    ),
)]
pub async fn remove(
    axum::extract::State(api): State,
    Named(id): Named,
    FilePath(path): FilePath,
    Query(query): Query<RemoveQuery>,
) -> Answer<StatusCode> {
    let workspace = api.workspace(&id).await?;
    let name = path.to_string();
    blocking(move || Ok(workspace.remove(&path, query.recursive == Some(true))?)).await?;
    note(&api, &id, &name, FileAction::Removed).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The body of a move.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MoveRequest {
    from: String,
    to: String,
}

/// Moves a file or a directory.
#[utoipa::path(
    post,
    path = "/jobs/{id}/move",
    operation_id = "move_file",
    tag = "files",
    params(Named),
    request_body(content = MoveRequest, example = json!({ "from": "a.txt", "to": "b.txt" })),
    responses(
        (status = 204, description = "It is there now."),
        answers::NotFound,
        answers::Stalled,
        answers::Conflict,
        answers::TooLarge,
        answers::Invalid,
        answers::NoSpace,
    ),
)]
pub async fn rename(axum::extract::State(api): State, Named(id): Named, Payload(body): Payload) -> Answer<StatusCode> {
    let request: MoveRequest = parse_json(&body)?;
    let (from, to) = (to_path("from", &request.from)?, to_path("to", &request.to)?);
    let workspace = api.workspace(&id).await?;
    let name = to.to_string();
    blocking(move || Ok(workspace.rename(&from, &to)?)).await?;
    note(&api, &id, &name, FileAction::Moved).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn note(api: &Api, id: &cofferdam_protocol::job::JobId, path: &str, action: FileAction) -> Answer<()> {
    let event = EventBody::FileChanged { path: path.to_owned(), action };
    api.jobs.inner().store.note(id, now_ms(), vec![event]).await?;
    Ok(())
}
