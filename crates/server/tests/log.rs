//! The log as somebody reads it. A process has one, so this runs in a process of its own, and again within that.

use std::process::Command;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::routing::post;
use cofferdam_protocol::job::JobId;
use cofferdam_server::http::{self, Guard, Metrics, trace};
use serde_json::{Value, json};
use tower::ServiceExt;

const INNER_VARIABLE: &str = "COFFERDAM_TEST_INNER";

#[test]
fn a_request_is_one_line_without_its_query() {
    let job = JobId::new(1, 2);
    if std::env::var_os(INNER_VARIABLE).is_some() {
        return request(&job);
    }
    let output = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "a_request_is_one_line_without_its_query", "--nocapture"])
        .env(INNER_VARIABLE, "1")
        .output()
        .expect("started");
    let text = String::from_utf8(output.stderr).expect("text");
    let mut line: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("not one line: {error}: {text}"));
    assert!(line["duration_ms"].take().is_u64() && line["timestamp"].take().is_string(), "{text}");
    let expected = json!({
        "timestamp": null, "level": "INFO", "message": "answered", "target": "cofferdam_server::http::trace",
        "status": 200, "duration_ms": null,
        "span": {
            "name": "request", "id": "r-1", "method": "POST", "path": format!("/jobs/{job}/stop"),
            "job": job.as_str(),
        },
    });
    assert_eq!(line, expected);
}

fn request(job: &JobId) {
    trace::set_up_log(None, "info").expect("set up");
    let router = Router::new().route("/jobs/{id}/stop", post(|| async { "" }));
    let guard = Guard::new(([127, 0, 0, 1], 8000).into(), Vec::new());
    let router = http::wrap(router, guard, Arc::new(Metrics::new()));
    let request = Request::post(format!("/jobs/{job}/stop?password=1"))
        .header(trace::REQUEST_ID, "r-1")
        .header("host", "localhost");
    let request = request.body(Body::from("secret")).expect("a request");
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(router.oneshot(request)).expect("an answer");
}
