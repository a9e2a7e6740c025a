//! `POST /schedule`: a job in any of its dialects, with or without files. Answers as soon as the job is durable.

use axum::extract::multipart::{Field, Multipart};
use axum::extract::{FromRequest, Request};
use axum::http::header::{CONTENT_TYPE, LOCATION};
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use axum::{Json, RequestExt};
use cofferdam_protocol::job::{JobId, JobSpec};
use cofferdam_store::{Created, Idempotency};
use sha2::{Digest, Sha256};
use utoipa::ToSchema;

use super::request::{InputFile, Invalid, JobRequest, Options, StepRequest};
use super::upload::{Staging, UploadError};
use super::view::JobView;
use super::{Answer, Api, Base, Payload, State, answers};
use crate::http::BODY_BYTES_MAX;
use crate::http::problem::Problem;
use crate::jobs::Submission;

const KEY_MAX_BYTES: usize = 255;
const KINDS: &str = "application/json, text/plain or multipart/form-data";

/// The job as one part or several, and its input files.
#[derive(Debug, ToSchema)]
#[expect(dead_code, reason = "it describes a body that is read as a stream")]
pub struct JobForm {
    /// What would be the body as JSON.
    #[schema(nullable = false)]
    job: Option<JobRequest>,
    /// Instead of `job`: the steps alone, as JSON.
    #[schema(nullable = false, value_type = Option<Vec<StepRequest>>)]
    steps: Option<String>,
    /// Instead of `job`: a goal in plain text.
    #[schema(nullable = false)]
    task: Option<String>,
    /// The same as `task`.
    #[schema(nullable = false)]
    prompt: Option<String>,
    /// A tar whose files become input files.
    #[schema(nullable = false, value_type = Option<String>, format = Binary)]
    archive: Option<Vec<u8>>,
    /// Any other part with a file name becomes an input file of that name.
    #[schema(nullable = false, value_type = Option<String>, format = Binary)]
    file: Option<Vec<u8>>,
}

/// Schedules a job.
#[utoipa::path(
    post,
    path = "/schedule",
    operation_id = "schedule",
    tag = "jobs",
    params(
        ("Idempotency-Key" = Option<String>, Header, min_length = 1, max_length = 255, nullable = false,
            description = "The same request again with the same key is answered with the same job."),
    ),
    request_body(description = "What to do.", content(
        (JobRequest = "application/json", example = json!({
            "steps": [{ "tool": "shell", "command": "ls -la" }, { "tool": "python", "code": "print(6*7)" }],
        })),
        (String = "text/plain", example = "write a program that prints prime numbers"),
        (JobForm = "multipart/form-data", example = json!({ "task": "read the file and say what is in it" })),
    )),
    responses(
        (status = 202, description = "The job.", body = JobView, headers(("Location" = String, description = "Of the job."))),
        answers::NotFound,
        answers::Stalled,
        answers::Conflict,
        answers::TooLarge,
        answers::WrongType,
        answers::Invalid,
        answers::TooMany,
        answers::NoSpace,
    ),
)]
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
            let Payload(body) = request.extract().await?;
            hash.update(&body);
            parse_json(&body)?
        }
        "text/plain" => {
            let Payload(body) = request.extract().await?;
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
    if api.jobs.is_stopping() {
        return Err(Problem::unavailable("the server is about to stop; send the job to the next one", 5));
    }
    if let Some(parent) = &spec.parent {
        let job = api.job(parent).await.map_err(|mut problem| {
            problem.detail.insert_str(0, "parent: ");
            problem.field("parent")
        })?;
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

pub fn parse_json<T: serde::de::DeserializeOwned>(body: &[u8]) -> Answer<T> {
    let deserializer = &mut serde_json::Deserializer::from_slice(body);
    let parsed = serde_path_to_error::deserialize(&mut *deserializer);
    let not_json =
        |error: serde_json::Error| Problem::malformed(format!("the body is not JSON: {error}; check it at that place"));
    match parsed {
        Ok(value) => deserializer.end().map(|()| value).map_err(not_json),
        // Which kind of error it is says little: a list in place of a name is taken for bad syntax.
        Err(error) => match serde_json::from_slice::<serde::de::IgnoredAny>(body) {
            Ok(_) => Err(misfit(body, error)),
            Err(error) => Err(not_json(error)),
        },
    }
}

/// JSON that is not what was expected.
fn misfit(body: &[u8], error: serde_path_to_error::Error<serde_json::Error>) -> Problem {
    if error.path().iter().next().is_none() {
        // What is wrong with an option is known without its name, until the options are looked at by themselves.
        let alone = &mut serde_json::Deserializer::from_slice(body);
        if let Err(error) = serde_path_to_error::deserialize::<_, Options>(alone)
            && error.path().iter().next().is_some()
        {
            return misfit_at(&error.path().to_string(), &error.into_inner().to_string());
        }
    }
    let path = error.path().to_string();
    misfit_at(if path == "." { "" } else { &path }, &error.into_inner().to_string())
}

fn misfit_at(path: &str, message: &str) -> Problem {
    let named = |kind: &str| {
        let (name, _) = message.strip_prefix(kind)?.strip_prefix(" field `")?.split_once('`')?;
        // Of an unknown field the path has the name already.
        let is_in_path = path == name || path.ends_with(&format!(".{name}"));
        let place = if is_in_path { path.to_owned() } else { format!("{path}.{name}") };
        Some(place.trim_start_matches('.').to_owned())
    };
    let (field, reason) = if let Some(field) = named("unknown") {
        (field, "there is no such field; /docs says which there are".to_owned())
    } else if let Some(field) = named("missing") {
        (field, "it is missing; send it too".to_owned())
    } else if let Some(field) = named("duplicate") {
        (field, "it is there twice; send it once".to_owned())
    } else if path.is_empty() {
        return Problem::invalid("body", format!("the body is not what is expected: {message}; /docs says what is"));
    } else {
        (path.to_owned(), format!("{message}; correct it"))
    };
    Problem::invalid(field.clone(), format!("{field}: {reason}"))
}

async fn read_parts(mut parts: Multipart, staging: &mut Staging, hash: &mut Sha256) -> Answer<JobRequest> {
    let mut request: Option<JobRequest> = None;
    while let Some(part) = parts.next_field().await? {
        let name = part.name().unwrap_or_default().to_owned();
        // Marked off, so that one part's end is never taken for the next one's beginning.
        hash.update(format!("\0{}\0{name}\0{:?}\0", name.len(), part.file_name()));
        match (part.file_name().map(str::to_owned), name.as_str()) {
            (_, "archive") => staging.unpack(part, hash).await.map_err(upload_problem)?,
            (Some(file_name), name) if name != "job" => {
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
    String::from_utf8(bytes).map_err(|_| Invalid::new(name, "it is not text in UTF-8; send it as that").into())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_json_is_told_from_what_does_not_fit() {
        for (body, status, field, detail) in [
            ("{", 400, None, "the body is not JSON: EOF while parsing an object at line 1 column 1"),
            (r#"{"task": "x"} {}"#, 400, None, "the body is not JSON: trailing characters at line 1 column 15"),
            (r#"{"steps": [{"tool": []}]}"#, 422, Some("steps[0].tool"), "steps[0].tool: expected value at line 1"),
            (r#"{"steps": 1}"#, 422, Some("steps"), "steps: invalid type: integer `1`, expected a sequence"),
            ("[", 400, None, "the body is not JSON: EOF while parsing a list at line 1 column 1"),
            ("1", 422, Some("body"), "the body is not what is expected: invalid type: integer `1`"),
        ] {
            let problem = parse_json::<JobRequest>(body.as_bytes()).unwrap_err();
            assert_eq!((problem.status, problem.field.as_deref()), (status, field), "{body}: {}", problem.detail);
            assert!(problem.detail.starts_with(detail), "{body}: {}", problem.detail);
        }
    }
}
