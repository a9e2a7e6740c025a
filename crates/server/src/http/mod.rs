//! What every request passes through before a handler sees it, and every answer on its way out. Which routes there
//! are is not known here.
//!
//! [`trace`] gives a request its id and its line in the log, [`metrics`] counts it, [`guard`] refuses what does not
//! come from where it should, [`headers`] closes the answer to browsers; [`wrap`] puts them around a router.

pub mod guard;
mod headers;
pub mod metrics;
pub mod problem;
mod rejections;
pub mod serve;
mod stall;
pub mod trace;

use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use tracing::Instrument;

use metrics::RequestCount;
use trace::RequestTrace;

pub use guard::Guard;
pub use metrics::Metrics;
pub use problem::Problem;
pub use serve::{ServeSettings, serve};

/// A body that is read into memory as a whole. Room for a job of many steps with their code, and small files; others
/// are streamed and have bounds of their own.
pub const BODY_BYTES_MAX: usize = 16 << 20;

/// The router as the outside may meet it: to be called last, so that no route is left out.
pub fn wrap(router: Router, guard: Guard, metrics: Arc<Metrics>) -> Router {
    router
        .fallback(problem::not_found)
        .method_not_allowed_fallback(problem::method_not_allowed)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(from_fn_with_state(Arc::new(Outside { guard, metrics }), pass))
}

struct Outside {
    guard: Guard,
    metrics: Arc<Metrics>,
}

/// One layer and not four: each copies all that is below it for every request, which costs more than what they do.
async fn pass(State(outside): State<Arc<Outside>>, request: Request, next: Next) -> Response {
    let trace = RequestTrace::begin(&request);
    let count = RequestCount::begin(&request);
    let mut response = match outside.guard.check(request.method(), request.uri(), request.headers()) {
        Ok(()) => next.run(request).instrument(trace.span().clone()).await,
        Err(problem) => problem.into_response(),
    };
    headers::close_to_browsers(response.headers_mut());
    count.end(&outside.metrics, &response);
    trace.end(&mut response);
    response
}

#[cfg(test)]
mod tests;
