//! A living sandbox: its guest's connections, its egress proxy, its end.

use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cofferdam_linux::channel;
use cofferdam_protocol::NetworkPolicy;
use cofferdam_protocol::launch::{FromGuest, ToGuest};
use tokio::net::UnixStream;
use tokio::process::Child;
use tokio::task::JoinHandle;

use super::{ConnectionLog, GuestProcess, Leftovers, hear};
use crate::SandboxError;
use crate::client::Client;
use crate::egress::Egress;

/// How long a guest may take to end its sandbox before it is killed. It has to wait for the kernel to take the
/// processes away, which on a busy machine with many of them takes seconds.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// Dropping it ends a tied sandbox in the background; [`Sandbox::destroy`] waits for the end.
#[derive(Debug)]
pub struct Sandbox {
    id: String,
    control: OwnedFd,
    client: Client,
    /// Absent for a sandbox of an earlier process.
    child: Option<Child>,
    leftovers: Leftovers,
    _egress: Option<EgressTask>,
}

/// The proxy, which ends with whoever holds this.
#[derive(Debug)]
struct EgressTask(JoinHandle<()>);

impl Drop for EgressTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Sandbox {
    pub(super) async fn begin(
        id: String,
        guest: GuestProcess,
        leftovers: Leftovers,
        network: &NetworkPolicy,
        log: Option<ConnectionLog>,
    ) -> Result<Self, SandboxError> {
        let GuestProcess { child, control } = guest;
        // The first connection is on its way before the guest is ready: its greeting waits in the socket.
        let started = async {
            let stream = connect(&control);
            let (message, descriptors) = hear(&control).await?;
            let egress = start_egress(ready(message, descriptors)?, network, log)?;
            Ok((Client::over(stream?).await?, egress))
        };
        match started.await {
            Ok((client, egress)) => Ok(Self { id, control, client, child: Some(child), leftovers, _egress: egress }),
            Err(error) => {
                GuestProcess { child, control }.discard(leftovers, &id).await;
                Err(error)
            }
        }
    }

    pub(super) async fn attach(
        id: String,
        control: OwnedFd,
        network: &NetworkPolicy,
        log: Option<ConnectionLog>,
        state_directory: PathBuf,
    ) -> Result<Self, SandboxError> {
        let (message, descriptors) = hear(&control).await?;
        let proxy = ready(message, descriptors)?;
        let client = Client::over(connect(&control)?).await?;
        let egress = start_egress(proxy, network, log)?;
        let leftovers = Leftovers { state_directory: Some(state_directory), cgroup: None };
        Ok(Self { id, control, client, child: None, leftovers, _egress: egress })
    }

    pub fn id(&self) -> &str {
        &self.id
    }

    /// The guest's process, as the host numbers it.
    pub fn guest_pid(&self) -> Option<u32> {
        self.child.as_ref().and_then(Child::id)
    }

    pub fn client(&self) -> &Client {
        &self.client
    }

    /// A further connection, for what must not wait behind a stream that nobody reads.
    pub async fn connect(&self) -> Result<Client, SandboxError> {
        Client::over(connect(&self.control)?).await
    }

    /// Ends the sandbox and returns when nothing of it is left.
    pub async fn destroy(mut self) -> Result<(), SandboxError> {
        let pid = self.guest_pid();
        // A leased one has to be told; for a tied one the closed socket says it. The answer is not waited for: what
        // counts is the guest's end.
        drop(self.control);
        let ended = async {
            match &mut self.child {
                Some(child) => end(child).await,
                None => wait_until_unlocked(&self.leftovers).await,
            }
        };
        let asked = tokio::time::timeout(END_TIMEOUT, self.client.end());
        tokio::join!(async { drop(asked.await) }, ended);
        self.leftovers.remove(pid, &self.id).await;
        Ok(())
    }
}

fn connect(control: &OwnedFd) -> Result<UnixStream, SandboxError> {
    let wrong = |error| SandboxError::io("connecting to the guest", error);
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().map_err(wrong)?;
    channel::send(control, &ToGuest::Connect, &[theirs.as_fd()]).map_err(|_| SandboxError::Vanished)?;
    ours.set_nonblocking(true).map_err(wrong)?;
    UnixStream::from_std(ours).map_err(wrong)
}

fn ready(message: FromGuest, descriptors: Vec<OwnedFd>) -> Result<Option<OwnedFd>, SandboxError> {
    match message {
        FromGuest::Ready => Ok(descriptors.into_iter().next()),
        FromGuest::Failed(failure) => Err(failure.into()),
    }
}

fn start_egress(
    proxy: Option<OwnedFd>,
    network: &NetworkPolicy,
    log: Option<ConnectionLog>,
) -> Result<Option<EgressTask>, SandboxError> {
    let Some(listener) = proxy.map(TcpListener::from) else { return Ok(None) };
    let wrong = |error| SandboxError::io("starting the proxy", error);
    listener.set_nonblocking(true).map_err(wrong)?;
    let listener = tokio::net::TcpListener::from_std(listener).map_err(wrong)?;
    let log = log.unwrap_or_else(|| Arc::new(|_| ()));
    let egress = Egress::new(Arc::new(network.clone()), move |record| log(record));
    Ok(Some(EgressTask(tokio::spawn(egress.run(listener, std::future::pending())))))
}

pub(super) async fn end(child: &mut Child) {
    if tokio::time::timeout(END_TIMEOUT, child.wait()).await.is_err() {
        let _ = child.kill().await;
    }
}

async fn wait_until_unlocked(leftovers: &Leftovers) {
    let deadline = tokio::time::Instant::now() + END_TIMEOUT;
    while leftovers.state_directory.as_deref().is_some_and(super::is_alive) && tokio::time::Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Waits until a socket has something to read, or was closed.
pub(super) async fn readable(socket: &OwnedFd) -> std::io::Result<()> {
    let watched = socket.try_clone()?;
    // SAFETY: the clone is owned by the AsyncFd, which neither closes nor replaces it while it is registered.
    let watched = unsafe { tokio::io::unix::AsyncFd::register(watched) }?;
    watched.readable().await.map(drop)
}
