//! Ends what does not move: answers that a client does not take, and bodies that a client does not send. Connections
//! on which nothing is owed, between requests or while a handler works, are left alone.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::Request;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::EXPECT;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// A stream whose writes fail once the peer has taken nothing for a while.
#[derive(Debug)]
pub(super) struct StallGuard<S, P> {
    stream: S,
    write: Patience,
    /// Given back with the stream, whoever has that by then: an upgraded one outlives the requests on it.
    _place: P,
}

/// A request's body, which fails once nothing of it has come for a while though it is waited for. What a handler
/// leaves of it is read and thrown away, within bounds: closing the connection on a client that still sends would take
/// the answer from it, which says why the rest is not wanted.
#[derive(Debug)]
pub(super) struct StallBody {
    /// Until it is dropped.
    body: Option<Incoming>,
    read: Patience,
    /// The client waits to be asked for the body, and has not been.
    is_held_back: bool,
}

/// Of a body that nobody wants. Most clients stop once they see the answer; others send all before they look.
const UNWANTED_MAX_BYTES: u64 = 128 << 20;
const UNWANTED_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
#[error("nothing came for {} s", .0.as_secs_f32())]
pub(super) struct BodyStalled(Duration);

#[derive(Debug)]
struct Patience {
    timeout: Duration,
    /// Made when there is first something to wait for, and used again.
    timer: Option<Pin<Box<Sleep>>>,
    is_waiting: bool,
}

impl Patience {
    fn new(timeout: Duration) -> Self {
        Self { timeout, timer: None, is_waiting: false }
    }

    fn moved(&mut self) {
        self.is_waiting = false;
    }

    /// To be called while nothing moves; ready when that has lasted too long.
    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let timeout = self.timeout;
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(timeout)));
        if !self.is_waiting {
            self.is_waiting = true;
            timer.as_mut().reset(Instant::now() + timeout);
        }
        timer.as_mut().poll(context)
    }
}

impl<S, P> StallGuard<S, P> {
    pub(super) fn new(stream: S, timeout: Duration, place: P) -> Self {
        Self { stream, write: Patience::new(timeout), _place: place }
    }

    fn judge<T>(&mut self, context: &mut Context<'_>, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if result.is_ready() {
            self.write.moved();
            return result;
        }
        ready!(self.write.poll_end(context));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client takes nothing")))
    }
}

impl<S: AsyncRead + Unpin, P: Unpin> AsyncRead for StallGuard<S, P> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin, P: Unpin> AsyncWrite for StallGuard<S, P> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.judge(cx, result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.judge(cx, result)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl StallBody {
    pub(super) fn new(request: Request<Incoming>, timeout: Duration) -> Request<Self> {
        let is_held_back = request.headers().contains_key(EXPECT);
        request.map(|body| Self { body: Some(body), read: Patience::new(timeout), is_held_back })
    }
}

impl Body for StallBody {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let this = &mut *self;
        let Some(body) = &mut this.body else { return Poll::Ready(None) };
        this.is_held_back = false;
        if let Poll::Ready(frame) = Pin::new(body).poll_frame(cx) {
            this.read.moved();
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        ready!(this.read.poll_end(cx));
        Poll::Ready(Some(Err(BodyStalled(this.read.timeout).into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map(Body::size_hint).unwrap_or_default()
    }
}

impl Drop for StallBody {
    fn drop(&mut self) {
        let Some(mut body) = self.body.take().filter(|body| !self.is_held_back && !body.is_end_stream()) else {
            return;
        };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(tokio::time::timeout(UNWANTED_TIMEOUT, async move {
            let mut room = UNWANTED_MAX_BYTES;
            while let Some(Ok(frame)) = body.frame().await {
                let length = frame.data_ref().map_or(0, |data| data.len() as u64);
                let Some(rest) = room.checked_sub(length) else { return };
                room = rest;
            }
        }));
    }
}
