//! The workspace's files over HTTP: decodes paths and parameters, streams bodies, and leaves everything about paths
//! and their safety to [`cofferdam_linux::files`].
//!
//! ```text
//! GET    /files/{path}              the content; a Range header asks for a part
//! PUT    /files/{path}?append&parents&mode=420   the body becomes the content, at once or not at all
//! DELETE /files/{path}?recursive    GET /stat/{path}?follow     GET /list/{path}     GET /tree/{path}?depth=N
//! POST   /mkdir/{path}?parents      POST /move  {"from", "to"} percent-encoded
//! GET    /tar/{path}                PUT /tar/{path}             GET /watch/{path}    one JSON line per change
//! ```

use std::io::{self, Read, Write};

use bytes::Bytes;
use cofferdam_linux::files::{
    ARCHIVE_DEFAULT_LIMITS, FileError, RelativePath, Watcher, Workspace, WriteOptions, percent_decode,
};
use cofferdam_protocol::request::{self, MoveRequest};
use http_body_util::BodyExt;
use hyper::body::{Frame, Incoming};
use hyper::header::{CONTENT_LENGTH, RANGE};
use hyper::{Request, Response, StatusCode};
use tokio::sync::mpsc;

use crate::server::{Answer, Body, Problem, bytes_body, json, number_parameter, parameter, read_json};
use crate::sys;

/// Files up to this size are read at once; larger ones by a thread that reads ahead.
const INLINE_MAX_BYTES: u64 = 64 * 1024;
const CHUNK_BYTES: usize = 256 * 1024;
/// Chunks between a thread that reads or writes files and the connection: what one transfer holds in memory.
const CHUNKS_AHEAD: usize = 4;
/// Levels of a tree when the request names none.
const TREE_DEPTH_DEFAULT: u64 = 64;

pub async fn route(workspace: &Workspace, resource: &str, path: &str, request: Request<Incoming>) -> Answer {
    if resource == "move" && request.method() == "POST" {
        return rename(workspace, request).await;
    }
    let path = parse(path)?;
    let flag = |name| parameter(&request, name).is_some();
    match (request.method().as_str(), resource) {
        ("GET", "files") => read(workspace, &path, &request),
        ("PUT", "files") => write(workspace, &path, request).await,
        ("DELETE", "files") => {
            // A tree may be large, and somebody inside may be adding to it.
            let (workspace, recursive) = (workspace.try_clone().map_err(problem)?, flag("recursive"));
            let removed = tokio::task::spawn_blocking(move || workspace.remove(&path, recursive)).await;
            json(&removed.map_err(broken)?.map_err(problem)?)
        }
        ("GET", "stat") => json(&workspace.stat(&path, flag("follow")).map_err(problem)?),
        ("GET", "list") => json(&workspace.list(&path).map_err(problem)?),
        ("GET", "tree") => {
            let depth = number_parameter(&request, "depth")?.unwrap_or(TREE_DEPTH_DEFAULT);
            let workspace = workspace.try_clone().map_err(problem)?;
            let tree = tokio::task::spawn_blocking(move || workspace.tree(&path, depth as usize)).await;
            json(&tree.map_err(broken)?.map_err(problem)?)
        }
        ("POST", "mkdir") => json(&workspace.mkdir(&path, flag("parents")).map_err(problem)?),
        ("GET", "tar") => tar_out(workspace, path),
        ("PUT", "tar") => tar_in(workspace, path, request.into_body()).await,
        ("GET", "watch") => watch(workspace, &path),
        (method, _) => {
            Err(Problem::new(StatusCode::METHOD_NOT_ALLOWED, format!("{method} is not a request for /{resource}")))
        }
    }
}

fn parse(path: &str) -> Result<RelativePath, Problem> {
    let bytes = percent_decode(path).map_err(problem)?;
    RelativePath::parse(&bytes).map_err(problem)
}

async fn rename(workspace: &Workspace, request: Request<Incoming>) -> Answer {
    let MoveRequest { from, to } = read_json(request).await?;
    json(&workspace.rename(&parse(&from)?, &parse(&to)?).map_err(problem)?)
}

fn read(workspace: &Workspace, path: &RelativePath, request: &Request<Incoming>) -> Answer {
    let range = request.headers().get(RANGE).map(|range| request::range(range.to_str().unwrap_or(""))).transpose()?;
    let partial = range.is_some();
    let (mut content, stat) = workspace.read(path, range).map_err(problem)?;
    let length = content.limit();
    let mut response = if length <= INLINE_MAX_BYTES {
        let mut bytes = Vec::with_capacity(length as usize);
        content
            .read_to_end(&mut bytes)
            .map_err(|error| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
        Response::new(bytes_body(bytes))
    } else {
        let (sender, receiver) = mpsc::channel(CHUNKS_AHEAD);
        tokio::task::spawn_blocking(move || {
            let mut writer = io::BufWriter::with_capacity(CHUNK_BYTES, ChunkWriter { sender: sender.clone() });
            if let Err(error) = io::copy(&mut content, &mut writer).and_then(|_| writer.flush()) {
                let _ = sender.blocking_send(Err(error));
            }
        });
        Response::new(Body::Chunks(receiver))
    };
    if partial {
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    }
    // Of the whole file, so that a reader of a part knows how much there is.
    response.headers_mut().insert("x-file-size", stat.size_bytes.into());
    Ok(response)
}

async fn write(workspace: &Workspace, path: &RelativePath, request: Request<Incoming>) -> Answer {
    let options = WriteOptions {
        mode: request::mode_parameter(request.uri().query().unwrap_or_default())?,
        append: parameter(&request, "append").is_some(),
        parents: parameter(&request, "parents").is_some(),
    };
    let announced = request.headers().get(CONTENT_LENGTH).and_then(|l| l.to_str().ok()?.parse::<u64>().ok());
    let mut writer = workspace.write(path, options).map_err(problem)?;
    let mut body = request.into_body();
    let mut received = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Problem::new(StatusCode::BAD_REQUEST, error.to_string()))?;
        if let Ok(data) = frame.into_data() {
            received += data.len() as u64;
            writer.write_all(&data).map_err(no_space)?;
        }
    }
    if announced.is_some_and(|announced| announced != received) {
        return Err(Problem::new(StatusCode::BAD_REQUEST, "the body ended before its announced length"));
    }
    json(&writer.commit().map_err(problem)?)
}

fn tar_out(workspace: &Workspace, path: RelativePath) -> Answer {
    let workspace = workspace.try_clone().map_err(problem)?;
    // Problems with the path itself are told by status, not in the middle of an archive.
    workspace.stat(&path, true).map_err(problem)?;
    let (sender, receiver) = mpsc::channel(CHUNKS_AHEAD);
    tokio::task::spawn_blocking(move || {
        let mut writer = io::BufWriter::with_capacity(CHUNK_BYTES, ChunkWriter { sender: sender.clone() });
        let archived = workspace.tar_out(&path, &mut writer, ARCHIVE_DEFAULT_LIMITS).map_err(io::Error::other);
        if let Err(error) = archived.and_then(|_| writer.flush()) {
            let _ = sender.blocking_send(Err(error));
        }
    });
    Ok(Response::new(Body::Chunks(receiver)))
}

async fn tar_in(workspace: &Workspace, path: RelativePath, mut body: Incoming) -> Answer {
    let workspace = workspace.try_clone().map_err(problem)?;
    let (sender, receiver) = mpsc::channel(CHUNKS_AHEAD);
    let extracting = tokio::task::spawn_blocking(move || {
        workspace.tar_in(&path, ChunkReader { receiver, current: Bytes::new() }, ARCHIVE_DEFAULT_LIMITS)
    });
    while let Some(frame) = body.frame().await {
        let data = frame.map(Frame::into_data).map_err(io::Error::other);
        let chunk = match data {
            Ok(Ok(data)) => Ok(data),
            Ok(Err(_trailers)) => continue,
            Err(error) => Err(error),
        };
        // The archive's end, or an error, which is reported below: the rest of the body is not wanted.
        if sender.send(chunk).await.is_err() {
            break;
        }
    }
    drop(sender);
    let extracted = extracting.await.map_err(broken)?.map_err(problem)?;
    json(&serde_json::json!({ "entries": extracted.entries, "bytes": extracted.bytes, "skipped": extracted.skipped }))
}

fn watch(workspace: &Workspace, path: &RelativePath) -> Answer {
    let mut watcher = workspace.watch(path).map_err(problem)?;
    let descriptor = rustix::io::fcntl_dupfd_cloexec(&watcher, 3).map_err(broken)?;
    let watched = sys::watch(descriptor).map_err(broken)?;
    let (sender, receiver) = mpsc::channel(CHUNKS_AHEAD);
    tokio::task::spawn_local(async move {
        // First what setting up found out, then whatever comes; until the other side stops listening.
        while send_changes(&mut watcher, &sender).await.is_some() {
            tokio::select! {
                ready = watched.readable() => match ready {
                    Ok(mut ready) => ready.clear_ready(),
                    Err(_) => return,
                },
                () = sender.closed() => return,
            }
        }
    });
    Ok(Response::new(Body::Chunks(receiver)))
}

async fn send_changes(watcher: &mut Watcher, sender: &mpsc::Sender<io::Result<Bytes>>) -> Option<()> {
    let mut lines = Vec::new();
    for change in watcher.read_changes().ok()? {
        serde_json::to_writer(&mut lines, &change).ok()?;
        lines.push(b'\n');
    }
    if lines.is_empty() {
        return Some(());
    }
    sender.send(Ok(lines.into())).await.ok()
}

/// The blocking side's end of a body that is sent.
struct ChunkWriter {
    sender: mpsc::Sender<io::Result<Bytes>>,
}

impl Write for ChunkWriter {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let gone = |_| io::Error::from(io::ErrorKind::BrokenPipe);
        self.sender.blocking_send(Ok(Bytes::copy_from_slice(data))).map_err(gone)?;
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The blocking side's end of a body that is received.
struct ChunkReader {
    receiver: mpsc::Receiver<io::Result<Bytes>>,
    current: Bytes,
}

impl Read for ChunkReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.current.is_empty() {
            match self.receiver.blocking_recv() {
                Some(chunk) => self.current = chunk?,
                None => return Ok(0),
            }
        }
        let length = buffer.len().min(self.current.len());
        buffer[..length].copy_from_slice(&self.current.split_to(length));
        Ok(length)
    }
}

fn problem(error: FileError) -> Problem {
    let status = match &error {
        FileError::NotFound { .. } => StatusCode::NOT_FOUND,
        FileError::Escapes { .. } | FileError::PermissionDenied { .. } => StatusCode::FORBIDDEN,
        FileError::AlreadyExists { .. } | FileError::NotEmpty { .. } | FileError::Busy { .. } => StatusCode::CONFLICT,
        FileError::NoSpace { .. } => StatusCode::INSUFFICIENT_STORAGE,
        FileError::ArchiveTooLarge { .. } | FileError::TreeTooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
        FileError::Io { .. } | FileError::KernelTooOld => StatusCode::INTERNAL_SERVER_ERROR,
        _ => StatusCode::BAD_REQUEST,
    };
    Problem::new(status, error.to_string())
}

fn no_space(error: io::Error) -> Problem {
    let status = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => StatusCode::INSUFFICIENT_STORAGE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    Problem::new(status, format!("the file could not be written: {error}; nothing was changed"))
}

fn broken(error: impl std::fmt::Display) -> Problem {
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, format!("the guest could not do it: {error}"))
}
