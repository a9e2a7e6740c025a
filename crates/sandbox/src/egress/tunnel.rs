//! CONNECT: a connection made for the client, and bytes copied both ways. Reads nothing of what passes.

use hyper::body::Incoming;
use hyper::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use hyper::upgrade::OnUpgrade;
use hyper::{HeaderMap, Request};
use hyper_util::rt::TokioIo;
use tokio::io::copy_bidirectional_with_sizes;

use super::Egress;
use super::bounds::TUNNEL_BUFFER_BYTES;
use super::connect::connect;
use super::error::EgressError;
use super::log::{OpenConnection, RequestLog};
use super::meter::{Meter, Metered};
use super::target::Target;

/// Connected on the far side, and waiting for the client's connection to be done with HTTP.
#[derive(Debug)]
pub(super) struct Tunnel {
    client: OnUpgrade,
    server: Metered,
    open: OpenConnection,
}

pub(super) async fn open(
    egress: &Egress,
    log: &RequestLog,
    target: &Target,
    request: Request<Incoming>,
) -> Result<Tunnel, EgressError> {
    refuse_body(request.headers())?;
    let (stream, address) = connect(egress, target).await?;
    let meter = Meter::new();
    let open = log.opened(address, meter.clone());
    Ok(Tunnel { client: hyper::upgrade::on(request), server: Metered::new(stream, meter), open })
}

impl Tunnel {
    /// Until both sides have closed. One side's end is passed on and the other direction goes on; idleness is noticed
    /// by whoever serves the client's connection, which carries the same bytes.
    pub(super) async fn run(mut self) {
        if let Ok(client) = self.client.await {
            let mut client = TokioIo::new(client);
            // An error is a connection that broke, which is how hostile and hasty clients close theirs.
            let _ =
                copy_bidirectional_with_sizes(&mut client, &mut self.server, TUNNEL_BUFFER_BYTES, TUNNEL_BUFFER_BYTES)
                    .await;
        }
        drop(self.open);
    }
}

/// Whether bytes after a CONNECT with a length are its body or the tunnel's is a matter of opinion: have none.
fn refuse_body(headers: &HeaderMap) -> Result<(), EgressError> {
    let has_length = headers.get(CONTENT_LENGTH).is_some_and(|length| length != "0");
    if has_length || headers.contains_key(TRANSFER_ENCODING) {
        return Err(EgressError::BadRequest { problem: "CONNECT has no body" });
    }
    Ok(())
}
