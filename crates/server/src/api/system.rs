//! The server itself: does it answer, does it take jobs, what has it counted.

use axum::Json;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use serde_json::{Value, json};

use super::{Answer, State};
use crate::http::problem::Problem;

/// Says that the server answers.
#[utoipa::path(
    get,
    path = "/healthz",
    operation_id = "health",
    tag = "server",
    responses((status = 200, description = "It does.", body = Object)),
)]
pub async fn health() -> Json<Value> {
    Json(json!({ "status": "ok" }))
}

/// Says whether jobs are taken in: the store answers, and the server is not about to stop.
#[utoipa::path(
    get,
    path = "/readyz",
    operation_id = "ready",
    tag = "server",
    responses((status = 200, description = "They are.", body = Object)),
)]
pub async fn ready(axum::extract::State(api): State) -> Answer<Json<Value>> {
    if api.jobs.is_stopping() {
        return Err(Problem::unavailable("the server is about to stop; ask the next one", 5));
    }
    api.jobs.inner().store.counts().await?;
    Ok(Json(json!({ "status": "ready" })))
}

/// Gives what the server has counted, for Prometheus.
#[utoipa::path(
    get,
    path = "/metrics",
    operation_id = "metrics",
    tag = "server",
    responses((status = 200, description = "The metrics.", body = String, content_type = "application/openmetrics-text")),
)]
pub async fn metrics(axum::extract::State(api): State) -> impl IntoResponse {
    let inner = api.jobs.inner();
    inner.gauge().await;
    ([(CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], inner.metrics.text())
}
