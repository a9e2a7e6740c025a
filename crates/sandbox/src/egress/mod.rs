//! The way out of a sandbox: an HTTP proxy that accepts connections from hostile code on a listener that lives in the
//! sandbox's network namespace, and connects onwards from the launcher's. Owns the accept loop and what may be
//! replaced (resolver, clock, bounds). Does not create the listener, and does not write the log to disk.

mod address;
pub mod bounds;
mod connect;
mod error;
mod forward;
mod log;
mod meter;
mod resolve;
mod serve;
mod target;
mod tunnel;

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use cofferdam_protocol::NetworkPolicy;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

pub use bounds::Bounds;
pub use error::EgressError;
pub use log::{ConnectionEvent, ConnectionRecord};
pub use resolve::{Resolution, Resolver, SystemResolver};
pub use target::Target;

use log::Journal;

/// One sandbox's proxy, before it runs.
pub struct Egress {
    policy: Arc<NetworkPolicy>,
    resolver: Arc<dyn Resolver>,
    bounds: Bounds,
    journal: Arc<Journal>,
}

impl Egress {
    /// A proxy with the system's resolver and clock and the default bounds. `log` is called from the proxy's tasks
    /// and must not block; hostile code decides how often it is called, so whoever writes it down bounds the file.
    pub fn new(policy: Arc<NetworkPolicy>, log: impl Fn(&ConnectionRecord) + Send + Sync + 'static) -> Self {
        Self {
            policy,
            resolver: Arc::new(SystemResolver::default()),
            bounds: Bounds::default(),
            journal: Arc::new(Journal::new(Box::new(SystemTime::now), Box::new(log))),
        }
    }

    pub fn with_resolver(mut self, resolver: Arc<dyn Resolver>) -> Self {
        self.resolver = resolver;
        self
    }

    pub fn with_clock(mut self, clock: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        self.journal = Arc::new(self.journal.with_clock(Box::new(clock)));
        self
    }

    pub fn with_bounds(mut self, bounds: Bounds) -> Self {
        self.bounds = bounds;
        self
    }

    /// Serves until `shutdown` is ready, then drops every connection at once and returns.
    pub async fn run(self, listener: TcpListener, shutdown: impl Future<Output = ()>) {
        let egress = Arc::new(self);
        let mut connections = JoinSet::new();
        tokio::select! {
            biased;
            () = shutdown => {}
            () = accept_forever(&egress, &listener, &mut connections) => {}
        }
        drop(listener);
        connections.shutdown().await;
    }
}

impl fmt::Debug for Egress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Egress").field("policy", &self.policy).field("bounds", &self.bounds).finish_non_exhaustive()
    }
}

async fn accept_forever(egress: &Arc<Egress>, listener: &TcpListener, connections: &mut JoinSet<()>) {
    let slots = Arc::new(Semaphore::new(egress.bounds.connections_at_once));
    loop {
        // The slot comes before the accept: connections past the bound wait in the kernel's backlog and cost nothing.
        let Ok(slot) = slots.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let egress = egress.clone();
                connections.spawn(async move {
                    serve::serve(egress, stream).await;
                    drop(slot);
                });
            }
            // Out of descriptors, or a connection that is already gone: neither is the listener's end.
            Err(_) => tokio::time::sleep(bounds::ACCEPT_PAUSE).await,
        }
        while connections.try_join_next().is_some() {}
    }
}
