//! Files on their way in: streamed to the disk, never held in memory, complete or not there. A client that hangs up
//! leaves nothing behind.

use std::io::{self, Read, Write};
use std::path::PathBuf;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::multipart::Multipart;
use axum::extract::{FromRequest, Request};
use axum::http::header::CONTENT_TYPE;
use cofferdam_linux::files::{FileError, RelativePath, Workspace, WriteOptions};
use cofferdam_protocol::event::{EventBody, FileAction};
use cofferdam_protocol::files::FileStat;
use cofferdam_protocol::job::JobId;
use futures_util::{Stream, StreamExt};
use serde::Serialize;
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;
use utoipa::ToSchema;

use super::request::InputFile;
use super::schedule::upload_problem;
use super::{Answer, Api, Named, State, answers, blocking};
use crate::clock::now_ms;
use crate::http::problem::Problem;
use crate::jobs::directory;

/// Chunks between the network and the disk.
const CHUNKS: usize = 8;

#[derive(Debug)]
pub enum UploadError {
    File(FileError),
    /// The client, or the network.
    Body(String),
    TooLarge(u64),
}

impl From<FileError> for UploadError {
    fn from(error: FileError) -> Self {
        Self::File(error)
    }
}

/// Input files of a job that does not exist yet. Removed again unless the job comes to be.
#[derive(Debug)]
pub struct Staging {
    path: PathBuf,
    /// Made when the first file comes.
    files: Option<Workspace>,
    room_bytes: u64,
    most_bytes: u64,
    is_kept: bool,
}

impl Staging {
    pub fn new(api: &Api, id: &JobId) -> Self {
        let inner = api.jobs.inner();
        let most_bytes = inner.settings.upload_max_bytes;
        let path = directory::incoming(&inner.data, id);
        Self { path, files: None, room_bytes: most_bytes, most_bytes, is_kept: false }
    }

    pub fn is_used(&self) -> bool {
        self.files.is_some()
    }

    /// The job has been accepted, its input stays.
    pub fn keep(mut self) {
        self.is_kept = true;
    }

    fn files(&mut self) -> Result<Workspace, UploadError> {
        if self.files.is_none() {
            let wrong = |source| FileError::Io { path: "input".to_owned(), source };
            directory::make(&self.path).map_err(wrong)?;
            self.files = Some(Workspace::open(&self.path)?);
        }
        Ok(self.files.as_ref().expect("it was just opened").try_clone()?)
    }

    pub async fn write(&mut self, file: InputFile) -> Answer<()> {
        let files = self.files().map_err(upload_problem)?;
        blocking(move || {
            let options = WriteOptions { mode: file.mode, append: false, parents: true };
            let mut writer = files.write(&file.path, options)?;
            writer.write_all(&file.content)?;
            writer.commit()?;
            Ok(())
        })
        .await
    }

    pub async fn stream<S, E>(
        &mut self,
        path: &RelativePath,
        body: S,
        hash: &mut Sha256,
    ) -> Result<FileStat, UploadError>
    where
        S: Stream<Item = Result<Bytes, E>> + Unpin,
        E: std::fmt::Display,
    {
        let files = self.files()?;
        let options = WriteOptions { parents: true, ..WriteOptions::default() };
        write_stream(files, path.clone(), options, body, &mut self.room_bytes, self.most_bytes, |chunk| {
            hash.update(chunk);
        })
        .await
    }

    pub async fn unpack<S, E>(&mut self, body: S, hash: &mut Sha256) -> Result<(), UploadError>
    where
        S: Stream<Item = Result<Bytes, E>> + Unpin,
        E: std::fmt::Display,
    {
        let files = self.files()?;
        let most = self.most_bytes;
        unpack(files, body, &mut self.room_bytes, most, |chunk| hash.update(chunk)).await
    }

    /// Copies what another job was given.
    pub async fn copy(&mut self, input: PathBuf) -> Answer<()> {
        let files = self.files().map_err(upload_problem)?;
        let bytes = self.most_bytes;
        blocking(move || {
            let limits = cofferdam_artifacts::copy::CopyLimits { bytes, ..Default::default() };
            cofferdam_artifacts::copy::copy_tree(&Workspace::open(&input)?, &files, limits)
                .map_err(Problem::internal)?;
            Ok(())
        })
        .await
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if self.is_kept || self.files.is_none() {
            return;
        }
        let path = self.path.clone();
        // A tree of any size, and nobody waits for it.
        tokio::task::spawn_blocking(move || std::fs::remove_dir_all(path));
    }
}

/// A body becomes a file, whole or not at all.
pub async fn write_stream<S, E>(
    files: Workspace,
    path: RelativePath,
    options: WriteOptions,
    body: S,
    room_bytes: &mut u64,
    most_bytes: u64,
    see: impl FnMut(&[u8]),
) -> Result<FileStat, UploadError>
where
    S: Stream<Item = Result<Bytes, E>> + Unpin,
    E: std::fmt::Display,
{
    let write = move |mut chunks: Chunks| {
        let fail = |source| FileError::Io { path: path.to_string(), source };
        let mut writer = files.write(&path, options)?;
        while let Some(chunk) = chunks.next_chunk() {
            writer.write_all(&chunk.map_err(fail)?).map_err(fail)?;
        }
        writer.commit()
    };
    pump(body, room_bytes, most_bytes, see, write).await
}

/// A body that is a tar archive becomes files.
async fn unpack<S, E>(
    files: Workspace,
    body: S,
    room_bytes: &mut u64,
    most_bytes: u64,
    see: impl FnMut(&[u8]),
) -> Result<(), UploadError>
where
    S: Stream<Item = Result<Bytes, E>> + Unpin,
    E: std::fmt::Display,
{
    let limits =
        cofferdam_linux::files::ArchiveLimits { bytes: most_bytes, ..cofferdam_linux::files::ARCHIVE_DEFAULT_LIMITS };
    let work = move |chunks: Chunks| files.tar_in(&RelativePath::root(), chunks, limits).map(drop);
    pump(body, room_bytes, most_bytes, see, work).await
}

/// Moves a body to a thread that may block. That thread takes what it got for the whole only once it is told so: a
/// request whose client hangs up is dropped wherever it stands.
async fn pump<S, E, T: Send + 'static>(
    mut body: S,
    room_bytes: &mut u64,
    most_bytes: u64,
    mut see: impl FnMut(&[u8]),
    work: impl FnOnce(Chunks) -> Result<T, FileError> + Send + 'static,
) -> Result<T, UploadError>
where
    S: Stream<Item = Result<Bytes, E>> + Unpin,
    E: std::fmt::Display,
{
    let (sender, receiver) = mpsc::channel(CHUNKS);
    let working =
        tokio::task::spawn_blocking(move || work(Chunks { receiver, current: Bytes::new(), is_whole: false }));
    let mut broken = None;
    while let Some(chunk) = body.next().await {
        let chunk = match chunk {
            Ok(chunk) if chunk.len() as u64 > *room_bytes => {
                broken = Some(UploadError::TooLarge(most_bytes));
                break;
            }
            Ok(chunk) => chunk,
            Err(error) => {
                broken = Some(UploadError::Body(error.to_string()));
                break;
            }
        };
        *room_bytes -= chunk.len() as u64;
        see(&chunk);
        if sender.send(Piece::Data(chunk)).await.is_err() {
            break;
        }
    }
    if broken.is_none() {
        let _ = sender.send(Piece::End).await;
    }
    drop(sender);
    let worked = working.await.map_err(|error| UploadError::Body(error.to_string()))?;
    match broken {
        Some(error) => Err(error),
        None => Ok(worked?),
    }
}

enum Piece {
    Data(Bytes),
    End,
}

/// A body as blocking code reads it.
struct Chunks {
    receiver: mpsc::Receiver<Piece>,
    current: Bytes,
    is_whole: bool,
}

impl Chunks {
    fn next_chunk(&mut self) -> Option<io::Result<Bytes>> {
        if self.is_whole {
            return None;
        }
        match self.receiver.blocking_recv() {
            Some(Piece::Data(chunk)) => Some(Ok(chunk)),
            Some(Piece::End) => {
                self.is_whole = true;
                None
            }
            None => Some(Err(io::Error::other("the upload was broken off"))),
        }
    }
}

impl Read for Chunks {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.current.is_empty() {
            match self.next_chunk() {
                None => return Ok(0),
                Some(chunk) => self.current = chunk?,
            }
        }
        let length = buffer.len().min(self.current.len());
        buffer[..length].copy_from_slice(&self.current.split_to(length));
        Ok(length)
    }
}

/// What was uploaded.
#[derive(Debug, Serialize, ToSchema)]
pub struct Uploaded {
    /// As they were named; empty for an archive.
    pub files: Vec<String>,
}

/// Each part is a file, and its file name is the path in the workspace.
#[derive(Debug, ToSchema)]
#[expect(dead_code, reason = "it describes a body that is read as a stream")]
pub struct FilesForm {
    #[schema(value_type = Vec<String>, format = Binary, min_items = 1)]
    file: Vec<Vec<u8>>,
}

/// Writes many files at once.
#[utoipa::path(
    post,
    path = "/jobs/{id}/files",
    operation_id = "upload_files",
    tag = "files",
    params(Named),
    request_body(description = "The files, or a tar of them.", content((FilesForm = "multipart/form-data"), ([u8] = "application/x-tar"))),
    responses(
        (status = 200, description = "What was uploaded.", body = Uploaded),
        answers::NotFound,
        answers::Stalled,
        answers::Conflict,
        answers::TooLarge,
        answers::WrongType,
        answers::Invalid,
        answers::NoSpace,
    ),
)]
pub async fn upload(axum::extract::State(api): State, Named(id): Named, request: Request) -> Answer<Json<Uploaded>> {
    let files = api.workspace(&id).await?;
    let most = api.jobs.inner().settings.upload_max_bytes;
    let mut room = most;
    let kind = request.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let mut uploaded = Vec::new();
    match kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase().as_str() {
        "application/x-tar" => {
            let body: Body = request.into_body();
            unpack(files, body.into_data_stream(), &mut room, most, |_| ()).await.map_err(upload_problem)?;
        }
        "multipart/form-data" => {
            let mut parts = Multipart::from_request(request, &()).await.map_err(Problem::from)?;
            while let Some(part) = parts.next_field().await? {
                let Some(name) = part.file_name().map(str::to_owned) else {
                    return Err(Problem::invalid("file", "file: a part has no file name; give each file one"));
                };
                let path = super::request::to_path(&format!("file {name}"), &name)?;
                let options = WriteOptions { parents: true, ..WriteOptions::default() };
                write_stream(files.try_clone()?, path, options, part, &mut room, most, |_| ())
                    .await
                    .map_err(upload_problem)?;
                uploaded.push(name);
            }
            if uploaded.is_empty() {
                return Err(Problem::invalid("file", "file: there is no file in the form; send at least one"));
            }
        }
        _ => return Err(Problem::unsupported_media_type("multipart/form-data or application/x-tar")),
    }
    let changed = |path: &String| EventBody::FileChanged { path: path.clone(), action: FileAction::Written };
    let mut events: Vec<EventBody> = uploaded.iter().take(100).map(changed).collect();
    if events.is_empty() {
        events.push(EventBody::FileChanged { path: ".".to_owned(), action: FileAction::Written });
    }
    api.jobs.inner().store.note(&id, now_ms(), events).await?;
    Ok(Json(Uploaded { files: uploaded }))
}
