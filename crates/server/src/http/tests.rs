//! Everything together on real sockets: a small router behind all layers, and clients that behave and misbehave.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::multipart::MultipartRejection;
use axum::extract::ws::{Message, WebSocketUpgrade};
use axum::extract::{Multipart, Path, Query, State};
use axum::http::header::CONTENT_SECURITY_POLICY;
use axum::routing::{get, post};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::*;

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Default)]
struct Shared {
    entered: Notify,
    released: Notify,
}

struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    metrics: Arc<Metrics>,
    shutdown: CancellationToken,
    served: JoinHandle<()>,
}

#[derive(Deserialize)]
struct Page {
    limit: u32,
}

impl Server {
    async fn start(settings: ServeSettings) -> Self {
        let shared = Arc::new(Shared::default());
        let metrics = Arc::new(Metrics::new());
        let router = Router::new()
            .route("/hello", get(|| async { "hello" }))
            .route(
                "/pages",
                get(|page: Result<Query<Page>, _>| async {
                    page.map(|page| page.limit.to_string()).map_err(Problem::from)
                }),
            )
            .route("/jobs/{id}", get(|id: Result<Path<u32>, _>| async { id.map(|_| ()).map_err(Problem::from) }))
            .route("/docs", get(|| async { ([(CONTENT_SECURITY_POLICY, "default-src 'self'")], "") }))
            .route("/upload", post(|body: Result<bytes::Bytes, _>| async { body.map(|_| ()).map_err(Problem::from) }))
            .route("/files", post(files))
            .route("/endless", get(|| async { axum::body::Body::from_stream(endless()) }))
            .route("/slow", get(slow))
            .route("/socket", get(|upgrade: WebSocketUpgrade| async { upgrade.on_upgrade(socket) }))
            .with_state(shared.clone())
            .route("/metrics", get(metrics::get).with_state(metrics.clone()));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let router = wrap(router, Guard::new(address, Vec::new()), metrics.clone());
        let shutdown = CancellationToken::new();
        let served = tokio::spawn(serve(listener, router, shutdown.clone(), settings));
        Self { address, shared, metrics, shutdown, served }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.expect("a connection")
    }

    /// Sends one request on a connection of its own, and gives all that comes back.
    async fn ask(&self, method: &str, path: &str, lines: &[&str], body: &str) -> Answer {
        let mut stream = self.connect().await;
        let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n{lines}\r\n{body}"
        );
        stream.write_all(request.as_bytes()).await.expect("sent");
        Answer::parse(&read_to_end(&mut stream).await)
    }
}

fn endless() -> impl futures_util::Stream<Item = Result<bytes::Bytes, std::convert::Infallible>> {
    futures_util::stream::repeat_with(|| Ok(bytes::Bytes::from_static(&[0; 65_536])))
}

async fn files(files: Result<Multipart, MultipartRejection>) -> Result<(), Problem> {
    let mut files = files?;
    while let Some(file) = files.next_field().await? {
        file.bytes().await?;
    }
    Ok(())
}

async fn slow(State(shared): State<Arc<Shared>>) -> &'static str {
    shared.entered.notify_one();
    shared.released.notified().await;
    "at last"
}

async fn socket(mut socket: axum::extract::ws::WebSocket) {
    while let Some(Ok(message)) = socket.recv().await {
        if let Message::Text(text) = message {
            let _ = socket.send(Message::Text(text)).await;
        }
    }
}

struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn parse(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        Self { status, head: head.to_owned(), body: body.to_owned() }
    }

    fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.head.lines().filter_map(|line| line.split_once(": "));
        headers.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    fn problem(&self) -> Value {
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{}", self.head);
        serde_json::from_str(&self.body).expect("JSON")
    }
}

async fn read_to_end(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    // A connection that we stopped feeding may be reset behind the answer.
    let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut bytes)).await.expect("an end");
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Until the text has come.
async fn read_until(stream: &mut TcpStream, text: &str) -> String {
    let mut bytes = Vec::new();
    let reading = async {
        while !String::from_utf8_lossy(&bytes).contains(text) {
            assert!(stream.read_buf(&mut bytes).await.expect("read") > 0, "ended before {text}");
        }
    };
    tokio::time::timeout(PATIENCE, reading).await.expect(text);
    String::from_utf8_lossy(&bytes).into_owned()
}

#[tokio::test]
async fn an_answer_carries_an_id_and_closes_itself_to_other_origins() {
    let server = Server::start(ServeSettings::default()).await;
    let answer = server.ask("GET", "/hello", &["X-Request-Id: my-id.1"], "").await;
    assert_eq!((answer.status, answer.body.as_str()), (200, "hello"));
    let expected = [
        ("x-request-id", "my-id.1"),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-resource-policy", "same-origin"),
        ("x-frame-options", "DENY"),
        ("content-security-policy", "default-src 'none'; frame-ancestors 'none'"),
    ];
    for (name, value) in expected {
        assert_eq!(answer.header(name), Some(value), "{name}");
    }
    let answer = server.ask("GET", "/docs", &[], "").await;
    assert_eq!(answer.header("content-security-policy"), Some("default-src 'self'"), "its own");
    for insane in ["a b", "\u{e9}", &"x".repeat(65), ""] {
        let answer = server.ask("GET", "/hello", &[&format!("X-Request-Id: {insane}")], "").await;
        let id = answer.header("x-request-id").expect("an id");
        assert!(id.len() == 16 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
    }
    let answer = server.ask("GET", "/hello", &["Origin: http://example.com"], "").await;
    assert_eq!(answer.problem()["type"], "/problems/foreign-origin");
    assert_eq!(answer.header("x-frame-options"), Some("DENY"), "refusals too");
    assert!(!answer.head.to_lowercase().contains("access-control"), "{}", answer.head);
}

#[tokio::test]
async fn what_is_wrong_with_a_request_is_said_with_the_remedy() {
    let server = Server::start(ServeSettings::default()).await;
    let cases = [
        (
            server.ask("GET", "/pages?limit=many", &[], "").await,
            json!({
                "type": "/problems/invalid-field", "title": "A value is not accepted", "status": 422, "field": "limit",
                "detail": "the query does not fit: invalid digit found in string; correct what follows the ? in the URL",
            }),
        ),
        (
            server.ask("GET", "/jobs/x", &[], "").await,
            json!({
                "type": "/problems/not-found", "title": "There is no such thing", "status": 404,
                "detail": "Cannot parse `x` to a `u32`; correct the path of the URL",
            }),
        ),
        (
            server.ask("GET", "/nowhere?secret=1", &[], "").await,
            json!({
                "type": "/problems/not-found", "title": "There is no such thing", "status": 404,
                "detail": "there is nothing at /nowhere; /docs says what there is",
            }),
        ),
    ];
    for (answer, expected) in cases {
        assert_eq!(answer.problem(), expected);
        assert_eq!(Value::from(answer.status), expected["status"]);
    }
    let answer = server.ask("DELETE", "/hello", &[], "").await;
    assert_eq!((answer.status, answer.header("allow")), (405, Some("GET,HEAD")));
    assert_eq!(
        answer.problem()["detail"],
        "DELETE is not possible on /hello; use one of the methods in the Allow header of this answer"
    );
}

#[tokio::test]
async fn a_body_beyond_the_limit_is_refused_unread() {
    let server = Server::start(ServeSettings::default()).await;
    let mut stream = server.connect().await;
    let request = "POST /upload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\n";
    stream.write_all(request.as_bytes()).await.expect("sent");
    let chunk = vec![0; BODY_BYTES_MAX + 1];
    // The answer may come, and the connection be closed, before all is sent.
    let _ = stream.write_all(&chunk).await;
    let answer = read_until(&mut stream, "}").await;
    let problem = Answer::parse(&answer).problem();
    assert_eq!(problem["status"], 413);
    let detail = "the body is larger than 16 MiB; send large files as multipart/form-data";
    assert_eq!(problem["detail"], detail);
}

#[tokio::test]
async fn requests_are_counted_by_route_and_not_by_path() {
    let server = Server::start(ServeSettings::default()).await;
    for path in ["/jobs/1", "/jobs/2", "/hello", "/anything", "/anything-else"] {
        server.ask("GET", path, &[], "").await;
    }
    let answer = server.ask("GET", "/metrics", &[], "").await;
    assert_eq!(answer.header("content-type"), Some("application/openmetrics-text; version=1.0.0; charset=utf-8"));
    let mut counts: Vec<_> =
        answer.body.lines().filter(|line| line.starts_with("cofferdam_http_requests_total")).collect();
    counts.sort_unstable();
    let expected = [
        r#"cofferdam_http_requests_total{method="GET",route="/hello",status="200"} 1"#,
        r#"cofferdam_http_requests_total{method="GET",route="/jobs/{id}",status="200"} 2"#,
        r#"cofferdam_http_requests_total{method="GET",route="none",status="404"} 2"#,
    ];
    assert_eq!(counts, expected);
    assert!(server.metrics.text().contains("cofferdam_http_request_seconds_bucket"));
}

/// With those who do not move, and with nobody else.
fn impatient() -> ServeSettings {
    let hour = Duration::from_secs(3_600);
    let stall_timeout = Duration::from_millis(300);
    ServeSettings { stall_timeout, head_timeout: hour, shutdown_grace: hour, ..ServeSettings::default() }
}

#[tokio::test]
async fn a_reader_that_takes_nothing_is_cut_off() {
    let server = Server::start(impatient()).await;
    let mut stream = server.connect().await;
    stream.write_all(b"GET /endless HTTP/1.1\r\nHost: localhost\r\n\r\n").await.expect("sent");
    read_until(&mut stream, "HTTP/1.1 200 OK").await;
    // From here on nothing is read until the server has given up; then an end comes where none would be.
    server.shutdown.cancel();
    tokio::time::timeout(PATIENCE, server.served).await.expect("the connection ends").expect("no panic");
    read_to_end(&mut stream).await;
}

#[tokio::test]
async fn an_upload_that_stops_is_cut_off() {
    let server = Server::start(impatient()).await;
    let mut stream = server.connect().await;
    let request = b"POST /upload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nonly this";
    stream.write_all(request).await.expect("sent");
    let answer = Answer::parse(&read_to_end(&mut stream).await);
    assert_eq!((answer.status, answer.problem()["type"].as_str()), (408, Some("/problems/request-stalled")));
}

#[tokio::test]
async fn a_connection_without_a_request_may_wait() {
    let server = Server::start(ServeSettings { stall_timeout: Duration::from_millis(20), ..impatient() }).await;
    let mut stream = server.connect().await;
    for _ in 0..2 {
        stream.write_all(b"GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n").await.expect("sent");
        read_until(&mut stream, "\r\n\r\nhello").await;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    // So may one whose handler takes its time.
    stream.write_all(b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n").await.expect("sent");
    server.shared.entered.notified().await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    server.shared.released.notify_one();
    read_until(&mut stream, "\r\n\r\nat last").await;
}

#[tokio::test]
async fn a_head_that_does_not_come_is_not_waited_for() {
    let settings = ServeSettings { head_timeout: Duration::from_millis(100), ..ServeSettings::default() };
    let server = Server::start(settings).await;
    let mut stream = server.connect().await;
    stream.write_all(b"GET /hello HTTP/1.1\r\nHost: loc").await.expect("sent");
    read_to_end(&mut stream).await;
}

#[tokio::test]
async fn shutdown_waits_for_a_request_in_flight() {
    let server = Server::start(ServeSettings::default()).await;
    let (mut idle, mut busy) = (server.connect().await, server.connect().await);
    idle.write_all(b"GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n").await.expect("sent");
    read_until(&mut idle, "\r\n\r\nhello").await;
    busy.write_all(b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n").await.expect("sent");
    server.shared.entered.notified().await;
    server.shutdown.cancel();
    assert_eq!(read_to_end(&mut idle).await, "", "a connection without a request is closed");
    assert!(!server.served.is_finished());
    server.shared.released.notify_one();
    assert!(read_to_end(&mut busy).await.ends_with("\r\n\r\nat last"));
    tokio::time::timeout(PATIENCE, server.served).await.expect("an end").expect("no panic");
    assert!(TcpStream::connect(server.address).await.is_err(), "nobody listens");
}

#[tokio::test]
async fn shutdown_does_not_wait_for_ever() {
    let settings = ServeSettings { shutdown_grace: Duration::from_millis(50), ..ServeSettings::default() };
    let server = Server::start(settings).await;
    let mut busy = server.connect().await;
    busy.write_all(b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n").await.expect("sent");
    server.shared.entered.notified().await;
    server.shutdown.cancel();
    tokio::time::timeout(PATIENCE, server.served).await.expect("an end").expect("no panic");
    assert_eq!(read_to_end(&mut busy).await, "");
}

/// A handshake and one frame back and forth, by hand.
async fn open_socket(server: &Server) -> TcpStream {
    let mut stream = server.connect().await;
    let request = "GET /socket HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                   Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    stream.write_all(request.as_bytes()).await.expect("sent");
    let head = read_until(&mut stream, "\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    let (masked_text, mask) = (0x81, [0; 4]);
    let frame = [&[masked_text, 0x80 | 4][..], &mask, b"ping"].concat();
    stream.write_all(&frame).await.expect("sent");
    read_until(&mut stream, "ping").await;
    stream
}

#[tokio::test]
async fn connections_are_upgraded_and_still_counted() {
    let server = Server::start(ServeSettings { connections_max: 1, ..ServeSettings::default() }).await;
    let socket = open_socket(&server).await;
    let mut second = server.connect().await;
    second.write_all(b"GET /hello HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await.expect("sent");
    let early = tokio::time::timeout(Duration::from_millis(200), second.readable()).await;
    assert!(early.is_err(), "it waits for the first to end");
    drop(socket);
    assert!(read_to_end(&mut second).await.ends_with("\r\n\r\nhello"));
}
