//! What axum's extractors refuse, as problems: they know what is wrong with a request but not what to say about it.

use std::error::Error;

use axum::extract::multipart::{MultipartError, MultipartRejection};
use axum::extract::rejection::{BytesRejection, PathRejection, QueryRejection};
use axum::http::StatusCode;

use super::Problem;
use super::stall::BodyStalled;

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
        misfit(&reason)
    }
}

impl From<PathRejection> for Problem {
    fn from(rejection: PathRejection) -> Self {
        if rejection.status().is_server_error() {
            return Self::internal(rejection);
        }
        Self::not_found(format!("{}; correct the path of the URL", innermost(&rejection)))
    }
}

fn misfit(reason: &str) -> Problem {
    let (field, reason) = split_field(reason);
    let mut problem =
        Problem::invalid(field, format!("the query does not fit: {reason}; correct what follows the ? in the URL"));
    // About the whole, then.
    problem.field.take_if(|field| field.is_empty());
    problem
}

/// A body that did not arrive as a whole.
fn unread(status: StatusCode, error: &(dyn Error + 'static)) -> Problem {
    if status == StatusCode::PAYLOAD_TOO_LARGE {
        return Problem::body_too_large();
    }
    if chain(error).any(|error| error.is::<BodyStalled>()) {
        return Problem::stalled();
    }
    let reason = innermost(error);
    Problem::malformed(format!(
        "the body could not be read: {reason}; send the request again, and check that its body is whole"
    ))
}

fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error| (*error).source())
}

fn innermost(error: &(dyn Error + 'static)) -> String {
    chain(error).last().map(ToString::to_string).unwrap_or_default()
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
