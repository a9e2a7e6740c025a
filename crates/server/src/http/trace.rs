//! One line in the log for a request, under an id that client and log share; and how the log is written. Queries and
//! bodies are never in it: they can hold what people want to keep to themselves.

use std::io::IsTerminal;
use std::str::FromStr;
use std::time::Instant;

use axum::extract::{MatchedPath, Request};
use axum::http::{HeaderName, HeaderValue, Method};
use axum::response::Response;
use cofferdam_protocol::job::JobId;
use tracing::Span;
use tracing_subscriber::EnvFilter;

pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Long enough for the ids that proxies give, short enough for a line.
const REQUEST_ID_LENGTH_MAX: usize = 64;

/// A request under way.
pub(super) struct RequestTrace {
    begun: Instant,
    id: HeaderValue,
    span: Span,
    is_reading: bool,
}

impl RequestTrace {
    pub(super) fn begin(request: &Request) -> Self {
        let id = request_id(request);
        let span = tracing::info_span!(
            "request",
            id = id.to_str().unwrap_or_default(),
            method = request.method().as_str(),
            path = request.uri().path(),
            job = job_in_path(request).as_ref().map(JobId::as_str),
        );
        let is_reading = matches!(*request.method(), Method::GET | Method::HEAD);
        Self { begun: Instant::now(), id, span, is_reading }
    }

    /// Everything that is logged within it has the request's id.
    pub(super) fn span(&self) -> &Span {
        &self.span
    }

    pub(super) fn end(self, response: &mut Response) {
        let status = response.status().as_u16();
        let duration_ms = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.span.in_scope(|| {
            if response.status().is_server_error() {
                tracing::warn!(status, duration_ms, "failed");
            } else if self.is_reading {
                // Whoever waits for a job asks many times a second.
                tracing::debug!(status, duration_ms, "answered");
            } else {
                tracing::info!(status, duration_ms, "answered");
            }
        });
        response.headers_mut().insert(REQUEST_ID, self.id);
    }
}

/// For a handler that makes a job or learns of it otherwise than from the path.
pub fn record_job(id: &JobId) {
    Span::current().record("job", id.as_str());
}

/// The client's own id if it is harmless in a log, or a random one.
fn request_id(request: &Request) -> HeaderValue {
    let is_sane = |value: &&HeaderValue| {
        let bytes = value.as_bytes();
        (1..=REQUEST_ID_LENGTH_MAX).contains(&bytes.len())
            && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
    };
    if let Some(value) = request.headers().get(REQUEST_ID).filter(is_sane) {
        return value.clone();
    }
    // Without randomness ids are useless and requests still work.
    let random = getrandom::u64().unwrap_or_default();
    HeaderValue::try_from(format!("{random:016x}")).expect("digits and letters")
}

/// The part of the path that is a job's id, where the route has a place for one.
fn job_in_path(request: &Request) -> Option<JobId> {
    let route = request.extensions().get::<MatchedPath>()?;
    let parts = route.as_str().split('/').zip(request.uri().path().split('/'));
    parts.filter(|(place, _)| place.starts_with('{')).find_map(|(_, part)| JobId::try_from(part.to_owned()).ok())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    Text,
    Json,
}

impl FromStr for LogFormat {
    type Err = LogError;
    fn from_str(text: &str) -> Result<Self, LogError> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err(LogError::Format(text.to_owned())),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error("{0:?} is not a format of the log: use text or json")]
    Format(String),
    #[error("{0:?} is not a level or filter of the log ({1}): use error, warn, info, debug or trace")]
    Filter(String, tracing_subscriber::filter::ParseError),
    #[error("the log is set up already")]
    Twice,
}

/// The log goes to standard error: lines for people if that is a terminal, and JSON otherwise, unless `format` says
/// which. `filter` is a level or a filter.
pub fn set_up_log(format: Option<LogFormat>, filter: &str) -> Result<(), LogError> {
    let filter = parse_filter(filter)?;
    let is_terminal = std::io::stderr().is_terminal();
    let format = format.unwrap_or(if is_terminal { LogFormat::Text } else { LogFormat::Json });
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(is_terminal);
    match format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().flatten_event(true).with_span_list(false).try_init(),
    }
    .map_err(|_| LogError::Twice)
}

fn parse_filter(text: &str) -> Result<EnvFilter, LogError> {
    EnvFilter::try_new(text).map_err(|error| LogError::Filter(text.to_owned(), error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_and_filters_are_checked() {
        assert_eq!("text".parse::<LogFormat>().ok(), Some(LogFormat::Text));
        let error = "yaml".parse::<LogFormat>().map_err(|error| error.to_string());
        assert_eq!(error, Err("\"yaml\" is not a format of the log: use text or json".to_owned()));
        assert!(matches!(parse_filter("x=loud"), Err(LogError::Filter(..))));
    }
}
