//! Counts the bytes of a connection and notices when there are none. Decides nothing.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until};

/// Shared by a stream and whoever watches it.
#[derive(Debug)]
pub(super) struct Meter {
    written: AtomicU64,
    read: AtomicU64,
    started: Instant,
    /// Milliseconds from `started` to the last byte in either direction.
    last_byte_ms: AtomicU64,
}

impl Meter {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            written: AtomicU64::new(0),
            read: AtomicU64::new(0),
            started: Instant::now(),
            last_byte_ms: AtomicU64::new(0),
        })
    }

    pub(super) fn bytes_written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    pub(super) fn bytes_read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    pub(super) fn age(&self) -> Duration {
        self.started.elapsed()
    }

    /// Ready once no byte has moved for `limit`.
    pub(super) async fn idle_for(&self, limit: Duration) {
        let idle_at = || self.started + Duration::from_millis(self.last_byte_ms.load(Ordering::Relaxed)) + limit;
        while Instant::now() < idle_at() {
            sleep_until(idle_at()).await;
        }
    }

    fn count(&self, counter: &AtomicU64, bytes: usize) {
        if bytes > 0 {
            counter.fetch_add(bytes as u64, Ordering::Relaxed);
            self.last_byte_ms.store(self.age().as_millis() as u64, Ordering::Relaxed);
        }
    }
}

#[derive(Debug)]
pub(super) struct Metered {
    stream: TcpStream,
    meter: Arc<Meter>,
}

impl Metered {
    pub(super) fn new(stream: TcpStream, meter: Arc<Meter>) -> Self {
        Self { stream, meter }
    }
}

impl AsyncRead for Metered {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(cx, buf))?;
        this.meter.count(&this.meter.read, buf.filled().len() - before);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Metered {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = ready!(Pin::new(&mut this.stream).poll_write(cx, buf))?;
        this.meter.count(&this.meter.written, written);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = ready!(Pin::new(&mut this.stream).poll_write_vectored(cx, bufs))?;
        this.meter.count(&this.meter.written, written);
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}
