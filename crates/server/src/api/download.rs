//! The workspace to take home, made while it is sent.

use std::io::{self, Write};

use axum::body::{Body, Bytes};
use axum::http::HeaderValue;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::response::Response;
use cofferdam_artifacts::ArtifactError;
use cofferdam_artifacts::zip::write_zip;
use cofferdam_linux::files::{ARCHIVE_DEFAULT_LIMITS, RelativePath};
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use utoipa::{IntoParams, ToSchema};

use super::{Answer, Named, Query, State, answers, untrusted};
use crate::http::problem::Problem;

/// Pieces between the disk and the network, and their size.
const CHUNKS: usize = 8;
const CHUNK_BYTES: usize = 128 * 1024;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct DownloadQuery {
    /// Also before the job has ended: what there is now.
    partial: Option<bool>,
    /// `zip` unless it is given.
    #[param(inline)]
    format: Option<Format>,
}

#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum Format {
    Zip,
    Tar,
}

/// Gives the workspace as an archive.
#[utoipa::path(
    get,
    path = "/jobs/{id}/download",
    operation_id = "job_download",
    tag = "jobs",
    params(Named, DownloadQuery),
    responses(
        (status = 200, description = "The archive.", content((inline(answers::Raw) = "application/zip"), (inline(answers::Raw) = "application/x-tar")),
            headers(("Content-Disposition" = String, description = "The name to keep it under."))),
        answers::NotFound,
        answers::Conflict,
        answers::Invalid,
    ),
)]
pub async fn download(
    axum::extract::State(api): State,
    Named(id): Named,
    Query(query): Query<DownloadQuery>,
) -> Answer<Response> {
    let job = api.job(&id).await?;
    if !job.state.is_final() && query.partial != Some(true) {
        let detail = format!("the job is {}; wait for its end, or ask for /jobs/{id}/download?partial=true", job.state);
        return Err(Problem::conflict(detail));
    }
    let workspace = api.workspace(&id).await?;
    let (body, kind, ending) = match query.format.unwrap_or(Format::Zip) {
        Format::Zip => {
            let body = stream(move |out| write_zip(&workspace, out, Default::default()).map(drop));
            (body, "application/zip", "zip")
        }
        Format::Tar => {
            let write = move |out: &mut dyn Write| {
                workspace.tar_out(&RelativePath::root(), out, ARCHIVE_DEFAULT_LIMITS).map(drop)
            };
            (stream(move |out| write(out).map_err(ArtifactError::File)), "application/x-tar", "tar")
        }
    };
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    let name = format!("attachment; filename=\"{id}.{ending}\"");
    let name = HeaderValue::from_str(&name).expect("an id is a header value");
    headers.insert(CONTENT_DISPOSITION, name);
    untrusted(headers);
    Ok(response)
}

/// A body that blocking code writes. What fails after the answer has begun breaks the connection, so that nobody takes
/// a part for the whole.
pub fn stream(work: impl FnOnce(&mut dyn Write) -> Result<(), ArtifactError> + Send + 'static) -> Body {
    let (sender, receiver) = mpsc::channel::<io::Result<Bytes>>(CHUNKS);
    tokio::task::spawn_blocking(move || {
        let mut out = io::BufWriter::with_capacity(CHUNK_BYTES, ChunkWriter(&sender));
        let done = work(&mut out).map_err(io::Error::other).and_then(|()| out.flush());
        // Nobody is left to hear it when the client hung up.
        if let Err(error) = done {
            let _ = sender.blocking_send(Err(error));
        }
    });
    Body::from_stream(ReceiverStream::new(receiver))
}

struct ChunkWriter<'a>(&'a mpsc::Sender<io::Result<Bytes>>);

impl Write for ChunkWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let sent = self.0.blocking_send(Ok(Bytes::copy_from_slice(bytes)));
        sent.map(|()| bytes.len()).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
