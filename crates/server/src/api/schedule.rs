//! `POST /schedule`: a job in any of its dialects, with or without files. Answers as soon as the job is durable.

use axum::body::Bytes;
use axum::extract::multipart::{Field, Multipart};
use axum::extract::{FromRequest, Request};
use axum::http::header::{CONTENT_TYPE, LOCATION};
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use axum::{Json, RequestExt};
use cofferdam_protocol::job::{JobId, JobSpec};
use cofferdam_store::{Created, Idempotency};
use sha2::{Digest, Sha256};

use super::request::{InputFile, Invalid, JobRequest};
use super::upload::{Staging, UploadError};
use super::{Answer, Api, Base, State};
use crate::http::BODY_BYTES_MAX;
use crate::http::problem::Problem;
use crate::jobs::Submission;

const KEY_MAX_BYTES: usize = 255;
const KINDS: &str = "application/json, text/plain or multipart/form-data";

pub async fn schedule(
    axum::extract::State(api): State,
    base: Base,
    headers: HeaderMap,
    request: Request,
) -> Answer<impl IntoResponse> {
    let key = idempotency_key(&headers)?;
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let id = api.jobs.new_id();
    let mut hash = Sha256::new();
    let mut staging = Staging::new(&api, &id);
    let job_request = match kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase().as_str() {
        "application/json" => {
            let body = whole(request).await?;
            hash.update(&body);
            parse_json(&body)?
        }
        "text/plain" => {
            let body = whole(request).await?;
            hash.update(&body);
            let text = String::from_utf8(body.into())
                .map_err(|_| Problem::malformed("the body is not text in UTF-8; send the goal as UTF-8"))?;
            JobRequest::goal(text)
        }
        "multipart/form-data" => {
            let multipart = Multipart::from_request(request, &()).await.map_err(Problem::from)?;
            read_parts(multipart, &mut staging, &mut hash).await?
        }
        _ => return Err(Problem::unsupported_media_type(KINDS)),
    };
    let (spec, files) = job_request.into_spec(&api.jobs.inner().settings)?;
    let idempotency = key.map(|key| Idempotency { key, fingerprint: format!("{:x}", hash.finalize()) });
    let created = accept(&api, id, spec, files, staging, idempotency).await?;
    let view = api.view(&created, &base);
    let location = format!("/jobs/{}", view.job_id);
    Ok((StatusCode::ACCEPTED, [(LOCATION, location)], Json(view)))
}

/// Takes in a job whose request has been read. The input is complete on the disk before the job is.
pub async fn accept(
    api: &Api,
    id: JobId,
    mut spec: JobSpec,
    files: Vec<InputFile>,
    mut staging: Staging,
    idempotency: Option<Idempotency>,
) -> Answer<cofferdam_store::Job> {
    if let Some(parent) = &spec.parent {
        let job = api.job(parent).await.map_err(|problem| problem.field("parent"))?;
        if !job.state.is_final() {
            let detail = format!(
                "parent: the job {parent} is {}; only the workspace of one that has ended is copied",
                job.state
            );
            return Err(Problem::conflict(detail).field("parent"));
        }
        if !api.directory(parent).workspace().is_dir() {
            let detail = format!("parent: the job {parent} has no workspace: it ended before it had one");
            return Err(Problem::conflict(detail).field("parent"));
        }
    }
    for file in files {
        staging.write(file).await?;
    }
    spec.has_input = staging.is_used();
    let keep = move |created: &Created| {
        if created.is_new {
            staging.keep();
        }
    };
    Ok(api.jobs.submit(Submission { id, spec, idempotency }, keep).await?.job)
}

fn idempotency_key(headers: &HeaderMap) -> Answer<Option<String>> {
    let Some(value) = headers.get("idempotency-key") else { return Ok(None) };
    let key = value.to_str().ok().filter(|key| (1..=KEY_MAX_BYTES).contains(&key.len()));
    let wrong = || {
        Problem::invalid(
            "Idempotency-Key",
            "Idempotency-Key: it is 1 to 255 printable ASCII characters; choose a shorter one",
        )
    };
    key.map(|key| Some(key.to_owned())).ok_or_else(wrong)
}

async fn whole(request: Request) -> Answer<Bytes> {
    // The route takes uploads of any size; what is read into memory has a bound.
    let request = request.map(|body| axum::body::Body::new(http_body_util::Limited::new(body, BODY_BYTES_MAX)));
    request.extract::<Bytes, _>().await.map_err(|_| {
        Problem::too_large(
            "the body is larger than 16 MiB, or was not sent to its end; send large files as multipart/form-data",
        )
    })
}

pub fn parse_json<T: serde::de::DeserializeOwned>(body: &[u8]) -> Answer<T> {
    let deserializer = &mut serde_json::Deserializer::from_slice(body);
    serde_path_to_error::deserialize(deserializer).map_err(|error| {
        let field = error.path().to_string();
        let inner = error.into_inner();
        match inner.classify() {
            serde_json::error::Category::Data if field == "." => {
                Problem::invalid("body", format!("the body is not what is expected: {inner}"))
            }
            serde_json::error::Category::Data => Problem::invalid(field.clone(), format!("{field}: {inner}")),
            _ => Problem::malformed(format!("the body is not JSON: {inner}; check it at that place")),
        }
    })
}

async fn read_parts(mut parts: Multipart, staging: &mut Staging, hash: &mut Sha256) -> Answer<JobRequest> {
    let mut request: Option<JobRequest> = None;
    while let Some(part) = parts.next_field().await? {
        let name = part.name().unwrap_or_default().to_owned();
        hash.update(name.as_bytes());
        match (part.file_name().map(str::to_owned), name.as_str()) {
            (_, "archive") => staging.unpack(part, hash).await.map_err(upload_problem)?,
            (Some(file_name), name) if name != "job" => {
                hash.update(file_name.as_bytes());
                let path = super::request::to_path(&format!("file {file_name}"), &file_name)?;
                staging.stream(&path, part, hash).await.map_err(upload_problem)?;
            }
            (_, "job") => {
                let body = text(part, hash).await?;
                request = Some(parse_json(body.as_bytes())?);
            }
            (_, "steps" | "task" | "prompt") => {
                let text = text(part, hash).await?;
                request = Some(request.unwrap_or_default().with_text(&name, text)?);
            }
            _ => {
                let message =
                    "there is no such part; send job, steps, task, prompt, archive, or files with a file name";
                return Err(Invalid::new(name, message).into());
            }
        }
    }
    request.ok_or_else(|| {
        Invalid::new(
            "job",
            "the part is missing; send the job as JSON in a part of this name, or task, prompt or steps",
        )
        .into()
    })
}

async fn text(mut part: Field<'_>, hash: &mut Sha256) -> Answer<String> {
    let name = part.name().unwrap_or_default().to_owned();
    let mut bytes = Vec::new();
    while let Some(chunk) = part.chunk().await? {
        if bytes.len() + chunk.len() > BODY_BYTES_MAX {
            return Err(Problem::too_large(format!("the part {name} is larger than 16 MiB; send large data as files")));
        }
        bytes.extend_from_slice(&chunk);
    }
    hash.update(&bytes);
    String::from_utf8(bytes).map_err(|_| Invalid::new(name, "it is not text in UTF-8").into())
}

pub fn upload_problem(error: UploadError) -> Problem {
    match error {
        UploadError::File(error) => error.into(),
        UploadError::Body(error) => Problem::malformed(format!("the upload was broken off: {error}; send it again")),
        UploadError::TooLarge(most) => Problem::too_large(format!(
            "the upload is larger than {}; raise --upload-max",
            cofferdam_protocol::limits::show_bytes(most)
        )),
    }
}
