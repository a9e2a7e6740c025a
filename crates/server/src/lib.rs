//! Jobs over HTTP. [`Server::start`] makes a whole one: [`data`] is its directory, [`jobs`] carries jobs out,
//! [`scheduler`] decides which is next, [`api`] is what requests reach, and [`http`] what they pass through before.

pub mod api;
mod clock;
mod data;
mod error;
pub mod http;
pub mod jobs;
pub mod scheduler;
mod settings;

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use cofferdam_sandbox::local::{LocalConfig, LocalRuntime};
use cofferdam_store::{SqliteStore, Store};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub use data::{RunningServer, running_server};
pub use error::ServerError;
pub use settings::Settings;

use data::DataDirectory;
use http::Metrics;
use jobs::{Jobs, Observer, Parts};
use scheduler::{Capacity, Scheduler};

/// How long requests in flight may take while the server stops.
const REQUESTS_END_TIMEOUT: Duration = Duration::from_secs(5);

/// A server that works until it is stopped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    jobs: Jobs,
    stop: CancellationToken,
    serving: JoinHandle<()>,
}

impl Server {
    /// Takes the data directory, takes up what an earlier server left there, and serves in the background.
    pub async fn start(settings: Settings) -> Result<Self, ServerError> {
        raise_file_limit();
        let mut data = DataDirectory::lock(&settings.data)?;
        let address = settings.listen;
        let cannot_listen = |source| ServerError::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(cannot_listen)?;
        let address = listener.local_addr().map_err(cannot_listen)?;
        let url = url_of(address);

        let observer = Arc::new(Observer::default());
        let metrics = Arc::new(Metrics::default());
        let hook = observer.clone();
        let database = data.database();
        let store = tokio::task::spawn_blocking(move || {
            SqliteStore::open(&database, Box::new(move |job, events| hook.committed(job, events)))
        });
        let store: Arc<dyn Store> = Arc::new(store.await.expect("opening the store does not panic")?);
        let runtime = Arc::new(LocalRuntime::new(&LocalConfig {
            read_only: settings.read_only.clone(),
            state_directory: Some(data.sandboxes()),
            spool_directory: Some(data.spool()),
        })?);
        let cannot_use = |source| ServerError::Data { data: settings.data.clone(), source };
        let capacity = Capacity::of_machine(settings.jobs_max).map_err(cannot_use)?;
        data.announce(&url).map_err(cannot_use)?;
        let stop = CancellationToken::new();
        let jobs = Jobs::start(Parts {
            store,
            data: Arc::new(data),
            settings: settings.clone(),
            metrics: metrics.clone(),
            observer,
            runtime,
            scheduler: Scheduler::new(capacity),
            url,
        })
        .await?;
        let guard = http::Guard::new(address, settings.allowed_hosts.clone());
        let router = http::wrap(api::router(jobs.clone(), stop.clone()), guard, metrics);
        let limits = http::ServeSettings { shutdown_grace: REQUESTS_END_TIMEOUT, ..Default::default() };
        let serving = tokio::spawn(http::serve(listener, router, stop.clone(), limits));
        Ok(Self { address, jobs, stop, serving })
    }

    pub fn url(&self) -> String {
        url_of(self.address)
    }

    /// Takes in no more jobs, gives what runs the time it was promised while it can still be followed, and leaves the rest
    /// for the next server.
    pub async fn stop(self) {
        self.jobs.stop().await;
        self.stop.cancel();
        let _ = self.serving.await;
    }
}

/// Where a client on this machine finds it: a server that listens everywhere is asked at the loopback address.
fn url_of(mut address: SocketAddr) -> String {
    if address.ip().is_unspecified() {
        address.set_ip(if address.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() });
    }
    format!("http://{address}")
}

/// Every connection, sandbox and file takes a descriptor, and the usual limit is meant for programs that poll few.
fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // What we may not have we do without.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}
