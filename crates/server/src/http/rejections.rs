//! What axum's extractors refuse, as problems: they know what is wrong with a request but not what to say about it.

use std::error::Error;

use axum::extract::multipart::{MultipartError, MultipartRejection};
use axum::extract::rejection::{BytesRejection, JsonRejection, PathRejection, QueryRejection};
use axum::http::StatusCode;

use super::stall::BodyStalled;
use super::{BODY_BYTES_MAX, Problem};

impl From<JsonRejection> for Problem {
    fn from(rejection: JsonRejection) -> Self {
        match rejection {
            JsonRejection::JsonSyntaxError(error) => {
                let reason = error.source().map(ToString::to_string).unwrap_or_default();
                let (_, reason) = split_field(&reason);
                let detail = format!("The body is not valid JSON: {reason}.");
                Self::malformed(detail, "Correct the JSON at that line and column.")
            }
            JsonRejection::JsonDataError(error) => {
                let reason = error.source().map(ToString::to_string).unwrap_or_default();
                misfit("The JSON", &reason, "Correct that value; /docs says what each may be.")
            }
            JsonRejection::MissingJsonContentType(_) => Self::unsupported_media_type("application/json"),
            JsonRejection::BytesRejection(rejection) => rejection.into(),
            other => Self::malformed(sentence(&other.body_text()), "Send a JSON object."),
        }
    }
}

impl From<BytesRejection> for Problem {
    fn from(rejection: BytesRejection) -> Self {
        unread(rejection.status(), &rejection)
    }
}

impl From<MultipartRejection> for Problem {
    fn from(_: MultipartRejection) -> Self {
        // Without a boundary it is not what its type says either.
        Self::unsupported_media_type("multipart/form-data; boundary=…")
    }
}

impl From<MultipartError> for Problem {
    fn from(error: MultipartError) -> Self {
        unread(error.status(), &error)
    }
}

impl From<QueryRejection> for Problem {
    fn from(rejection: QueryRejection) -> Self {
        let reason = rejection.source().map(ToString::to_string).unwrap_or_default();
        misfit("The query", &reason, "Correct what follows the ? in the URL.")
    }
}

impl From<PathRejection> for Problem {
    fn from(rejection: PathRejection) -> Self {
        if rejection.status().is_server_error() {
            return Self::internal(rejection);
        }
        Self::not_found(sentence(&innermost(&rejection)), "Correct the path of the URL.")
    }
}

fn misfit(what: &str, reason: &str, fix: &str) -> Problem {
    let (field, reason) = split_field(reason);
    let mut problem = Problem::invalid(field, format!("{what} does not fit: {reason}."), fix);
    // About the whole, then.
    problem.field.take_if(|field| field.is_empty());
    problem
}

/// A body that did not arrive as a whole.
fn unread(status: StatusCode, error: &(dyn Error + 'static)) -> Problem {
    if status == StatusCode::PAYLOAD_TOO_LARGE {
        return Problem::too_large(BODY_BYTES_MAX as u64, "Send less, or in parts.");
    }
    if chain(error).any(|error| error.is::<BodyStalled>()) {
        return Problem::stalled();
    }
    let detail = format!("The body could not be read: {}.", innermost(error));
    Problem::malformed(detail, "Send the request again, and check that its body is whole.")
}

fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error| (*error).source())
}

fn innermost(error: &(dyn Error + 'static)) -> String {
    chain(error).last().map(ToString::to_string).unwrap_or_default()
}

fn sentence(text: &str) -> String {
    format!("{}.", text.trim_end_matches('.'))
}

/// Reasons begin with the path of the value they are about, unless that is the whole: `steps[0].timeout: invalid …`.
fn split_field(reason: &str) -> (String, &str) {
    let (path, reason) = match reason.split_once(": ") {
        Some((path, rest)) if !path.contains(' ') => (path, rest),
        _ => ("", reason),
    };
    let missing = reason.strip_prefix("missing field `").and_then(|rest| rest.split_once('`'));
    let field = match (path, missing) {
        (path, None) => path.to_owned(),
        ("", Some((name, _))) => name.to_owned(),
        (path, Some((name, _))) => format!("{path}.{name}"),
    };
    (field, reason)
}
