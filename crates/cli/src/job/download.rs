//! `cofferdam download`: the files of a job, as a zip or unpacked. What is there already is not
//! overwritten unless that is asked for, and what is incomplete never has the final name.

use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use clap::Args;
use cofferdam_linux::files::{ARCHIVE_DEFAULT_LIMITS, ArchiveLimits, RelativePath, Workspace};
use reqwest::Method;
use tempfile::{Builder, NamedTempFile};

use super::id;
use crate::client::Client;
use crate::client::connect::{Purpose, ServerArguments, with_client};
use crate::exec::Failure;
use crate::exit_code;
use crate::progress_bar::transfer_bar;
use crate::text::{print_line, printable};

/// What the person asked for is theirs to judge: only the number of files is bounded.
const UNPACK_LIMITS: ArchiveLimits = ArchiveLimits { bytes: u64::MAX, entries: ARCHIVE_DEFAULT_LIMITS.entries };

/// Download the files of a job
#[derive(Debug, Args)]
pub struct DownloadArguments {
    /// The id, its beginning or its end, or last
    #[arg(value_name = "JOB")]
    job: String,
    /// Where to: a file, or a directory; JOB.zip here if it is not given, with --unpack the directory JOB
    #[arg(long, short = 'o', value_name = "FILE|DIR")]
    output: Option<PathBuf>,
    /// Unpack it
    #[arg(long)]
    unpack: bool,
    /// Overwrite what is there
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    server: ServerArguments,
}

pub async fn run(arguments: DownloadArguments) -> Result<u8, Failure> {
    with_client(&arguments.server, Purpose::Look, async |client| {
        let id = id::find(client, &arguments.job).await?;
        let place = match arguments.unpack {
            true => unpack(client, &id, &arguments).await?,
            false => save(client, &id, &arguments).await?,
        };
        print_line(&printable(&place.display().to_string()))?;
        Ok(0)
    })
    .await
}

async fn save(client: &Client, id: &str, arguments: &DownloadArguments) -> Result<PathBuf, Failure> {
    let name = format!("{id}.zip");
    let file = match &arguments.output {
        Some(output) if output.is_dir() => output.join(name),
        Some(output) => output.clone(),
        None => PathBuf::from(name),
    };
    if !arguments.force && file.symlink_metadata().is_ok() {
        return Err(in_the_way(&file));
    }
    let archive = fetch(client, id, "zip", parent(&file)).await?;
    let kept = match arguments.force {
        true => archive.persist(&file),
        false => archive.persist_noclobber(&file),
    };
    match kept {
        Ok(_) => Ok(file),
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Err(in_the_way(&file)),
        Err(error) => Err(unwritable(&file, &error.error)),
    }
}

async fn unpack(client: &Client, id: &str, arguments: &DownloadArguments) -> Result<PathBuf, Failure> {
    let directory = arguments.output.clone().unwrap_or_else(|| PathBuf::from(id));
    let is_new = directory.symlink_metadata().is_err();
    let is_empty = || directory.read_dir().is_ok_and(|mut entries| entries.next().is_none());
    if !is_new && !arguments.force && !is_empty() {
        return Err(in_the_way(&directory));
    }
    let archive = fetch(client, id, "tar", parent(&directory)).await?;
    let failed = |error: io::Error| unwritable(&directory, &error);
    if !is_new {
        unpack_into(archive, &directory).map_err(failed)?;
        return Ok(directory);
    }
    // All or nothing: a new directory gets its name when it is complete.
    let everybody = std::fs::Permissions::from_mode(0o777);
    let unfinished = Builder::new().permissions(everybody).tempdir_in(parent(&directory)).map_err(failed)?;
    unpack_into(archive, unfinished.path()).map_err(failed)?;
    std::fs::rename(unfinished.path(), &directory).map_err(failed)?;
    let _ = unfinished.keep();
    Ok(directory)
}

fn unpack_into(archive: NamedTempFile, directory: &Path) -> io::Result<()> {
    let workspace = Workspace::open(directory).map_err(io::Error::other)?;
    let archive = io::BufReader::new(archive.reopen()?);
    workspace.tar_in(&RelativePath::root(), archive, UNPACK_LIMITS).map(drop).map_err(io::Error::other)
}

async fn fetch(client: &Client, id: &str, format: &str, directory: &Path) -> Result<NamedTempFile, Failure> {
    let failed = |error: io::Error| unwritable(directory, &error);
    let mut response =
        client.send(client.request(Method::GET, &format!("/jobs/{id}/download?format={format}"))).await?;
    let everybody = std::fs::Permissions::from_mode(0o666);
    let mut file =
        Builder::new().prefix(".cofferdam-").permissions(everybody).tempfile_in(directory).map_err(failed)?;
    let bar = transfer_bar("downloading", response.content_length());
    while let Some(bytes) = response.chunk().await.map_err(|error| client.unreachable(&error))? {
        file.write_all(&bytes).map_err(failed)?;
        bar.inc(bytes.len() as u64);
    }
    bar.finish_and_clear();
    Ok(file)
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn in_the_way(path: &Path) -> Failure {
    let message =
        format!("{} is there already; name another place with -o, or overwrite it with --force", path.display());
    Failure::new(exit_code::FILE_WRONG, message)
}

fn unwritable(path: &Path, error: &io::Error) -> Failure {
    let code = match error.kind() {
        io::ErrorKind::StorageFull => exit_code::DISK_FULL,
        _ => exit_code::FILE_WRONG,
    };
    Failure::new(code, format!("{} cannot be written: {error}", path.display()))
}
