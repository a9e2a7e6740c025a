//! Clients that do not mean to be served: garbage, endless headers, slowness, crowds.

use std::sync::Arc;
use std::time::Duration;

use cofferdam_sandbox::egress::bounds::HEADER_BYTES_MAX;
use cofferdam_sandbox::egress::{ConnectionEvent, Resolution, Resolver};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::support::{PATIENCE, Proxy, echo_server, read_head, read_to_end, short};

#[tokio::test]
async fn garbage_is_answered_logged_and_forgotten() {
    let server = echo_server("127.0.0.2").await;
    let mut proxy = Proxy::start(&server.to_string()).await;
    for garbage in [
        "\x16\x03\x01\x02\0\x01\0\x01\u{fc}\x03\x03\r\n\r\n",
        "\0\0\0\0\0\0\0\0\r\n\r\n",
        "GET http://a.test/\x01 HTTP/1.1\r\n\r\n",
        "CONNECT \r\n\r\n",
        "GET http://[::1/ HTTP/1.1\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "GET http://a.test/ HTTP/1.1\r\nbad header\r\n\r\n",
        "GET http://a.test/ HTTP/1.1\r\na: b\r\n folded\r\n\r\n",
    ] {
        let answer = proxy.exchange(garbage).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400 "), "{garbage:?}: {answer}");
        let record = proxy.next_record().await;
        assert!(matches!(record.event, ConnectionEvent::Refused { .. }), "{garbage:?}: {record:?}");
    }
    proxy.tunnel(&server.to_string()).await.unwrap();
}

#[tokio::test]
async fn headers_are_bounded() {
    let proxy = Proxy::start("open").await;
    for header in [
        format!("a: {}\r\n", "x".repeat(HEADER_BYTES_MAX)),
        "a: b\r\n".repeat(1_000),
        "a: b\r\n".repeat(HEADER_BYTES_MAX / 6),
    ] {
        let mut stream = proxy.connect().await;
        // The proxy may close before it has read everything.
        let _ = stream.write_all(format!("GET http://a.test/ HTTP/1.1\r\n{header}").as_bytes()).await;
        let answer = read_to_end(&mut stream).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431 "), "{answer}");
    }
}

#[tokio::test]
async fn a_header_that_trickles_in_is_cut_off() {
    let bounds = short(|bounds| bounds.header_read_timeout = Duration::from_millis(300));
    let proxy = Proxy::start_with("open", |egress| egress.with_bounds(bounds)).await;
    let mut stream = proxy.connect().await;
    stream.write_all(b"GET http://a.test/ HTTP/1.1\r\nx: ").await.unwrap();
    let trickle = async {
        loop {
            // A byte every now and then, until the proxy closes.
            let mut answer = [0; 64];
            match timeout(Duration::from_millis(20), stream.read(&mut answer)).await {
                Ok(Ok(0) | Err(_)) => break,
                Ok(Ok(_)) => {}
                Err(_) => {
                    let _ = stream.write_all(b"x").await;
                }
            }
        }
    };
    timeout(PATIENCE, trickle).await.expect("the connection is closed");
}

#[tokio::test]
async fn an_unused_connection_is_closed() {
    let bounds = short(|bounds| bounds.header_read_timeout = Duration::from_millis(100));
    let proxy = Proxy::start_with("none", |egress| egress.with_bounds(bounds)).await;
    read_to_end(&mut proxy.connect().await).await;
    // And so is one that has been used.
    let mut stream = proxy.connect().await;
    stream.write_all(b"GET http://a.test/ HTTP/1.1\r\n\r\n").await.unwrap();
    assert!(read_to_end(&mut stream).await.starts_with("HTTP/1.1 403 "));
}

/// A name server that is asked and never answers.
#[derive(Default)]
struct Never {
    asked: Notify,
}

impl Resolver for Never {
    fn resolve<'a>(&'a self, _host: &'a str) -> Resolution<'a> {
        self.asked.notify_one();
        Box::pin(std::future::pending())
    }
}

#[tokio::test]
async fn a_client_that_hangs_up_is_forgotten_but_not_by_the_log() {
    let never = Arc::new(Never::default());
    let resolver = never.clone();
    let mut proxy = Proxy::start_with("open", |egress| egress.with_resolver(resolver)).await;
    let mut stream = proxy.connect().await;
    stream.write_all(b"CONNECT a.test:443 HTTP/1.1\r\n\r\n").await.unwrap();
    timeout(PATIENCE, never.asked.notified()).await.expect("the name is looked up");
    drop(stream);
    let record = proxy.next_record().await;
    assert_eq!((record.method.as_str(), record.host.as_str(), record.port), ("CONNECT", "a.test", 443));
    assert!(matches!(&record.event, ConnectionEvent::Failed { reason } if reason.contains("hung up")), "{record:?}");
}

#[tokio::test]
async fn a_name_server_that_never_answers_is_given_up() {
    let bounds = short(|bounds| bounds.reach_timeout = Duration::from_millis(100));
    let resolver = Arc::new(Never::default());
    let proxy = Proxy::start_with("open", |egress| egress.with_resolver(resolver).with_bounds(bounds)).await;
    let answer = proxy.tunnel("a.test:443").await.unwrap_err();
    assert!(answer.starts_with("HTTP/1.1 504 ") && answer.contains("resolving a.test:443 took too long"), "{answer}");
}

#[tokio::test]
async fn three_hundred_connections_at_once_are_served_within_the_bound() {
    const CLIENTS: usize = 300;
    const AT_ONCE: usize = 64;
    let server = echo_server("127.0.0.2").await;
    let bounds = short(|bounds| bounds.connections_at_once = AT_ONCE);
    let mut proxy = Proxy::start_with(&server.to_string(), |egress| egress.with_bounds(bounds)).await;
    let (release, released) = watch::channel(false);
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        let (mut released, address) = (released.clone(), proxy.address);
        clients.spawn(async move {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(format!("CONNECT {server} HTTP/1.1\r\n\r\nhello").as_bytes()).await.unwrap();
            released.wait_for(|released| *released).await.unwrap();
            let head = read_head(&mut stream).await;
            stream.shutdown().await.unwrap();
            head + &read_to_end(&mut stream).await
        });
    }
    let (mut open, mut most, mut closed) = (0, 0, 0);
    while closed < CLIENTS {
        match proxy.next_record().await.event {
            ConnectionEvent::Allowed { .. } => open += 1,
            ConnectionEvent::Closed { .. } => (open, closed) = (open - 1, closed + 1),
            other => panic!("{other:?}"),
        }
        most = most.max(open);
        // Everybody stays until the proxy is full.
        if most == AT_ONCE {
            release.send_replace(true);
        }
    }
    assert_eq!(most, AT_ONCE);
    while let Some(answer) = clients.join_next().await {
        assert!(answer.unwrap().ends_with("\r\n\r\nhello"));
    }
}
