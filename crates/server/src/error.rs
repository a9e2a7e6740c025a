//! Why a server does not start. Each sentence names the thing and the remedy.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use cofferdam_sandbox::SandboxError;
use cofferdam_store::StoreError;

#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error(
        "the data directory {data} is in use by the server at {url} (process {pid}); use that one, or name another \
         directory with --data"
    )]
    InUse { data: PathBuf, url: String, pid: u32 },
    #[error("the data directory {data} cannot be used: {source}; name another one with --data")]
    Data { data: PathBuf, source: io::Error },
    #[error("{address} cannot be listened on: {source}; name another address with --listen")]
    Listen { address: SocketAddr, source: io::Error },
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
}
