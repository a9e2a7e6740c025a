//! The guest's interface: HTTP/2 on any byte stream. Routes a request to [`crate::exec`], [`crate::files`] or
//! [`crate::usage`] and turns their answers into responses. Every body and every number of streams is bounded; the
//! other side is the launcher, but what it passes on may come from anybody.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use cofferdam_linux::files::Workspace;
use cofferdam_protocol::Limits;
use cofferdam_protocol::request::{self, ParameterError};
use http_body_util::{BodyExt, Limited};
use hyper::body::{Frame, Incoming};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::unix::AsyncFd;

use crate::cgroup::Cgroup;
use crate::exec::refusals::Refusals;
use crate::exec::{Execs, Follow};
use crate::{files, usage};

/// A JSON request: an exec with the largest arguments, escaped.
const JSON_MAX_BYTES: usize = 4 * 1024 * 1024;
/// Streams at once on one connection: commands followed, files transferred and watched.
const STREAMS_MAX: u32 = 256;
/// Frames and windows sized for throughput of output; a connection buffers at most one window.
const FRAME_BYTES: u32 = 256 * 1024;
const STREAM_WINDOW_BYTES: u32 = 1024 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 4 * 1024 * 1024;

/// What an answer consists of. Bodies live on the one thread there is, so they need not be `Send`.
pub enum Body {
    Bytes(Option<Bytes>),
    Output(Follow),
    Chunks(tokio::sync::mpsc::Receiver<io::Result<Bytes>>),
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let chunk = match self.get_mut() {
            Self::Bytes(bytes) => Poll::Ready(bytes.take().map(Ok)),
            Self::Output(follow) => follow.poll_chunk(context),
            Self::Chunks(receiver) => receiver.poll_recv(context),
        };
        chunk.map(|chunk| chunk.map(|chunk| chunk.map(Frame::data)))
    }
}

pub type Answer = Result<Response<Body>, Problem>;

/// Why a request was not done, with the status that says so.
#[derive(Debug)]
pub struct Problem {
    pub status: StatusCode,
    pub message: String,
}

impl Problem {
    pub fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }
}

impl From<ParameterError> for Problem {
    fn from(error: ParameterError) -> Self {
        let status = match error {
            ParameterError::Range => StatusCode::RANGE_NOT_SATISFIABLE,
            _ => StatusCode::BAD_REQUEST,
        };
        Self::new(status, error.to_string())
    }
}

/// What the launch hands over.
pub struct Inside {
    pub limits: Limits,
    pub temporary_workspace: bool,
    pub environment: BTreeMap<String, String>,
    pub workspace: OwnedFd,
    /// The sandbox's own /proc.
    pub processes: OwnedFd,
    pub refusals: Option<OwnedFd>,
    pub spool_directory: Rc<OwnedFd>,
    pub spawner: AsyncFd<OwnedFd>,
    pub cgroup: Rc<Cgroup>,
}

pub struct Guest {
    pub execs: Execs,
    pub workspace: Workspace,
    pub lease: Lease,
    cgroup: Rc<Cgroup>,
    processes: OwnedFd,
}

impl Guest {
    pub fn new(mut inside: Inside) -> io::Result<Rc<Self>> {
        let workspace = Workspace::from_fd(inside.workspace.try_clone()?);
        let processes = inside.processes.try_clone()?;
        let refusals = Refusals::watch(inside.refusals.take())?;
        let cgroup = inside.cgroup.clone();
        let execs = Execs::new(inside, refusals);
        Ok(Rc::new(Self { execs, workspace, lease: Lease::default(), cgroup, processes }))
    }

    /// Serves one byte stream until it closes.
    pub fn serve_connection(self: Rc<Self>, stream: OwnedFd) {
        let stream = std::os::unix::net::UnixStream::from(stream);
        if stream.set_nonblocking(true).is_err() {
            return;
        }
        let Ok(stream) = tokio::net::UnixStream::from_std(stream) else { return };
        let service = hyper::service::service_fn(move |request| {
            let guest = self.clone();
            async move { Ok::<_, Infallible>(guest.respond(request).await) }
        });
        let connection = hyper::server::conn::http2::Builder::new(LocalExecutor)
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS_MAX)
            .max_frame_size(FRAME_BYTES)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_send_buf_size(FRAME_BYTES as usize * 2)
            .max_header_list_size(64 * 1024)
            .serve_connection(TokioIo::new(stream), service);
        tokio::task::spawn_local(async move {
            // A connection that breaks concerns only whoever was at its other end.
            let _ = connection.await;
        });
    }

    pub fn sandbox_died(&self) {
        let reason = if self.cgroup.memory_kills() > 0 {
            "the sandbox ran out of memory as a whole; raise --limit memory"
        } else {
            "one of the sandbox's own processes ended"
        };
        self.execs.all_lost(reason);
    }

    async fn respond(&self, request: Request<Incoming>) -> Response<Body> {
        self.route(request).await.unwrap_or_else(|problem| {
            let mut response = Response::new(bytes_body(format!("{}\n", problem.message)));
            *response.status_mut() = problem.status;
            response
        })
    }

    async fn route(&self, request: Request<Incoming>) -> Answer {
        let path = request.uri().path().trim_start_matches('/').to_owned();
        let (first, rest) = path.split_once('/').unwrap_or((path.as_str(), ""));
        match first {
            "exec" => self.execs.route(rest, request).await,
            "files" | "stat" | "list" | "tree" | "mkdir" | "move" | "tar" | "watch" => {
                files::route(&self.workspace, first, rest, request).await
            }
            "usage" if request.method() == Method::GET => {
                json(&usage::measure(&self.processes, &self.cgroup, self.execs.memory_peak()))
            }
            "lease" if request.method() == Method::PUT => {
                let ttl_ms: u64 = read_json(request).await?;
                self.lease.renew(ttl_ms);
                json(&())
            }
            "sandbox" if request.method() == Method::DELETE => {
                self.lease.end();
                json(&())
            }
            _ => Err(Problem::new(StatusCode::NOT_FOUND, format!("the guest has no {} /{path}", request.method()))),
        }
    }
}

/// How long the sandbox lives without its launcher. Until the first renewal it is tied to it.
#[derive(Default)]
pub struct Lease {
    until: RefCell<Option<tokio::time::Instant>>,
    over: RefCell<bool>,
    changed: tokio::sync::Notify,
}

impl Lease {
    pub fn is_leased(&self) -> bool {
        self.until.borrow().is_some()
    }

    fn renew(&self, ttl_ms: u64) {
        // A year is as good as any time that does not overflow.
        let ttl = std::time::Duration::from_millis(ttl_ms.min(365 * 24 * 3_600_000));
        *self.until.borrow_mut() = Some(tokio::time::Instant::now() + ttl);
        self.changed.notify_waiters();
    }

    fn end(&self) {
        *self.over.borrow_mut() = true;
        self.changed.notify_waiters();
    }

    /// Returns when the lease has run out or the end was asked for.
    pub async fn ended(&self) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if *self.over.borrow() {
                return;
            }
            let until = *self.until.borrow();
            match until {
                None => changed.await,
                Some(until) => {
                    if tokio::time::Instant::now() >= until {
                        return;
                    }
                    let _ = tokio::time::timeout_at(until, changed).await;
                }
            }
        }
    }
}

#[derive(Clone, Copy)]
struct LocalExecutor;

impl<F: Future<Output = ()> + 'static> hyper::rt::Executor<F> for LocalExecutor {
    fn execute(&self, future: F) {
        tokio::task::spawn_local(future);
    }
}

pub fn json<T: Serialize>(value: &T) -> Answer {
    match serde_json::to_vec(value) {
        Ok(bytes) => Ok(Response::new(bytes_body(bytes))),
        Err(error) => Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())),
    }
}

pub fn bytes_body(bytes: impl Into<Bytes>) -> Body {
    Body::Bytes(Some(bytes.into()))
}

/// A JSON body, bounded.
pub async fn read_json<T: DeserializeOwned>(request: Request<Incoming>) -> Result<T, Problem> {
    let bytes = Limited::new(request.into_body(), JSON_MAX_BYTES)
        .collect()
        .await
        .map_err(|error| Problem::new(StatusCode::BAD_REQUEST, format!("the request's body cannot be read: {error}")))?
        .to_bytes();
    serde_json::from_slice(&bytes)
        .map_err(|error| Problem::new(StatusCode::BAD_REQUEST, format!("the request's JSON cannot be read: {error}")))
}

/// See [`cofferdam_protocol::request`] for how parameters are written.
pub fn parameter<'a, B>(request: &'a Request<B>, name: &str) -> Option<&'a str> {
    request::parameter(request.uri().query()?, name)
}

pub fn number_parameter<B>(request: &Request<B>, name: &str) -> Result<Option<u64>, Problem> {
    Ok(request::number_parameter(request.uri().query().unwrap_or_default(), name)?)
}
