//! The load: connections that send prepared requests one after the other, all on one thread. What it measures is the
//! time of each answer, and what it spent itself.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::Result;
use rustix::time::{ClockId, clock_gettime};
use tokio::task::LocalSet;

use super::http::Connection;
use crate::stats::Samples;

#[derive(Debug)]
pub struct Load {
    pub address: SocketAddr,
    pub connections: usize,
    /// Taken in turns by whichever connection is free.
    pub requests: Vec<Vec<u8>>,
    pub amount: Amount,
    /// Of each connection, between an answer and the next request.
    pub pause: Duration,
}

#[derive(Debug, Clone, Copy)]
pub enum Amount {
    Requests(usize),
    Time(Duration),
}

#[derive(Debug)]
pub struct Loaded {
    pub took: Duration,
    /// One for each request.
    pub times: Samples,
    /// Seconds of processor time of the thread that made the load.
    pub own_cpu: f64,
}

impl Loaded {
    pub fn rate(&self) -> f64 {
        self.times.len() as f64 / self.took.as_secs_f64()
    }
}

/// Runs what a client does on this thread alone: a thread more would be taken from the server.
pub fn block_on<T>(client: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, client)
}

impl Load {
    pub async fn drive(self) -> Result<Loaded> {
        let mut connections = Vec::new();
        for _ in 0..self.connections {
            connections.push(Connection::open(self.address).await?);
        }
        let (start, cpu) = (Instant::now(), thread_cpu());
        let shared = Rc::new(Shared { load: self, start, sent: Cell::new(0), times: RefCell::default() });
        let mut tasks = Vec::new();
        for connection in connections {
            tasks.push(tokio::task::spawn_local(shared.clone().keep_asking(connection)));
        }
        for task in tasks {
            task.await??;
        }
        Ok(Loaded { took: start.elapsed(), times: shared.times.take(), own_cpu: thread_cpu() - cpu })
    }
}

struct Shared {
    load: Load,
    start: Instant,
    sent: Cell<usize>,
    times: RefCell<Samples>,
}

impl Shared {
    async fn keep_asking(self: Rc<Self>, mut connection: Connection) -> Result<()> {
        while let Some(request) = self.next() {
            let start = Instant::now();
            connection.ask(request).await?;
            self.times.borrow_mut().push(start.elapsed().as_secs_f64());
            if !self.load.pause.is_zero() {
                tokio::time::sleep(self.load.pause).await;
            }
        }
        Ok(())
    }

    fn next(&self) -> Option<&[u8]> {
        let is_over = match self.load.amount {
            Amount::Requests(most) => self.sent.get() >= most,
            Amount::Time(most) => self.start.elapsed() >= most,
        };
        let sent = self.sent.get();
        self.sent.set(sent + 1);
        (!is_over).then(|| self.load.requests[sent % self.load.requests.len()].as_slice())
    }
}

fn thread_cpu() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
