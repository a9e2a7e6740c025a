//! The server itself: does it answer, does it take jobs, what has it counted.

use axum::Json;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use serde_json::{Value, json};

use super::{Answer, State};
use crate::http::problem::Problem;

pub async fn health() -> Json<Value> {
    Json(json!({ "status": "ok" }))
}

/// Whether jobs are taken in: the store answers, and the server is not about to stop.
pub async fn ready(axum::extract::State(api): State) -> Answer<Json<Value>> {
    if api.jobs.is_stopping() {
        return Err(Problem::unavailable("the server is about to stop; ask the next one", 5));
    }
    api.jobs.inner().store.counts().await?;
    Ok(Json(json!({ "status": "ready" })))
}

pub async fn metrics(axum::extract::State(api): State) -> impl IntoResponse {
    let inner = api.jobs.inner();
    inner.gauge().await;
    ([(CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], inner.metrics.text())
}
