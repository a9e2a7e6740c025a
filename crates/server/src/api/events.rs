//! A job's events: as a stream that can be resumed anywhere, or as pages.

use std::time::Duration;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::{IntoResponse, Response};
use cofferdam_protocol::event::Event;
use cofferdam_store::EVENTS_MAX;
use futures_util::stream;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::request::Invalid;
use super::{Answer, Named, Query, State, answers};
use crate::http::Metrics;

/// Says that the connection lives, to whatever lies between.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
const KEEP_ALIVE_COMMENT: &[u8] = b":\n\n";

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct EventsQuery {
    /// `false`: what there is now, as JSON.
    follow: Option<bool>,
    /// Only events with a greater number. The header `Last-Event-ID` says the same.
    after: Option<u64>,
    /// With `follow=false`: 1 to 1000.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct EventPage {
    pub events: Vec<Event>,
    /// The number of the job's last event; there are more when it is greater than that of the last one here.
    pub last_seq: u64,
}

/// One event of the stream.
#[derive(Debug, ToSchema)]
#[expect(dead_code, reason = "it describes what crate::jobs::feed writes")]
pub struct EventFrame {
    /// The event's number.
    id: String,
    /// The event's type.
    event: String,
    /// An `Event`, as JSON.
    #[schema(content_media_type = "application/json")]
    data: String,
}

/// Follows the events of a job, or gives those that there are.
#[utoipa::path(
    get,
    path = "/jobs/{id}/events",
    operation_id = "job_events",
    tag = "jobs",
    description = "Server-sent events: `id` is the number, `event` the type and `data` the event as JSON; the stream ends \
        after the event `ended`. With `follow=false` a page of events as JSON.",
    params(
        Named,
        EventsQuery,
        ("Last-Event-ID" = Option<u64>, Header, description = "Resumes behind this event.", nullable = false),
    ),
    responses(
        (status = 200, description = "The events.", content(
            (EventPage = "application/json"),
            (EventFrame = "text/event-stream"),
        )),
        answers::NotFound,
        answers::Invalid,
    ),
)]
pub async fn events(
    axum::extract::State(api): State,
    Named(id): Named,
    Query(query): Query<EventsQuery>,
    headers: HeaderMap,
) -> Answer<Response> {
    let resumed = match headers.get("last-event-id") {
        None => None,
        Some(value) => Some(value.to_str().ok().and_then(|text| text.trim().parse().ok()).ok_or_else(|| {
            Invalid::new("Last-Event-ID", "it is the number of an event; leave it out to begin with the first")
        })?),
    };
    // A browser that reconnects sends the header to the address it was given.
    let after = resumed.or(query.after).unwrap_or(0);
    if i64::try_from(after).is_err() {
        return Err(Invalid::new(
            "after",
            "there is no event with so great a number; leave it out to begin with the first",
        )
        .into());
    }
    let limit = query.limit.unwrap_or(EVENTS_MAX);
    if !(1..=EVENTS_MAX).contains(&limit) {
        return Err(Invalid::new("limit", "it is between 1 and 1000").into());
    }
    let inner = api.jobs.inner();
    if query.follow == Some(false) {
        // Read in this order, the last number is never behind the events.
        let events = inner.store.events(&id, after, limit).await?;
        let last_seq = api.job(&id).await?.last_seq;
        return Ok(Json(EventPage { events, last_seq }).into_response());
    }
    let reader = inner.feeds.follow(&inner.store, &id, after).await?;
    let reading = Reading::new(&inner.metrics);
    let stop = api.stop.clone();
    let frames = stream::unfold((reader, reading, stop), |(mut reader, reading, stop)| async move {
        let frame = tokio::select! {
            () = stop.cancelled() => return None,
            () = tokio::time::sleep(KEEP_ALIVE) => Ok(Bytes::from_static(KEEP_ALIVE_COMMENT)),
            events = reader.next() => match events {
                Ok(events) if events.is_empty() => return None,
                Ok(events) if events.len() == 1 => Ok(events[0].frame.clone()),
                Ok(events) => Ok(events.iter().flat_map(|event| event.frame.iter().copied()).collect()),
                // The connection breaks, and the client resumes behind what it has.
                Err(error) => Err(error),
            },
        };
        Some((frame, (reader, reading, stop)))
    });
    let mut response = Response::new(Body::from_stream(frames));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// Counted while it lives.
struct Reading(std::sync::Arc<Metrics>);

impl Reading {
    fn new(metrics: &std::sync::Arc<Metrics>) -> Self {
        metrics.event_readers.inc();
        Self(metrics.clone())
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.0.event_readers.dec();
    }
}
