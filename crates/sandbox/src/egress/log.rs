//! What the proxy tells about each request: what was decided, and what moved until it closed. Makes the records;
//! where they go is the caller's.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

use super::bounds::{HOST_BYTES_MAX, METHOD_LOGGED_MAX};
use super::error::EgressError;
use super::meter::Meter;

/// One line of the log. Every text in it is bounded and free of control characters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ConnectionRecord {
    /// The request's number in this sandbox; the same in the record of its decision and of its close.
    pub request: u64,
    /// Milliseconds since 1970.
    pub time_ms: u64,
    /// Empty when what came was not HTTP.
    pub method: String,
    /// As the request named it; empty when it named none.
    pub host: String,
    /// 0 when the request named none.
    pub port: u16,
    #[serde(flatten)]
    pub event: ConnectionEvent,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum ConnectionEvent {
    /// Allowed, and connected to this address. `Closed` follows, always.
    Allowed { address: SocketAddr },
    /// Not allowed, or not understood: nothing was connected to.
    Refused {
        reason: String,
        /// The address that was the reason, where it was one.
        #[serde(skip_serializing_if = "Option::is_none")]
        address: Option<IpAddr>,
    },
    /// Allowed, but the name, the connection or the answer failed, or the client hung up meanwhile.
    Failed { reason: String },
    /// Bytes on the wire towards the server and back.
    Closed { bytes_up: u64, bytes_down: u64, duration_ms: u64 },
}

pub(super) type Clock = Box<dyn Fn() -> SystemTime + Send + Sync>;
pub(super) type Sink = Arc<dyn Fn(&ConnectionRecord) + Send + Sync>;

/// The log of one sandbox.
pub(super) struct Journal {
    clock: Clock,
    sink: Sink,
    requests: AtomicU64,
}

impl Journal {
    pub(super) fn new(clock: Clock, sink: Box<dyn Fn(&ConnectionRecord) + Send + Sync>) -> Self {
        Self { clock, sink: sink.into(), requests: AtomicU64::new(0) }
    }

    /// A fresh journal to the same place.
    pub(super) fn with_clock(&self, clock: Clock) -> Self {
        Self { clock, sink: self.sink.clone(), requests: AtomicU64::new(0) }
    }

    pub(super) fn request(self: &Arc<Self>, method: &str, host: &str, port: u16) -> RequestLog {
        RequestLog(Arc::new(Request {
            journal: self.clone(),
            request: self.requests.fetch_add(1, Ordering::Relaxed) + 1,
            method: printable(method, METHOD_LOGGED_MAX),
            host: printable(host, HOST_BYTES_MAX),
            port,
            is_logged: AtomicBool::new(false),
        }))
    }
}

/// The log of one request. A request that is dropped without a word in the log, because its client hung up while it
/// was being decided, still gets one: it may have asked the resolver or knocked at a server.
#[derive(Clone)]
pub(super) struct RequestLog(Arc<Request>);

struct Request {
    journal: Arc<Journal>,
    request: u64,
    method: String,
    host: String,
    port: u16,
    is_logged: AtomicBool,
}

impl RequestLog {
    pub(super) fn error(&self, error: &EgressError) {
        let reason = error.to_string();
        self.0.write(if error.status().is_client_error() {
            ConnectionEvent::Refused { reason, address: error.address() }
        } else {
            ConnectionEvent::Failed { reason }
        });
    }

    /// `Closed` is written when the answer is dropped, however that comes about.
    pub(super) fn opened(&self, address: SocketAddr, meter: Arc<Meter>) -> OpenConnection {
        self.0.write(ConnectionEvent::Allowed { address });
        OpenConnection { log: self.clone(), meter }
    }
}

impl Request {
    fn write(&self, event: ConnectionEvent) {
        self.is_logged.store(true, Ordering::Relaxed);
        let since_epoch = (self.journal.clock)().duration_since(UNIX_EPOCH).unwrap_or_default();
        (self.journal.sink)(&ConnectionRecord {
            request: self.request,
            time_ms: since_epoch.as_millis() as u64,
            method: self.method.clone(),
            host: self.host.clone(),
            port: self.port,
            event,
        });
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if !*self.is_logged.get_mut() {
            self.write(ConnectionEvent::Failed { reason: "cofferdam: the client hung up before an answer".to_owned() });
        }
    }
}

#[must_use = "the connection counts as closed when this is dropped"]
pub(super) struct OpenConnection {
    log: RequestLog,
    meter: Arc<Meter>,
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.log.0.write(ConnectionEvent::Closed {
            bytes_up: self.meter.bytes_written(),
            bytes_down: self.meter.bytes_read(),
            duration_ms: self.meter.age().as_millis() as u64,
        });
    }
}

impl fmt::Debug for OpenConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenConnection").field("request", &self.log.0.request).finish_non_exhaustive()
    }
}

/// At most `length` printable ASCII characters; what was cut is shown as `...`.
fn printable(text: &str, length: usize) -> String {
    let mut shown: String = text.chars().flat_map(char::escape_default).take(length + 1).collect();
    if shown.len() > length {
        shown.truncate(length);
        shown.push_str("...");
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_bounded_and_printable() {
        assert_eq!(printable("example.org", 253), "example.org");
        assert_eq!(printable("a\r\n\x1b[31m\u{202e}", 253), "a\\r\\n\\u{1b}[31m\\u{202e}");
        assert_eq!(printable(&"\n".repeat(1_000_000), 5), "\\n\\n\\...");
        assert_eq!(printable("12345", 5), "12345");
    }
}
