//! What must not get through: names, addresses behind names, odd spellings; each with its sentence and no connection.

use std::net::TcpListener;
use std::sync::atomic::Ordering;

use cofferdam_sandbox::egress::ConnectionEvent;

use crate::support::{Proxy, Table};

/// A server nobody may reach.
struct Untouched(TcpListener);

impl Untouched {
    fn listen() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        Self(listener)
    }

    fn port(&self) -> u16 {
        self.0.local_addr().unwrap().port()
    }

    /// Connections on loopback are made before connect returns, so one that was made is here by now.
    fn assert(&self, what: &str) {
        assert!(self.0.accept().is_err(), "{what} was connected to");
    }
}

async fn assert_refused(proxy: &mut Proxy, host: &str, port: u16, sentence: &str) {
    let refused = proxy.tunnel(&format!("{host}:{port}")).await.unwrap_err();
    let get = format!("GET http://{host}:{port}/ HTTP/1.1\r\nconnection: close\r\n\r\n");
    for answer in [refused, proxy.exchange(&get).await] {
        assert!(answer.starts_with("HTTP/1.1 403 Forbidden\r\n"), "{host}: {answer}");
        assert!(answer.contains("content-type: text/plain"), "{answer}");
        assert!(answer.contains(&format!("cofferdam: {host}:{port} ")) && answer.contains(sentence), "{answer}");
        let record = proxy.next_record().await;
        assert_eq!((record.host.as_str(), record.port), (host.trim_matches(['[', ']']), port));
        assert!(matches!(record.event, ConnectionEvent::Refused { .. }), "{record:?}");
    }
    assert!(proxy.no_more_records());
}

#[tokio::test]
async fn a_name_that_is_not_allowed_is_not_even_resolved() {
    for policy in ["none", "example.org:443,*.example.org"] {
        let table = Table::new(&[("example.org", &["127.0.0.1"])]);
        let resolver = table.clone();
        let mut proxy = Proxy::start_with(policy, |egress| egress.with_resolver(resolver)).await;
        for (host, port) in [("example.org", 80), ("badexample.org", 443), ("127.0.0.1", 443), ("[::1]", 443)] {
            let remedy = format!("allow it with --net {host}:{port}\n");
            assert_refused(&mut proxy, host, port, &remedy).await;
        }
        assert_eq!(table.asked.load(Ordering::SeqCst), 0);
    }
}

#[tokio::test]
async fn allowed_names_do_not_reach_private_addresses() {
    let server = Untouched::listen();
    let names: [(&str, &[&str], &str); 8] = [
        ("loop.a.test", &["127.0.0.1"], "a loopback address"),
        ("mapped.a.test", &["::ffff:127.0.0.1"], "a loopback address"),
        ("six.a.test", &["::1"], "a loopback address"),
        ("zero.a.test", &["0.0.0.0"], "the address of no machine"),
        ("ten.a.test", &["10.0.0.1"], "a private address"),
        ("nat.a.test", &["64:ff9b::127.0.0.1"], "a loopback address"),
        ("meta.a.test", &["169.254.169.254"], "the cloud's metadata service"),
        ("both.a.test", &["169.254.1.1", "127.0.0.1"], "a loopback address"),
    ];
    let table: Vec<_> = names.iter().map(|(name, addresses, _)| (*name, *addresses)).collect();
    for policy in ["open", "*.a.test", "*.test,a.test,loop.a.test:1"] {
        let table = Table::new(&table);
        let mut proxy = Proxy::start_with(policy, |egress| egress.with_resolver(table)).await;
        for (name, _, kind) in names {
            assert_refused(&mut proxy, name, server.port(), kind).await;
            server.assert(name);
        }
    }
}

#[tokio::test]
async fn an_exact_name_does_not_reach_the_metadata_service() {
    let table = Table::new(&[("a.test", &["169.254.169.254"])]);
    let mut proxy = Proxy::start_with("a.test", |egress| egress.with_resolver(table)).await;
    assert_refused(&mut proxy, "a.test", 80, "only when its address is named exactly").await;
}

#[tokio::test]
async fn odd_spellings_of_loopback_are_seen_through() {
    let server = Untouched::listen();
    // The system's resolver: it is the one that knows these spellings.
    let mut proxy = Proxy::start("open").await;
    for host in [
        "127.0.0.1",
        "2130706433",
        "0x7f000001",
        "0x7f.1",
        "127.1",
        "127.0.1",
        "0177.0.0.1",
        "017700000001",
        "0",
        "localhost",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::7f00:1]",
        "[::]",
    ] {
        assert_refused(&mut proxy, host, server.port(), "reached only when it is named exactly").await;
        server.assert(host);
    }
}

#[tokio::test]
async fn requests_that_are_not_for_a_proxy_get_a_sentence() {
    let mut proxy = Proxy::start("open").await;
    for (line, sentence) in [
        ("GET /path HTTP/1.1\r\nhost: 127.0.0.1", "this is a proxy; send CONNECT"),
        ("OPTIONS * HTTP/1.1\r\nhost: 127.0.0.1", "this is a proxy; send CONNECT"),
        ("GET https://a.test/ HTTP/1.1", "only http:// is forwarded"),
        ("GET ftp://a.test/ HTTP/1.1", "only http:// is forwarded"),
        ("GET http://user:secret@a.test/ HTTP/1.1", "a user name does not belong"),
        ("CONNECT a.test HTTP/1.1", "the port is missing"),
        ("CONNECT a.test:99999 HTTP/1.1", "the port is not a number"),
        ("CONNECT a..test:80 HTTP/1.1", "neither a host name nor an address"),
        ("CONNECT a.test:80 HTTP/1.1\r\ncontent-length: 5", "CONNECT has no body"),
    ] {
        let answer = proxy.exchange(&format!("{line}\r\nconnection: close\r\n\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains(sentence), "{line}: {answer}");
        let record = proxy.next_record().await;
        assert!(matches!(record.event, ConnectionEvent::Refused { .. }), "{record:?}");
    }
    let long = format!("CONNECT {}:80 HTTP/1.1\r\nconnection: close\r\n\r\n", "a.".repeat(2_000));
    assert!(proxy.exchange(&long).await.contains("neither a host name"));
    assert!(proxy.next_record().await.host.len() <= 256);
}
