//! What every request passes through before a handler sees it, and every answer on its way out. Which routes there
//! are is not known here.
//!
//! From the outside in: [`trace`] gives the request its id and its line in the log, [`metrics`] counts it,
//! [`headers`] closes the answer to browsers, [`guard`] refuses what does not come from where it should.

pub mod guard;
pub mod headers;
pub mod metrics;
pub mod problem;
mod rejections;
pub mod serve;
mod stall;
pub mod trace;

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::{from_fn, from_fn_with_state};

pub use guard::Guard;
pub use metrics::Metrics;
pub use problem::Problem;
pub use serve::{ServeSettings, serve};

/// A body that is read into memory as a whole. Room for a job of many steps with their code; files are streamed and
/// have bounds of their own.
pub const BODY_BYTES_MAX: usize = 8 << 20;

/// The router as the outside may meet it: add it last, so that nothing is outside of it.
pub fn wrap(router: Router, guard: Arc<Guard>, metrics: Arc<Metrics>) -> Router {
    router
        .fallback(problem::not_found)
        .method_not_allowed_fallback(problem::method_not_allowed)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(from_fn_with_state(guard, guard::layer))
        .layer(from_fn(headers::layer))
        .layer(from_fn_with_state(metrics, metrics::layer))
        .layer(from_fn(trace::layer))
}

#[cfg(test)]
mod tests;
