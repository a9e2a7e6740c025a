//! How much the hostile side of the proxy may take: every bound with its reason. Enforced elsewhere.

use std::time::Duration;

/// More than any build tool opens, and few enough that a sandbox cannot use up the launcher's descriptors (two each).
pub const CONNECTIONS_AT_ONCE: usize = 256;

/// Room for large cookies and tokens; what one connection may make the proxy hold before it is understood.
pub const HEADER_BYTES_MAX: usize = 32 * 1024;

/// A client that sends its header a byte at a time, or keeps an unused connection, gives its slot back after this.
pub const HEADER_READ_TIMEOUT: Duration = Duration::from_secs(30);

/// Without a byte in either direction for this long nobody is waiting any more. Longer than servers are silent while
/// they compute an answer.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(600);

/// A forwarded request's server may be silent this long before its answer. Below `IDLE_TIMEOUT`, so that the client
/// still gets a 504 rather than a closed connection.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(300);

/// One address that drops packets must not use up the time of the others.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Resolving and all attempts together: below the usual two minutes after which clients give up by themselves.
pub const REACH_TIMEOUT: Duration = Duration::from_secs(45);

/// A name with hundreds of addresses must not turn one request into hundreds of connections.
pub const CONNECT_ATTEMPTS_MAX: usize = 6;

/// getaddrinfo blocks a thread each and cannot be interrupted, and the threads are shared with the whole launcher.
pub const LOOKUPS_AT_ONCE: usize = 16;

/// The longest name DNS can carry.
pub const HOST_BYTES_MAX: usize = 253;

/// Longer than every registered method; a made-up one is cut to this in the log.
pub const METHOD_LOGGED_MAX: usize = 32;

/// One direction's buffer of a tunnel; a client that never reads makes the proxy hold this much and no more.
pub const TUNNEL_BUFFER_BYTES: usize = 16 * 1024;

/// accept fails at once, again and again, while descriptors are short: try again at a human pace.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The bounds a caller may choose; the constants of this file otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bounds {
    pub connections_at_once: usize,
    pub header_read_timeout: Duration,
    pub idle_timeout: Duration,
    pub answer_timeout: Duration,
    pub connect_timeout: Duration,
    pub reach_timeout: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            connections_at_once: CONNECTIONS_AT_ONCE,
            header_read_timeout: HEADER_READ_TIMEOUT,
            idle_timeout: IDLE_TIMEOUT,
            answer_timeout: ANSWER_TIMEOUT,
            connect_timeout: CONNECT_TIMEOUT,
            reach_timeout: REACH_TIMEOUT,
        }
    }
}
