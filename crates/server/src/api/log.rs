//! A job's log as text: all of it, a range, one step's part, or as it grows.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::http::header::{ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, RANGE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::Response;
use cofferdam_protocol::event::EventBody;
use cofferdam_protocol::job::JobId;
use cofferdam_store::{EVENTS_MAX, Store, StoreError};
use futures_util::stream;
use serde::Deserialize;
use tokio::io::{AsyncReadExt, AsyncSeekExt};
use tokio_util::io::ReaderStream;
use utoipa::IntoParams;

use super::request::Invalid;
use super::{Answer, Api, Named, Query, State, answers, untrusted};
use crate::http::problem::Problem;

/// One read of the disk.
pub const READ_BYTES: usize = 128 * 1024;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct LogQuery {
    /// Only the output of this step, counted from 1.
    #[param(minimum = 1)]
    step: Option<u32>,
    /// Stay until the job has ended.
    follow: Option<bool>,
}

/// Gives the output of a job as text.
#[utoipa::path(
    get,
    path = "/jobs/{id}/log",
    operation_id = "job_log",
    tag = "jobs",
    params(
        Named,
        LogQuery,
        ("Range" = Option<String>, Header, description = "A part of it, such as `bytes=0-99`.", nullable = false),
    ),
    responses(
        (status = 200, description = "All of it.", body = String, content_type = "text/plain"),
        (status = 206, description = "The part that was asked for.", body = String, content_type = "text/plain",
            headers(("Content-Range" = String, description = "Which part, of how much."))),
        answers::NotFound,
        answers::BehindTheEnd,
        answers::Invalid,
    ),
)]
pub async fn log(
    axum::extract::State(api): State,
    Named(id): Named,
    Query(query): Query<LogQuery>,
    headers: HeaderMap,
) -> Answer<Response> {
    let job = api.job(&id).await?;
    let part = match query.step {
        None => None,
        Some(step) if step == 0 || step > job.steps_total => {
            let message =
                format!("there is no step {step}, the job has {} of them; they are counted from 1", job.steps_total);
            return Err(Invalid::new("step", message).into());
        }
        Some(step) => Some(StepPart::new(step)),
    };
    if query.follow == Some(true) {
        return follow(&api, &id, part).await;
    }
    let part = match part {
        None => None,
        Some(mut part) => {
            part.update(&*api.jobs.inner().store, &id).await?;
            Some(part.range)
        }
    };
    let path = api.directory(&id).log();
    let file = match tokio::fs::File::open(path).await {
        Ok(file) => Some(file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error.into()),
    };
    let length = match &file {
        Some(file) => file.metadata().await?.len(),
        None => 0,
    };
    let part = part.map_or(0..length, |part| part.start.min(length)..part.end.min(length));
    let mut response = ranged(file, part, &headers).await?;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    untrusted(response.headers_mut());
    Ok(response)
}

/// A file, or the part of it, or of that part what the client asks for.
pub async fn ranged(file: Option<tokio::fs::File>, part: Range<u64>, headers: &HeaderMap) -> Answer<Response> {
    let length = part.end - part.start;
    let wanted = headers.get(RANGE).and_then(|value| value.to_str().ok()).and_then(|text| parse_range(text, length));
    let (status, wanted) = match wanted {
        None => (StatusCode::OK, 0..length),
        Some(Some(wanted)) => (StatusCode::PARTIAL_CONTENT, wanted),
        Some(None) => {
            let value = HeaderValue::from_str(&format!("bytes */{length}")).expect("digits are a header value");
            let detail = format!("the range lies behind the end: there are {length} bytes; ask for fewer");
            return Err(Problem::range(detail).header(CONTENT_RANGE, value));
        }
    };
    let body = match file {
        Some(mut file) if wanted.end > wanted.start => {
            file.seek(io::SeekFrom::Start(part.start + wanted.start)).await?;
            Body::from_stream(ReaderStream::with_capacity(file.take(wanted.end - wanted.start), READ_BYTES))
        }
        _ => Body::empty(),
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(CONTENT_LENGTH, (wanted.end - wanted.start).into());
    if status == StatusCode::PARTIAL_CONTENT {
        let value = format!("bytes {}-{}/{length}", wanted.start, wanted.end.saturating_sub(1));
        headers.insert(CONTENT_RANGE, HeaderValue::from_str(&value).expect("digits are a header value"));
    }
    Ok(response)
}

/// `bytes=a-b`, `bytes=a-`, `bytes=-n`. `None`: not one we serve, so all is sent; `Some(None)`: behind the end.
fn parse_range(text: &str, length: u64) -> Option<Option<Range<u64>>> {
    let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
    let number = |text: &str| text.parse::<u64>().ok();
    let range = match (first, last) {
        ("", suffix) => length.saturating_sub(number(suffix)?)..length,
        (first, "") => number(first)?..length,
        (first, last) => number(first)?..number(last)?.saturating_add(1).min(length),
    };
    Some((range.start < range.end).then_some(range))
}

/// Where the output of a step is in the log, as far as events have told.
struct StepPart {
    step: u32,
    range: Range<u64>,
    has_ended: bool,
    /// The last event looked at.
    seq: u64,
}

impl StepPart {
    fn new(step: u32) -> Self {
        Self { step, range: 0..0, has_ended: false, seq: 0 }
    }

    async fn update(&mut self, store: &dyn Store, id: &JobId) -> Result<(), StoreError> {
        loop {
            let events = store.events(id, self.seq, EVENTS_MAX).await?;
            let Some(last) = events.last() else { return Ok(()) };
            self.seq = last.seq;
            for event in events.iter().filter(|event| event.body.step() == Some(self.step)) {
                match event.body {
                    // Of several attempts, the last one's.
                    EventBody::StepStarted { log_from, .. } => self.range = log_from..log_from,
                    EventBody::Output { log_to, .. } => self.range.end = log_to,
                    EventBody::StepFinished { log_to, .. } => {
                        self.range.end = log_to;
                        self.has_ended = true;
                    }
                    _ => {}
                }
            }
        }
    }
}

/// The log as it grows, or one step's part of it, until there is no more to come.
async fn follow(api: &Api, id: &JobId, part: Option<StepPart>) -> Answer<Response> {
    let inner = api.jobs.inner();
    let job = api.job(id).await?;
    // Woken by every event from now on; what is in the file is read first.
    let reader = inner.feeds.follow(&inner.store, id, job.last_seq).await?;
    let (store, path) = (inner.store.clone(), api.directory(id).log());
    let state = Following { store, id: id.clone(), path, at: 0, reader, part, has_ended: false };
    let stop = api.stop.clone();
    let chunks = stream::unfold((state, stop), |(mut state, stop)| async move {
        loop {
            match state.read().await {
                Ok(bytes) if !bytes.is_empty() => return Some((Ok(bytes), (state, stop))),
                Ok(_) if state.has_ended => return None,
                Ok(_) => {}
                Err(error) => return Some((Err(error), (state, stop))),
            }
            tokio::select! {
                () = stop.cancelled() => return None,
                events = state.reader.next() => match events {
                    Ok(events) => state.has_ended = events.is_empty(),
                    Err(error) => return Some((Err(io::Error::other(error)), (state, stop))),
                },
            }
        }
    });
    let mut response = Response::new(Body::from_stream(chunks));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    untrusted(response.headers_mut());
    Ok(response)
}

struct Following {
    store: Arc<dyn Store>,
    id: JobId,
    path: std::path::PathBuf,
    at: u64,
    reader: crate::jobs::feed::Reader,
    part: Option<StepPart>,
    has_ended: bool,
}

impl Following {
    async fn read(&mut self) -> io::Result<Bytes> {
        let mut room = READ_BYTES as u64;
        if let Some(part) = &mut self.part {
            part.update(&*self.store, &self.id).await.map_err(io::Error::other)?;
            self.at = self.at.max(part.range.start);
            self.has_ended |= part.has_ended;
            room = room.min(part.range.end - self.at);
        }
        let mut file = match tokio::fs::File::open(&self.path).await {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Bytes::new()),
            file => file?,
        };
        file.seek(io::SeekFrom::Start(self.at)).await?;
        let mut bytes = Vec::with_capacity(READ_BYTES);
        file.take(room).read_to_end(&mut bytes).await?;
        self.at += bytes.len() as u64;
        Ok(bytes.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_as_browsers_write_them() {
        for (text, expected) in [
            ("bytes=0-9", Some(Some(0..10))),
            ("bytes=90-200", Some(Some(90..100))),
            ("bytes=50-", Some(Some(50..100))),
            ("bytes=-10", Some(Some(90..100))),
            ("bytes=-1000", Some(Some(0..100))),
            ("bytes=100-", Some(None)),
            ("bytes=9-3", Some(None)),
            ("bytes=0-1,5-6", None),
            ("lines=1-2", None),
            ("bytes=x-", None),
        ] {
            assert_eq!(parse_range(text, 100), expected, "{text}");
        }
    }
}
