//! Names to addresses, on the launcher's side. The answer is not judged here.

use std::fmt;
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::Semaphore;

use super::bounds::LOOKUPS_AT_ONCE;

pub type Resolution<'a> = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send + 'a>>;

/// Asked once per request; whatever it answers is what gets judged and connected to.
pub trait Resolver: Send + Sync {
    fn resolve<'a>(&'a self, host: &'a str) -> Resolution<'a>;
}

/// getaddrinfo of the machine the launcher runs on.
pub struct SystemResolver {
    lookups: Arc<Semaphore>,
}

impl Default for SystemResolver {
    fn default() -> Self {
        Self { lookups: Arc::new(Semaphore::new(LOOKUPS_AT_ONCE)) }
    }
}

impl Resolver for SystemResolver {
    fn resolve<'a>(&'a self, host: &'a str) -> Resolution<'a> {
        Box::pin(async move {
            let lookup = self.lookups.clone().acquire_owned().await.map_err(io::Error::other)?;
            let host = host.to_owned();
            // Not tokio's lookup_host: a client that hangs up must not free the lookup's place while its thread is
            // still inside getaddrinfo.
            tokio::task::spawn_blocking(move || {
                let addresses = (host.as_str(), 0).to_socket_addrs().map(|found| found.map(|a| a.ip()).collect());
                drop(lookup);
                addresses
            })
            .await
            .map_err(io::Error::other)?
        })
    }
}

impl fmt::Debug for SystemResolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SystemResolver")
    }
}
