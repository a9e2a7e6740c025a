//! What is counted and timed, and how it is told to Prometheus. Others hold the struct and set its fields; only
//! requests are counted here.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{MatchedPath, Request, State};
use axum::http::Method;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use cofferdam_protocol::job::JobState;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

/// Seconds. What a server does itself: from a hit in memory to a disk that struggles.
const FAST_BUCKETS: [f64; 12] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0];

/// Seconds. What jobs do and wait for: from milliseconds to the hours of a long build.
const SLOW_BUCKETS: [f64; 14] =
    [0.005, 0.02, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 1_800.0, 3_600.0, 14_400.0, 43_200.0];

/// The label of requests for which there is no route: their paths are anybody's invention.
const NO_ROUTE: &str = "none";

#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    http_requests: Family<RequestLabels, Counter>,
    http_request_seconds: Family<RouteLabels, Histogram, fn() -> Histogram>,
    jobs: Family<StateLabels, Gauge>,
    jobs_finished: Family<OutcomeLabels, Counter>,
    queue_wait: Histogram,
    sandbox_start: Histogram,
    step: Histogram,
    store_commit: Histogram,
    /// Who reads a stream of events at the moment.
    pub event_readers: Gauge,
    /// Sandboxes that wait in the pool.
    pub pool_ready: Gauge,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    method: &'static str,
    route: String,
    status: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabels {
    method: &'static str,
    route: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabels {
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    outcome: &'static str,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    pub fn new() -> Self {
        let mut metrics = Self {
            registry: Registry::with_prefix("cofferdam"),
            http_requests: Family::default(),
            http_request_seconds: Family::new_with_constructor(|| Histogram::new(FAST_BUCKETS)),
            jobs: Family::default(),
            jobs_finished: Family::default(),
            queue_wait: Histogram::new(SLOW_BUCKETS),
            sandbox_start: Histogram::new(FAST_BUCKETS),
            step: Histogram::new(SLOW_BUCKETS),
            store_commit: Histogram::new(FAST_BUCKETS),
            event_readers: Gauge::default(),
            pool_ready: Gauge::default(),
        };
        metrics.register();
        metrics
    }

    fn register(&mut self) {
        let registry = &mut self.registry;
        registry.register("http_requests", "Requests answered", self.http_requests.clone());
        registry.register("jobs", "Jobs by state", self.jobs.clone());
        registry.register("jobs_finished", "Jobs ended, by how", self.jobs_finished.clone());
        registry.register("event_readers", "Readers of event streams", self.event_readers.clone());
        registry.register("pool_ready", "Sandboxes ready in the pool", self.pool_ready.clone());
        let mut time = |name: &str, help: &str, histogram: &Histogram| {
            registry.register_with_unit(name, help, Unit::Seconds, histogram.clone());
        };
        time("queue_wait", "From a job's arrival to its start", &self.queue_wait);
        time("sandbox_start", "Until a sandbox is ready for a job", &self.sandbox_start);
        time("step", "Time of one step of a job", &self.step);
        time("store_commit", "Until a write to the store is durable", &self.store_commit);
        let (name, help) = ("http_request", "From a request to the head of its answer");
        registry.register_with_unit(name, help, Unit::Seconds, self.http_request_seconds.clone());
    }

    pub fn set_jobs(&self, state: JobState, count: u64) {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.jobs.get_or_create(&StateLabels { state: state.as_str() }).set(count);
    }

    pub fn job_finished(&self, outcome: JobState) {
        self.jobs_finished.get_or_create(&OutcomeLabels { outcome: outcome.as_str() }).inc();
    }

    pub fn queue_waited(&self, time: Duration) {
        self.queue_wait.observe(time.as_secs_f64());
    }

    pub fn sandbox_started(&self, time: Duration) {
        self.sandbox_start.observe(time.as_secs_f64());
    }

    pub fn step_ended(&self, time: Duration) {
        self.step.observe(time.as_secs_f64());
    }

    pub fn store_committed(&self, time: Duration) {
        self.store_commit.observe(time.as_secs_f64());
    }

    /// As Prometheus reads it.
    pub fn text(&self) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry)
            .expect("a String takes all that is written");
        text
    }

    fn requested(&self, labels: RequestLabels, time: Duration) {
        self.http_requests.get_or_create(&labels).inc();
        let labels = RouteLabels { method: labels.method, route: labels.route };
        self.http_request_seconds.get_or_create(&labels).observe(time.as_secs_f64());
    }
}

/// `GET /metrics`.
pub async fn get(State(metrics): State<Arc<Metrics>>) -> Response {
    let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(CONTENT_TYPE, content_type)], metrics.text()).into_response()
}

/// A request under way, to be counted when it is answered.
pub(super) struct RequestCount {
    begun: Instant,
    method: &'static str,
    route: Option<MatchedPath>,
}

impl RequestCount {
    pub(super) fn begin(request: &Request) -> Self {
        let route = request.extensions().get::<MatchedPath>().cloned();
        Self { begun: Instant::now(), method: method_name(request.method()), route }
    }

    pub(super) fn end(self, metrics: &Metrics, response: &Response) {
        let (method, status) = (self.method, response.status().as_u16());
        let route = self.route.as_ref().map_or(NO_ROUTE, MatchedPath::as_str).to_owned();
        metrics.requested(RequestLabels { method, route, status }, self.begun.elapsed());
    }
}

/// Methods can be made up; labels are kept for ever.
fn method_name(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_and_times_are_told_to_prometheus() {
        let metrics = Metrics::new();
        metrics.set_jobs(JobState::Running, 3);
        metrics.set_jobs(JobState::Running, 2);
        metrics.job_finished(JobState::Failed);
        metrics.queue_waited(Duration::from_millis(700));
        metrics.sandbox_started(Duration::from_millis(2));
        metrics.step_ended(Duration::from_secs(4_000));
        metrics.store_committed(Duration::from_millis(4));
        metrics.event_readers.inc();
        metrics.pool_ready.set(4);
        let text = metrics.text();
        let expected = [
            r#"cofferdam_jobs{state="running"} 2"#,
            r#"cofferdam_jobs_finished_total{outcome="failed"} 1"#,
            "cofferdam_event_readers 1",
            "cofferdam_pool_ready 4",
            r#"cofferdam_queue_wait_seconds_bucket{le="0.5"} 0"#,
            r#"cofferdam_queue_wait_seconds_bucket{le="1.0"} 1"#,
            r#"cofferdam_sandbox_start_seconds_bucket{le="0.0025"} 1"#,
            r#"cofferdam_step_seconds_bucket{le="14400.0"} 1"#,
            "cofferdam_step_seconds_sum 4000.0",
            r#"cofferdam_store_commit_seconds_bucket{le="0.005"} 1"#,
        ];
        for line in expected {
            assert!(text.lines().any(|found| found == line), "{line} is missing from\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
    }
}
