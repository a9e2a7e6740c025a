//! Requests for http:// addresses: bodies both ways, headers, framing, failures, curl.

use std::time::Duration;

use cofferdam_sandbox::egress::ConnectionEvent;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::process::Command;

use crate::support::{Proxy, Table, echo_server, http_server, read_to_end, serve, short};

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\nkeep-alive: 5\r\nx-hop: 1\r\nconnection: x-hop\r\n\r\nhello";

#[tokio::test]
async fn a_request_and_its_answer_pass_without_the_proxys_own_headers() {
    let (server, mut requests) = http_server("127.0.0.2", OK).await;
    let mut proxy = Proxy::start(&server.to_string()).await;
    let answer = proxy
        .exchange(&format!(
            "POST http://{server}/a?b=c HTTP/1.1\r\nhost: elsewhere.test\r\nhost: twice.test\r\n\
             proxy-connection: keep-alive\r\nproxy-authorization: Basic eA==\r\nkeep-alive: 3\r\nte: trailers\r\n\
             upgrade: websocket\r\nx-secret: 1\r\nconnection: close, X-Secret, upgrade\r\nx-kept: yes\r\n\
             expect: 100-continue\r\ncontent-length: 4\r\n\r\nbody"
        ))
        .await;
    assert!(answer.contains("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nhello"), "{answer}");
    assert!(!answer.contains("x-hop") && !answer.contains("keep-alive"), "{answer}");

    let request = requests.recv().await.unwrap();
    assert!(request.starts_with("POST /a?b=c HTTP/1.1\r\n") && request.ends_with("\r\n\r\nbody"), "{request}");
    let mut headers: Vec<&str> = request.lines().skip(1).take_while(|line| !line.is_empty()).collect();
    headers.sort_unstable();
    let host = format!("host: {server}");
    assert_eq!(headers, ["connection: close", "content-length: 4", &host, "x-kept: yes"]);
    let (bytes_up, bytes_down) = proxy.next_closed().await;
    assert_eq!((bytes_up, bytes_down), (request.len() as u64, OK.len() as u64));
}

#[tokio::test]
async fn requests_share_a_connection_and_chunked_bodies_stay_whole() {
    let (server, mut requests) =
        http_server("127.0.0.2", "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n").await;
    let proxy = Proxy::start(&server.to_string()).await;
    let answer = proxy
        .exchange(&format!(
            "GET http://{server}/1 HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n\
             GET http://{server} HTTP/1.1\r\nconnection: close\r\n\r\n"
        ))
        .await;
    assert_eq!(answer.matches("3\r\nabc\r\n0\r\n\r\n").count(), 2, "{answer}");
    let first = requests.recv().await.unwrap();
    assert!(first.contains("transfer-encoding: chunked\r\n") && first.ends_with("2\r\nhi\r\n0\r\n\r\n"), "{first}");
    assert!(requests.recv().await.unwrap().starts_with("GET / HTTP/1.1\r\n"));
}

#[tokio::test]
async fn two_lengths_never_reach_the_server() {
    let (server, mut requests) = http_server("127.0.0.2", OK).await;
    let proxy = Proxy::start(&server.to_string()).await;
    let post = format!("POST http://{server}/ HTTP/1.1\r\nconnection: close\r\n");
    proxy.exchange(&format!("{post}content-length: 6\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\nG")).await;
    let request = requests.recv().await.unwrap();
    assert!(!request.contains("content-length") && request.ends_with("0\r\n\r\n"), "{request}");

    for (framing, body) in [
        ("content-length: 1\r\ncontent-length: 2\r\n", "ab"),
        ("content-length: +1\r\n", "a"),
        ("transfer-encoding: gzip, chunked\r\n", "0\r\n\r\n"),
        ("transfer-encoding: xchunked\r\n", "0\r\n\r\n"),
    ] {
        let answer = proxy.exchange(&format!("{post}{framing}\r\n{body}")).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{framing}: {answer}");
    }
    assert!(requests.try_recv().is_err());
}

#[tokio::test]
async fn an_answer_to_head_keeps_its_length() {
    let (server, _requests) = http_server("127.0.0.2", "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n").await;
    let proxy = Proxy::start(&server.to_string()).await;
    let answer = proxy.exchange(&format!("HEAD http://{server}/ HTTP/1.1\r\nconnection: close\r\n\r\n")).await;
    assert!(answer.contains("content-length: 5\r\n") && answer.ends_with("\r\n\r\n"), "{answer}");
}

#[tokio::test]
async fn failures_are_told_in_a_sentence() {
    let port_of_nobody = TcpListener::bind("127.0.0.3:0").await.unwrap().local_addr().unwrap().port();
    let (not_http, _requests) = http_server("127.0.0.2", "220 smtp ready\r\n").await;
    let (switching, _requests) = http_server("127.0.0.2", "HTTP/1.1 101 Now\r\nupgrade: x\r\n\r\n").await;
    let silent = serve("127.0.0.2", |mut stream| async move {
        read_to_end(&mut stream).await;
    })
    .await;
    let table = Table::new(&[("up.test", &["127.0.0.2"]), ("down.test", &["127.0.0.3"]), ("empty.test", &[])]);
    let bounds = short(|bounds| bounds.answer_timeout = Duration::from_millis(200));
    let mut proxy = Proxy::start_with("up.test,down.test,empty.test,unknown.test", |egress| {
        egress.with_resolver(table).with_bounds(bounds)
    })
    .await;
    for (host, port, status, sentence) in [
        ("down.test", port_of_nobody, 502, "cannot be connected to"),
        ("empty.test", 80, 502, "cannot be resolved"),
        ("unknown.test", 80, 502, "cannot be resolved"),
        ("up.test", not_http.port(), 502, "did not answer in HTTP"),
        ("up.test", switching.port(), 502, "did not answer in HTTP"),
        ("up.test", silent.port(), 504, "said nothing for too long"),
    ] {
        let request = format!("GET http://{host}:{port}/ HTTP/1.1\r\nconnection: close\r\n\r\n");
        let answer = proxy.exchange(&request).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{host}: {answer}");
        assert!(answer.contains(&format!("cofferdam: {host}:{port} ")) && answer.contains(sentence), "{answer}");
        let failed = loop {
            if let ConnectionEvent::Failed { reason } = proxy.next_record().await.event {
                break reason;
            }
        };
        assert!(failed.contains(sentence), "{failed}");
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_does_not_look_complete() {
    let (server, _requests) =
        http_server("127.0.0.2", "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nab").await;
    let proxy = Proxy::start(&server.to_string()).await;
    let answer = proxy.exchange(&format!("GET http://{server}/ HTTP/1.1\r\nconnection: close\r\n\r\n")).await;
    assert!(!answer.ends_with("0\r\n\r\n"), "{answer}");
}

#[tokio::test]
async fn curl_gets_through_both_ways() {
    let (server, _requests) = http_server("127.0.0.2", "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello").await;
    let echo = echo_server("127.0.0.2").await;
    let proxy = Proxy::start(&server.to_string()).await;
    let curl = async |arguments: &[&str]| {
        let proxy = format!("http://{}", proxy.address);
        let fixed = ["--silent", "--show-error", "--max-time", "20", "--noproxy", "", "--proxy", &proxy];
        let output = Command::new("curl").args(fixed).args(arguments).output().await.ok()?;
        Some(String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr))
    };
    let url = format!("http://{server}/path");
    let Some(forwarded) = curl(&[&url]).await else {
        eprintln!("skipped: curl is not installed");
        return;
    };
    assert_eq!(forwarded, "hello");
    assert_eq!(curl(&["--data", "field=1", &url]).await.unwrap(), "hello");
    assert_eq!(curl(&["--proxytunnel", &url]).await.unwrap(), "hello");
    let refused = curl(&[&format!("http://{echo}/")]).await.unwrap();
    assert!(refused.contains("allow it with --net 127.0.0.2:"), "{refused}");
    let refused = curl(&["--proxytunnel", &format!("http://{echo}/")]).await.unwrap();
    assert!(refused.contains("403"), "{refused}");
}

#[tokio::test]
async fn an_upload_is_not_held_in_memory_before_the_server_reads() {
    let server = serve("127.0.0.2", |stream| async move {
        let _never_read = stream;
        std::future::pending::<()>().await;
    })
    .await;
    let bounds = short(|bounds| bounds.answer_timeout = Duration::from_millis(500));
    let proxy = Proxy::start_with(&server.to_string(), |egress| egress.with_bounds(bounds)).await;
    let mut stream = proxy.connect().await;
    let head = format!("PUT http://{server}/ HTTP/1.1\r\ncontent-length: 99999999999\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut total = 0_usize;
    while let Ok(written) = stream.write(&[b'x'; 65536]).await {
        total += written;
    }
    assert!(total < 64 << 20, "{total}");
}
