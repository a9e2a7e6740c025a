//! The other end of the guest's HTTP/2: every request the guest knows as one method. The guest is not trusted here:
//! answers are bounded in size, frames are checked, and what it says is data.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use cofferdam_linux::files::percent_encode;
use cofferdam_protocol::exec::{ExecId, ExecRequest, ExecStatus, TerminalSize};
use cofferdam_protocol::files::{FileChange, FileList, FileStat};
use cofferdam_protocol::output::{FrameReader, Stream};
use cofferdam_protocol::usage::Usage;
use http_body_util::{BodyExt, Limited};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http2::SendRequest;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;

use crate::SandboxError;

/// A listing of 50,000 entries with long names; more is not an answer but an attack.
const JSON_MAX_BYTES: usize = 64 * 1024 * 1024;
/// What [`Client::run`] collects.
const RUN_MAX_BYTES: u64 = 64 * 1024 * 1024;
/// The sentence that comes with a refusal.
const MESSAGE_MAX_BYTES: usize = 16 * 1024;
/// A guest that takes longer for a short answer is stuck; whoever asks must not be stuck with it.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Windows and frames sized for the throughput of output, see the guest's own.
const FRAME_BYTES: u32 = 1024 * 1024;
const STREAM_WINDOW_BYTES: u32 = 2 * 1024 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 8 * 1024 * 1024;

/// One connection to a guest. Clones share it.
#[derive(Debug, Clone)]
pub struct Client {
    sender: SendRequest<RequestBody>,
}

/// What a request carries.
#[derive(Debug)]
pub enum RequestBody {
    Bytes(Option<Bytes>),
    /// Chunks as they come; dropping the sender ends it, sending an error breaks it off.
    Chunks(mpsc::Receiver<io::Result<Bytes>>),
}

impl hyper::body::Body for RequestBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let chunk = match self.get_mut() {
            Self::Bytes(bytes) => Poll::Ready(bytes.take().map(Ok)),
            Self::Chunks(receiver) => receiver.poll_recv(context),
        };
        chunk.map(|chunk| chunk.map(|chunk| chunk.map(Frame::data)))
    }
}

impl Client {
    /// Speaks HTTP/2 over any byte stream. The connection is driven by a task of the current runtime.
    pub async fn over(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Result<Self, SandboxError> {
        let (sender, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
            .max_frame_size(FRAME_BYTES)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_header_list_size(16 * 1024)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(connection_error)?;
        // Its end shows as an error at every request; there is nothing more to tell.
        tokio::spawn(async move { drop(connection.await) });
        Ok(Self { sender })
    }

    /// Starts a command, or attaches to the one with this id, and follows it from `position`. With `keep`, output
    /// stays in the guest until [`Client::acknowledge`].
    pub async fn exec(
        &self,
        id: &ExecId,
        request: &ExecRequest,
        position: u64,
        keep: bool,
    ) -> Result<ExecStream, SandboxError> {
        let keep = if keep { "&keep" } else { "" };
        let path = format!("/exec/{id}?from={position}{keep}");
        let response = self.send("POST", &path, json_body(request)?).await?;
        Ok(ExecStream { body: response.into_body(), reader: FrameReader::starting_at(position) })
    }

    /// Runs a command to its end and collects what it printed, as long as that is small.
    pub async fn run(&self, id: &ExecId, request: &ExecRequest) -> Result<Finished, SandboxError> {
        let mut stream = self.exec(id, request, 0, false).await?;
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let mut sink = |stream: Stream, data: &[u8]| match stream {
            Stream::Stdout => stdout.extend_from_slice(data),
            Stream::Stderr => stderr.extend_from_slice(data),
        };
        while stream.next(&mut sink).await? {
            if stream.position() > RUN_MAX_BYTES {
                self.kill(id).await?;
                return Err(SandboxError::Connection(
                    "the command printed more than 64 MiB; follow it instead".to_owned(),
                ));
            }
        }
        let status = stream.finish()?;
        Ok(Finished { stdout, stderr, status })
    }

    /// Feeds a command's standard input; it closes when the sender of `chunks` is dropped.
    pub async fn stdin(&self, id: &ExecId, chunks: mpsc::Receiver<io::Result<Bytes>>) -> Result<(), SandboxError> {
        self.nothing("POST", &format!("/exec/{id}/stdin"), RequestBody::Chunks(chunks)).await
    }

    pub async fn signal(&self, id: &ExecId, signal: i32) -> Result<(), SandboxError> {
        self.nothing("POST", &format!("/exec/{id}/signal"), json_body(&signal)?).await
    }

    /// Ends every process of the command.
    pub async fn kill(&self, id: &ExecId) -> Result<(), SandboxError> {
        self.nothing("POST", &format!("/exec/{id}/kill"), empty()).await
    }

    pub async fn resize(&self, id: &ExecId, size: TerminalSize) -> Result<(), SandboxError> {
        self.nothing("POST", &format!("/exec/{id}/resize"), json_body(&size)?).await
    }

    pub async fn acknowledge(&self, id: &ExecId, position: u64) -> Result<(), SandboxError> {
        self.nothing("POST", &format!("/exec/{id}/ack?to={position}"), empty()).await
    }

    pub async fn status(&self, id: &ExecId) -> Result<ExecStatus, SandboxError> {
        self.json("GET", &format!("/exec/{id}"), empty()).await
    }

    pub async fn execs(&self) -> Result<Vec<ExecStatus>, SandboxError> {
        self.json("GET", "/exec", empty()).await
    }

    /// The result has been stored elsewhere; the guest may forget it.
    pub async fn forget(&self, id: &ExecId) -> Result<(), SandboxError> {
        self.nothing("DELETE", &format!("/exec/{id}"), empty()).await
    }

    /// The bytes of a file, or of a part of it, as a stream.
    pub async fn read_file(&self, path: &[u8], range: Option<(u64, u64)>) -> Result<Incoming, SandboxError> {
        let mut request = build("GET", &format!("/files/{}", percent_encode(path)), empty())?;
        if let Some((first, last)) = range {
            let value = format!("bytes={first}-{last}").parse().expect("digits are a header value");
            request.headers_mut().insert(hyper::header::RANGE, value);
        }
        Ok(self.dispatch(request).await?.into_body())
    }

    pub async fn write_file(
        &self,
        path: &[u8],
        content: RequestBody,
        options: WriteFile,
    ) -> Result<FileStat, SandboxError> {
        let mut query = String::new();
        if options.append {
            query.push_str("&append");
        }
        if options.parents {
            query.push_str("&parents");
        }
        if let Some(mode) = options.mode {
            query.push_str(&format!("&mode={mode}"));
        }
        let query = query.strip_prefix('&').unwrap_or("");
        self.json("PUT", &format!("/files/{}?{query}", percent_encode(path)), content).await
    }

    pub async fn stat(&self, path: &[u8]) -> Result<FileStat, SandboxError> {
        self.json("GET", &format!("/stat/{}", percent_encode(path)), empty()).await
    }

    pub async fn list(&self, path: &[u8]) -> Result<FileList, SandboxError> {
        self.json("GET", &format!("/list/{}", percent_encode(path)), empty()).await
    }

    pub async fn tree(&self, path: &[u8], depth: usize) -> Result<FileList, SandboxError> {
        self.json("GET", &format!("/tree/{}?depth={depth}", percent_encode(path)), empty()).await
    }

    pub async fn make_directory(&self, path: &[u8], parents: bool) -> Result<(), SandboxError> {
        let parents = if parents { "?parents" } else { "" };
        self.nothing("POST", &format!("/mkdir/{}{parents}", percent_encode(path)), empty()).await
    }

    pub async fn rename(&self, from: &[u8], to: &[u8]) -> Result<(), SandboxError> {
        let both = serde_json::json!({ "from": percent_encode(from), "to": percent_encode(to) });
        self.nothing("POST", "/move", json_body(&both)?).await
    }

    pub async fn remove(&self, path: &[u8], recursive: bool) -> Result<(), SandboxError> {
        let recursive = if recursive { "?recursive" } else { "" };
        self.nothing("DELETE", &format!("/files/{}{recursive}", percent_encode(path)), empty()).await
    }

    pub async fn tar_out(&self, path: &[u8]) -> Result<Incoming, SandboxError> {
        Ok(self.send("GET", &format!("/tar/{}", percent_encode(path)), empty()).await?.into_body())
    }

    pub async fn tar_in(&self, path: &[u8], archive: RequestBody) -> Result<(), SandboxError> {
        self.json::<serde_json::Value>("PUT", &format!("/tar/{}", percent_encode(path)), archive).await.map(drop)
    }

    /// Changes below a directory, from now on.
    pub async fn watch(&self, path: &[u8]) -> Result<Changes, SandboxError> {
        let response = self.send("GET", &format!("/watch/{}", percent_encode(path)), empty()).await?;
        Ok(Changes { body: response.into_body(), line: Vec::new() })
    }

    pub async fn usage(&self) -> Result<Usage, SandboxError> {
        self.json("GET", "/usage", empty()).await
    }

    /// From the first call on the sandbox outlives its launcher, each time by this much.
    pub async fn renew_lease(&self, ttl_ms: u64) -> Result<(), SandboxError> {
        self.nothing("PUT", "/lease", json_body(&ttl_ms)?).await
    }

    /// Asks the guest to end the sandbox.
    pub async fn end(&self) -> Result<(), SandboxError> {
        self.nothing("DELETE", "/sandbox", empty()).await
    }

    async fn nothing(&self, method: &str, path: &str, body: RequestBody) -> Result<(), SandboxError> {
        self.json(method, path, body).await
    }

    async fn json<T: DeserializeOwned>(&self, method: &str, path: &str, body: RequestBody) -> Result<T, SandboxError> {
        // A body that comes in pieces comes at its sender's pace.
        let timeout = if matches!(body, RequestBody::Bytes(_)) { ANSWER_TIMEOUT } else { Duration::MAX };
        let answered = async {
            let body = self.send(method, path, body).await?.into_body();
            Limited::new(body, JSON_MAX_BYTES).collect().await.map_err(SandboxError::connection)
        };
        let silent = |_| SandboxError::Connection("it does not answer".to_owned());
        let bytes = tokio::time::timeout(timeout, answered).await.map_err(silent)??.to_bytes();
        serde_json::from_slice(&bytes)
            .map_err(|error| SandboxError::Connection(format!("its answer is not valid: {error}")))
    }

    async fn send(&self, method: &str, path: &str, body: RequestBody) -> Result<Response<Incoming>, SandboxError> {
        self.dispatch(build(method, path, body)?).await
    }

    async fn dispatch(&self, request: Request<RequestBody>) -> Result<Response<Incoming>, SandboxError> {
        let response = self.sender.clone().send_request(request).await.map_err(connection_error)?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status().as_u16();
        let body = Limited::new(response.into_body(), MESSAGE_MAX_BYTES).collect().await;
        let message = body.map(|body| String::from_utf8_lossy(&body.to_bytes()).trim_end().to_owned());
        Err(SandboxError::Refused { status, message: message.unwrap_or_default() })
    }
}

/// How a file is written.
#[derive(Debug, Clone, Copy, Default)]
pub struct WriteFile {
    pub append: bool,
    /// Make missing directories on the way.
    pub parents: bool,
    pub mode: Option<u32>,
}

/// A command that has ended, with all that it printed.
#[derive(Debug, Clone)]
pub struct Finished {
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub status: ExecStatus,
}

/// A command's output as it comes.
#[derive(Debug)]
pub struct ExecStream {
    body: Incoming,
    reader: FrameReader,
}

impl ExecStream {
    /// Where to resume if this stream breaks.
    pub fn position(&self) -> u64 {
        self.reader.position()
    }

    /// How many of the bytes handed on last will come again when it is resumed from [`ExecStream::position`].
    pub fn unfinished_bytes(&self) -> usize {
        self.reader.unfinished_bytes()
    }

    /// Hands the next piece to `sink`; false when the output has ended.
    pub async fn next(&mut self, sink: impl FnMut(Stream, &[u8])) -> Result<bool, SandboxError> {
        let Some(frame) = self.body.frame().await else { return Ok(false) };
        if let Ok(data) = frame.map_err(connection_error)?.into_data() {
            self.reader.push(&data, sink)?;
        }
        Ok(true)
    }

    /// To the end, and how it ended.
    pub async fn follow(mut self, mut sink: impl FnMut(Stream, &[u8])) -> Result<ExecStatus, SandboxError> {
        while self.next(&mut sink).await? {}
        self.finish()
    }

    pub fn finish(self) -> Result<ExecStatus, SandboxError> {
        Ok(self.reader.finish(|bytes| serde_json::from_slice(bytes))?)
    }
}

/// Changes in the workspace, one at a time.
#[derive(Debug)]
pub struct Changes {
    body: Incoming,
    line: Vec<u8>,
}

impl Changes {
    pub async fn next(&mut self) -> Result<Option<FileChange>, SandboxError> {
        loop {
            if let Some(end) = self.line.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.line.drain(..=end).collect();
                return serde_json::from_slice(&line).map(Some).map_err(SandboxError::connection);
            }
            if self.line.len() > JSON_MAX_BYTES {
                return Err(SandboxError::Connection("its answer has no end".to_owned()));
            }
            let Some(frame) = self.body.frame().await else { return Ok(None) };
            if let Ok(data) = frame.map_err(connection_error)?.into_data() {
                self.line.extend_from_slice(&data);
            }
        }
    }
}

impl SandboxError {
    fn connection(error: impl std::fmt::Display) -> Self {
        Self::Connection(error.to_string())
    }
}

fn connection_error(error: hyper::Error) -> SandboxError {
    SandboxError::connection(error)
}

fn empty() -> RequestBody {
    RequestBody::Bytes(None)
}

fn json_body<T: Serialize>(value: &T) -> Result<RequestBody, SandboxError> {
    let bytes = serde_json::to_vec(value).map_err(SandboxError::connection)?;
    Ok(RequestBody::Bytes(Some(bytes.into())))
}

fn build(method: &str, path: &str, body: RequestBody) -> Result<Request<RequestBody>, SandboxError> {
    let uri = format!("http://guest{path}");
    Request::builder().method(method).uri(uri).body(body).map_err(SandboxError::connection)
}
