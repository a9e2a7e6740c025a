//! CONNECT: bytes both ways, half-close, the log, shutting down, idleness.

use std::sync::atomic::Ordering;
use std::time::Duration;

use cofferdam_sandbox::egress::ConnectionEvent;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::support::{PATIENCE, Proxy, Table, echo_server, read_head, read_to_end, serve, short};

#[tokio::test]
async fn a_tunnel_carries_bytes_both_ways_and_is_logged() {
    let server = echo_server("127.0.0.2").await;
    let mut proxy = Proxy::start(&server.to_string()).await;
    let mut tunnel = proxy.tunnel(&server.to_string()).await.unwrap();
    tunnel.write_all(b"hello").await.unwrap();
    let mut back = [0; 5];
    tunnel.read_exact(&mut back).await.unwrap();
    assert_eq!(&back, b"hello");
    // The end of one direction is passed on while the other goes on.
    tunnel.write_all(b" and goodbye").await.unwrap();
    tunnel.shutdown().await.unwrap();
    assert_eq!(read_to_end(&mut tunnel).await, " and goodbye");

    let opened = proxy.next_record().await;
    assert_eq!(opened.event, ConnectionEvent::Allowed { address: server });
    assert_eq!((opened.method.as_str(), opened.host.as_str(), opened.time_ms), ("CONNECT", "127.0.0.2", 7));
    let closed = proxy.next_record().await;
    assert!(matches!(closed.event, ConnectionEvent::Closed { bytes_up: 17, bytes_down: 17, .. }), "{closed:?}");
    assert_eq!(closed.request, opened.request);
    let line = serde_json::to_value(&closed).unwrap();
    assert_eq!((line["event"].as_str(), line["bytes_up"].as_u64()), (Some("closed"), Some(17)));
}

#[tokio::test]
async fn bytes_sent_along_with_connect_are_not_lost() {
    let server = echo_server("127.0.0.2").await;
    let proxy = Proxy::start(&server.to_string()).await;
    let mut stream = proxy.connect().await;
    stream.write_all(format!("CONNECT {server} HTTP/1.1\r\n\r\nearly").as_bytes()).await.unwrap();
    let head = read_head(&mut stream).await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    stream.shutdown().await.unwrap();
    assert_eq!(read_to_end(&mut stream).await, "early");
}

#[tokio::test]
async fn an_exact_name_reaches_a_private_address_and_the_checked_one_is_connected() {
    let server = echo_server("127.0.0.2").await;
    // A name server that answers with another address when it is asked again.
    let table = Table::in_turn(vec![("db.test", vec![&["127.0.0.2"], &["127.0.0.3"]])]);
    let resolver = table.clone();
    let mut proxy = Proxy::start_with("db.test", |egress| egress.with_resolver(resolver)).await;
    proxy.tunnel(&format!("DB.test.:{}", server.port())).await.unwrap();
    assert_eq!(proxy.next_record().await.event, ConnectionEvent::Allowed { address: server });
    assert_eq!(table.asked.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn the_next_address_is_tried_when_one_does_not_answer() {
    let server = echo_server("127.0.0.4").await;
    let table = Table::new(&[("db.test", &["127.0.0.3", "127.0.0.4"])]);
    let mut proxy = Proxy::start_with("db.test", |egress| egress.with_resolver(table)).await;
    proxy.tunnel(&format!("db.test:{}", server.port())).await.unwrap();
    assert_eq!(proxy.next_record().await.event, ConnectionEvent::Allowed { address: server });
}

#[tokio::test]
async fn shutting_down_closes_open_tunnels() {
    let (gone, mut closed) = mpsc::unbounded_channel();
    let server = serve("127.0.0.2", move |mut stream| {
        let gone = gone.clone();
        async move {
            let _ = read_to_end(&mut stream).await;
            let _ = gone.send(());
        }
    })
    .await;
    let mut proxy = Proxy::start(&server.to_string()).await;
    let mut tunnel = proxy.tunnel(&server.to_string()).await.unwrap();
    proxy.stop().await;
    assert_eq!(read_to_end(&mut tunnel).await, "");
    timeout(PATIENCE, closed.recv()).await.expect("the server's side is closed").unwrap();
    assert_eq!(proxy.next_closed().await, (0, 0));
}

#[tokio::test]
async fn an_idle_tunnel_is_closed() {
    let server = echo_server("127.0.0.2").await;
    let bounds = short(|bounds| bounds.idle_timeout = Duration::from_millis(200));
    let mut proxy = Proxy::start_with(&server.to_string(), |egress| egress.with_bounds(bounds)).await;
    let mut tunnel = proxy.tunnel(&server.to_string()).await.unwrap();
    assert_eq!(read_to_end(&mut tunnel).await, "");
    assert_eq!(proxy.next_closed().await, (0, 0));
}

#[tokio::test]
async fn a_client_that_never_reads_holds_back_the_server() {
    let (sent, mut stalled) = mpsc::unbounded_channel();
    let server = serve("127.0.0.2", move |mut stream| {
        let sent = sent.clone();
        async move {
            let mut total = 0_usize;
            while let Ok(written) = stream.write(&[b'x'; 65536]).await {
                total += written;
            }
            let _ = sent.send(total);
        }
    })
    .await;
    let bounds = short(|bounds| bounds.idle_timeout = Duration::from_millis(500));
    let proxy = Proxy::start_with(&server.to_string(), |egress| egress.with_bounds(bounds)).await;
    let _tunnel = proxy.tunnel(&server.to_string()).await.unwrap();
    let total = timeout(PATIENCE, stalled.recv()).await.expect("the tunnel is given up").unwrap();
    // What the kernel's four socket buffers take; without backpressure it would go on as long as the clock.
    assert!(total < 64 << 20, "{total}");
}
