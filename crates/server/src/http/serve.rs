//! Connections: accepting them, how many, how long each may keep us waiting, and how they end. What is asked and
//! answered on them is the router's.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::task_tracker::{TaskTracker, TaskTrackerToken};
use tower::Service;

use super::stall::{StallBody, StallGuard};

/// How long to wait for another try when no connection could be accepted: usually all descriptors are in use, and
/// trying at once would only take the processor from those who could give some back.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

#[derive(Debug, Clone)]
pub struct ServeSettings {
    /// Open at a time; more wait in the listener's backlog. Each takes a descriptor and some memory.
    pub connections_max: usize,
    /// From the end of one request to the end of the next one's head: bounds slow heads and unused connections.
    pub head_timeout: Duration,
    /// How long a client may take no byte of an answer, or send none of a body.
    pub stall_timeout: Duration,
    /// How long requests in flight may go on once the server is to end.
    pub shutdown_grace: Duration,
}

impl Default for ServeSettings {
    fn default() -> Self {
        Self {
            // Each is a descriptor, and sandboxes and files need theirs; a thousand may follow one job.
            connections_max: 4_096,
            // As long as browsers and proxies commonly keep connections for another request.
            head_timeout: Duration::from_secs(75),
            stall_timeout: Duration::from_secs(30),
            shutdown_grace: Duration::from_secs(10),
        }
    }
}

/// Until the token is cancelled and what was in flight has ended, or the grace is over. Handlers that stream without
/// end watch the same token: a stream that goes on uses up the grace.
pub async fn serve(listener: TcpListener, router: Router, shutdown: CancellationToken, settings: ServeSettings) {
    let places = Arc::new(Semaphore::new(settings.connections_max));
    let connections = TaskTracker::new();
    // Cancelled when this returns or is dropped, so that no connection outlives it.
    let end = CancellationToken::new();
    let _end_on_drop = end.clone().drop_guard();
    loop {
        let accepted = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            accepted = accept(&listener, &places) => accepted,
        };
        let (stream, permit) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "no connection can be accepted; raise the limit of open files if this lasts");
                tokio::time::sleep(ACCEPT_RETRY).await;
                continue;
            }
        };
        let (router, shutdown, end, settings) = (router.clone(), shutdown.clone(), end.clone(), settings.clone());
        let place = Place { _permit: permit, _token: connections.token() };
        tokio::spawn(async move {
            tokio::select! {
                () = end.cancelled() => {}
                () = connection(stream, place, router, shutdown, settings) => {}
            }
        });
    }
    drop(listener);
    connections.close();
    if tokio::time::timeout(settings.shutdown_grace, connections.wait()).await.is_err() {
        tracing::warn!(connections = connections.len(), "requests were still in flight at the end");
    }
}

/// What a connection holds as long as it is open.
struct Place {
    _permit: OwnedSemaphorePermit,
    _token: TaskTrackerToken,
}

async fn accept(listener: &TcpListener, places: &Arc<Semaphore>) -> io::Result<(TcpStream, OwnedSemaphorePermit)> {
    let permit = places.clone().acquire_owned().await.map_err(io::Error::other)?;
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return Ok((stream, permit)),
            // The client's end of a connection we had not taken yet: no reason to wait.
            Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset) => {
            }
            Err(error) => return Err(error),
        }
    }
}

async fn connection(
    stream: TcpStream,
    place: Place,
    router: Router,
    shutdown: CancellationToken,
    settings: ServeSettings,
) {
    // Answers are written whole; waiting for more would only delay them.
    let _ = stream.set_nodelay(true);
    let stall_timeout = settings.stall_timeout;
    let service = hyper::service::service_fn(move |request: hyper::Request<Incoming>| {
        let request = if request.body().is_end_stream() {
            request.map(|_| Body::empty())
        } else {
            StallBody::new(request, stall_timeout).map(Body::new)
        };
        router.clone().call(request)
    });
    let stream = TokioIo::new(StallGuard::new(stream, stall_timeout, place));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(settings.head_timeout)
        .serve_connection(stream, service)
        .with_upgrades();
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = shutdown.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}
