//! What is answered when something is wrong (RFC 9457): every status that is no success is decided here. The `type`
//! of a problem is a path, `/problems/NAME`: a stable name to compare, resolved against the server by those who
//! treat it as a reference.

use std::fmt::Display;

use axum::Json;
use axum::http::header::{CONTENT_TYPE, HeaderName, RETRY_AFTER, UPGRADE};
use axum::http::{HeaderValue, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

const CONTENT_TYPE_PROBLEM: HeaderValue = HeaderValue::from_static("application/problem+json");

/// What is wrong with a request, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct Problem {
    /// A stable name, to be compared by programs.
    #[schema(example = "/problems/invalid-field")]
    pub r#type: &'static str,
    #[schema(example = "A value is not accepted")]
    pub title: &'static str,
    #[schema(example = 422)]
    pub status: u16,
    /// One sentence on this request, with the remedy.
    #[schema(example = "limits.memory: \"lots\" is not a value for the limit memory; write 512MiB")]
    pub detail: String,
    /// The part of the request it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "limits.memory")]
    pub field: Option<String>,
    #[serde(skip)]
    header: Option<Box<(HeaderName, HeaderValue)>>,
}

impl Problem {
    fn new(status: StatusCode, name: &'static str, title: &'static str, detail: String) -> Self {
        Self { r#type: name, title, status: status.as_u16(), detail, field: None, header: None }
    }

    pub fn field(mut self, field: impl Into<String>) -> Self {
        self.field = Some(field.into());
        self
    }

    /// One header besides the usual ones.
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.header = Some(Box::new((name, value)));
        self
    }

    pub fn malformed(detail: impl Into<String>) -> Self {
        let (name, title) = ("/problems/malformed-request", "The request cannot be read");
        Self::new(StatusCode::BAD_REQUEST, name, title, detail.into())
    }

    pub fn foreign_origin(detail: impl Into<String>) -> Self {
        let (name, title) = ("/problems/foreign-origin", "Other sites have no access");
        Self::new(StatusCode::FORBIDDEN, name, title, detail.into())
    }

    pub fn not_found(detail: impl Into<String>) -> Self {
        let (name, title) = ("/problems/not-found", "There is no such thing");
        Self::new(StatusCode::NOT_FOUND, name, title, detail.into())
    }

    pub fn method_not_allowed(method: &Method, path: &str) -> Self {
        let (name, title) = ("/problems/method-not-allowed", "This cannot be done here");
        let detail =
            format!("{method} is not possible on {path}; use one of the methods in the Allow header of this answer");
        Self::new(StatusCode::METHOD_NOT_ALLOWED, name, title, detail)
    }

    /// The client began a body and did not go on with it.
    pub fn stalled() -> Self {
        let (name, title) = ("/problems/request-stalled", "The request did not arrive in time");
        let detail = "the body stopped arriving before its end; send the request again";
        Self::new(StatusCode::REQUEST_TIMEOUT, name, title, detail.into())
    }

    /// The state of a thing does not allow what was asked.
    pub fn conflict(detail: impl Into<String>) -> Self {
        let (name, title) = ("/problems/conflict", "Not possible in the present state");
        Self::new(StatusCode::CONFLICT, name, title, detail.into())
    }

    pub fn too_large(detail: impl Into<String>) -> Self {
        let (name, title) = ("/problems/too-large", "The request is too large");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, name, title, detail.into())
    }

    /// Of what is read into memory.
    pub fn body_too_large() -> Self {
        Self::too_large("the body is larger than 16 MiB; send large files as multipart/form-data")
    }

    pub fn unsupported_media_type(expected: &str) -> Self {
        let (name, title) = ("/problems/unsupported-media-type", "The body is of the wrong type");
        let detail =
            format!("the body is of no type that is understood here; send the header Content-Type: {expected}");
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, name, title, detail)
    }

    pub fn wrong_host(detail: impl Into<String>) -> Self {
        let (name, title) = ("/problems/wrong-host", "This server does not go by that name");
        Self::new(StatusCode::MISDIRECTED_REQUEST, name, title, detail.into())
    }

    /// The request was understood, and a value in it is not accepted.
    pub fn invalid(field: impl Into<String>, detail: impl Into<String>) -> Self {
        let (name, title) = ("/problems/invalid-field", "A value is not accepted");
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, name, title, detail.into()).field(field)
    }

    pub fn too_many(detail: impl Into<String>, retry_after_s: u32) -> Self {
        let (name, title) = ("/problems/too-many", "There are too many already");
        Self::new(StatusCode::TOO_MANY_REQUESTS, name, title, detail.into()).header(RETRY_AFTER, retry_after_s.into())
    }

    /// The disk is full.
    pub fn no_space(detail: impl Into<String>) -> Self {
        let (name, title) = ("/problems/no-space", "There is no room left");
        Self::new(StatusCode::INSUFFICIENT_STORAGE, name, title, detail.into())
    }

    /// A part was asked for that is not there.
    pub fn range(detail: impl Into<String>) -> Self {
        let (name, title) = ("/problems/range", "The range cannot be served");
        Self::new(StatusCode::RANGE_NOT_SATISFIABLE, name, title, detail.into())
    }

    pub fn upgrade_required(detail: impl Into<String>) -> Self {
        let (name, title) = ("/problems/upgrade-required", "This is a WebSocket");
        Self::new(StatusCode::UPGRADE_REQUIRED, name, title, detail.into())
            .header(UPGRADE, HeaderValue::from_static("websocket"))
    }

    /// Not the client's fault. The reason goes to the log, not to the client.
    pub fn internal(reason: impl Display) -> Self {
        tracing::error!(%reason, "a request failed");
        let (name, title) = ("/problems/internal", "The server failed");
        let detail =
            "the server could not do its part; its log says why, beside the X-Request-Id of this answer".to_owned();
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, name, title, detail)
    }

    pub fn unavailable(detail: impl Into<String>, retry_after_s: u32) -> Self {
        let (name, title) = ("/problems/unavailable", "Not at the moment");
        Self::new(StatusCode::SERVICE_UNAVAILABLE, name, title, detail.into()).header(RETRY_AFTER, retry_after_s.into())
    }
}

impl IntoResponse for Problem {
    fn into_response(mut self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let header = self.header.take();
        let mut response = (status, Json(self)).into_response();
        response.headers_mut().insert(CONTENT_TYPE, CONTENT_TYPE_PROBLEM);
        if let Some(header) = header {
            response.headers_mut().insert(header.0, header.1);
        }
        response
    }
}

pub async fn not_found(uri: Uri) -> Problem {
    Problem::not_found(format!("there is nothing at {}; /docs says what there is", uri.path()))
}

/// The router adds the header that says what is allowed.
pub async fn method_not_allowed(method: Method, uri: Uri) -> Problem {
    Problem::method_not_allowed(&method, uri.path())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_problem_is_json_with_its_own_type_and_header() {
        let response = Problem::too_many("1000 jobs wait; send it again later", 5).into_response();
        assert_eq!(response.status(), 429);
        assert_eq!(response.headers()[CONTENT_TYPE], "application/problem+json");
        assert_eq!(response.headers()[RETRY_AFTER], "5");
        let body = axum::body::to_bytes(response.into_body(), 10_000).await.expect("a body");
        let expected = r#"{"type":"/problems/too-many","title":"There are too many already","status":429,"detail":"1000 jobs wait; send it again later"}"#;
        assert_eq!(std::str::from_utf8(&body), Ok(expected));
    }
}
