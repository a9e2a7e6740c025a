//! A running proxy with its log, servers to reach through it, a resolver that answers from a table.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use cofferdam_sandbox::egress::{Bounds, ConnectionEvent, ConnectionRecord, Egress, Resolution, Resolver};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// A failing test ends after this instead of hanging; no passing test waits for it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    records: mpsc::UnboundedReceiver<ConnectionRecord>,
    stop: Option<oneshot::Sender<()>>,
    running: JoinHandle<()>,
}

impl Proxy {
    pub(crate) async fn start(policy: &str) -> Self {
        Self::start_with(policy, |egress| egress).await
    }

    pub(crate) async fn start_with(policy: &str, change: impl FnOnce(Egress) -> Egress) -> Self {
        let (sender, records) = mpsc::unbounded_channel();
        let (stop, stopped) = oneshot::channel::<()>();
        let listener = listen("127.0.0.1");
        let address = listener.local_addr().unwrap();
        let policy = Arc::new(policy.parse().unwrap());
        let log = move |record: &ConnectionRecord| {
            // The test may be over already.
            let _ = sender.send(record.clone());
        };
        let egress = change(Egress::new(policy, log).with_clock(|| SystemTime::UNIX_EPOCH + Duration::from_millis(7)));
        let running = tokio::spawn(egress.run(listener, async move {
            let _ = stopped.await;
        }));
        Self { address, records, stop: Some(stop), running }
    }

    pub(crate) async fn stop(&mut self) {
        drop(self.stop.take());
        timeout(PATIENCE, &mut self.running).await.expect("the proxy stops").unwrap();
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Everything the proxy answers to these bytes, until it closes.
    pub(crate) async fn exchange(&self, request: &str) -> String {
        let mut stream = self.connect().await;
        stream.write_all(request.as_bytes()).await.unwrap();
        read_to_end(&mut stream).await
    }

    /// The answer to a CONNECT, and the connection when it became a tunnel.
    pub(crate) async fn tunnel(&self, authority: &str) -> Result<TcpStream, String> {
        let mut stream = self.connect().await;
        let request = format!("CONNECT {authority} HTTP/1.1\r\nhost: {authority}\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let head = read_head(&mut stream).await;
        if head.starts_with("HTTP/1.1 200 ") {
            return Ok(stream);
        }
        Err(head + &read_to_end(&mut stream).await)
    }

    pub(crate) async fn next_record(&mut self) -> ConnectionRecord {
        timeout(PATIENCE, self.records.recv()).await.expect("a record").expect("the proxy runs")
    }

    pub(crate) fn no_more_records(&mut self) -> bool {
        self.records.try_recv().is_err()
    }

    /// Skips to the end of the next connection that got through.
    pub(crate) async fn next_closed(&mut self) -> (u64, u64) {
        loop {
            if let ConnectionEvent::Closed { bytes_up, bytes_down, .. } = self.next_record().await.event {
                return (bytes_up, bytes_down);
            }
        }
    }
}

pub(crate) fn short(change: impl FnOnce(&mut Bounds)) -> Bounds {
    let mut bounds = Bounds::default();
    change(&mut bounds);
    bounds
}

/// Answers from a table; each name's answers in turn, the last one for ever.
pub(crate) struct Table {
    answers: HashMap<&'static str, Vec<Vec<IpAddr>>>,
    pub(crate) asked: AtomicUsize,
}

impl Table {
    pub(crate) fn new(answers: &[(&'static str, &[&str])]) -> Arc<Self> {
        Self::in_turn(answers.iter().map(|(name, addresses)| (*name, vec![*addresses])).collect())
    }

    pub(crate) fn in_turn(answers: Vec<(&'static str, Vec<&[&str]>)>) -> Arc<Self> {
        let parse = |list: &[&str]| list.iter().map(|a| a.parse().unwrap()).collect();
        let answers = answers.into_iter().map(|(name, turns)| (name, turns.into_iter().map(parse).collect()));
        Arc::new(Self { answers: answers.collect(), asked: AtomicUsize::new(0) })
    }
}

impl Resolver for Table {
    fn resolve<'a>(&'a self, host: &'a str) -> Resolution<'a> {
        let turn = self.asked.fetch_add(1, Ordering::SeqCst);
        let unknown = || std::io::Error::other("not in the table");
        let answer = self.answers.get(host).and_then(|turns| turns.get(turn).or(turns.last())).cloned();
        Box::pin(async move { answer.ok_or_else(unknown) })
    }
}

/// A server that sends back what it gets, until the other side is done.
pub(crate) async fn echo_server(ip: &str) -> SocketAddr {
    serve(ip, |mut stream| async move {
        let (mut read, mut write) = stream.split();
        let _ = tokio::io::copy(&mut read, &mut write).await;
    })
    .await
}

/// A server that reads one whole request and answers with these bytes. The requests come out of the channel.
pub(crate) async fn http_server(ip: &str, answer: &'static str) -> (SocketAddr, mpsc::UnboundedReceiver<String>) {
    let (sender, requests) = mpsc::unbounded_channel();
    let address = serve(ip, move |mut stream| {
        let sender = sender.clone();
        async move {
            let request = read_request(&mut stream).await;
            let _ = sender.send(request);
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    })
    .await;
    (address, requests)
}

/// With room for crowds: the standard library's backlog of 128 makes them wait for the kernel's retries.
fn listen(ip: &str) -> TcpListener {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::new(ip.parse().unwrap(), 0)).unwrap();
    socket.listen(1024).unwrap()
}

pub(crate) async fn serve<F: Future<Output = ()> + Send + 'static>(
    ip: &str,
    handle: impl Fn(TcpStream) -> F + Send + 'static,
) -> SocketAddr {
    let listener = listen(ip);
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(handle(stream));
        }
    });
    address
}

/// An answer that is broken off counts as it came.
pub(crate) async fn read_to_end(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let _ = timeout(PATIENCE, stream.read_to_end(&mut bytes)).await.expect("the other side closes");
    String::from_utf8(bytes).unwrap()
}

/// Up to the empty line and not a byte further.
pub(crate) async fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match timeout(PATIENCE, stream.read_u8()).await.expect("an answer") {
            Ok(byte) => head.push(byte),
            Err(_) => break,
        }
    }
    String::from_utf8(head).unwrap()
}

async fn read_request(stream: &mut TcpStream) -> String {
    let mut request = read_head(stream).await;
    let length = request.lines().find_map(|line| line.strip_prefix("content-length: ")).map(|l| l.parse().unwrap());
    if let Some(length) = length {
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await.unwrap();
        request += std::str::from_utf8(&body).unwrap();
    } else if request.contains("transfer-encoding: chunked\r\n") {
        while !request.ends_with("0\r\n\r\n") {
            request.push(stream.read_u8().await.unwrap().into());
        }
    }
    request
}
