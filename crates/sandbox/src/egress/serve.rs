//! One connection from inside: its requests one after another, each turned into a tunnel, a forwarded request or a
//! refusal in one sentence. The deciding is in `connect`, the passing on in `tunnel` and `forward`.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::http::uri::Scheme;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;

use super::Egress;
use super::bounds::HEADER_BYTES_MAX;
use super::error::EgressError;
use super::forward::{ForwardedBody, forward};
use super::meter::{Meter, Metered};
use super::target::Target;
use super::tunnel::{self, Tunnel};

type AnswerBody = Either<Full<Bytes>, ForwardedBody>;

/// The tunnel runs in the connection's own task, after HTTP is done, so that dropping the task drops everything.
type TunnelSlot = Mutex<Option<Tunnel>>;

pub(super) async fn serve(egress: Arc<Egress>, stream: TcpStream) {
    let _ = stream.set_nodelay(true);
    let meter = Meter::new();
    // Every byte of every request and tunnel passes here, so this one watch covers a client that stops sending, one
    // that stops reading, and a server that stops answering.
    tokio::select! {
        () = serve_requests(&egress, Metered::new(stream, meter.clone())) => {}
        () = meter.idle_for(egress.bounds.idle_timeout) => {}
    }
}

/// A client that closes its side before it has its answer has gone away, and its request goes with it (hyper's
/// default): what was cancelled inside must not go on outside. Half-closing is for tunnels.
async fn serve_requests(egress: &Egress, stream: Metered) {
    let slot = TunnelSlot::default();
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(egress.bounds.header_read_timeout)
        .max_buf_size(HEADER_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service_fn(|request| answer(egress, &slot, request)))
        .with_upgrades()
        .await;
    if let Err(error) = served
        && error.is_parse()
    {
        // hyper has answered already, with 400 or 431.
        egress.journal.request("", "", 0).error(&EgressError::BadRequest { problem: "it is not HTTP/1.1" });
    }
    let tunnel = slot.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Some(tunnel) = tunnel {
        tunnel.run().await;
    }
}

async fn answer(
    egress: &Egress,
    slot: &TunnelSlot,
    request: Request<Incoming>,
) -> Result<Response<AnswerBody>, Infallible> {
    let method = request.method().clone();
    let target = match target_of(&request) {
        Ok(target) => target,
        Err(error) => {
            let named = request.uri().authority().map_or("", |authority| authority.as_str());
            egress.journal.request(method.as_str(), named, 0).error(&error);
            return Ok(refusal(&error));
        }
    };
    let log = egress.journal.request(method.as_str(), target.host(), target.port());
    let answered = if method == Method::CONNECT {
        tunnel::open(egress, &log, &target, request).await.map(|tunnel| {
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(tunnel);
            Response::new(Either::Left(Full::default()))
        })
    } else {
        forward(egress, &log, &target, request).await.map(|response| response.map(Either::Right))
    };
    Ok(answered.unwrap_or_else(|error| {
        log.error(&error);
        refusal(&error)
    }))
}

fn target_of(request: &Request<Incoming>) -> Result<Target, EgressError> {
    let uri = request.uri();
    let authority = uri.authority().ok_or(EgressError::NotForAProxy)?.as_str();
    match (request.method() == Method::CONNECT, uri.scheme()) {
        (true, None) => Target::from_authority(authority, None),
        (true, Some(_)) | (false, None) => Err(EgressError::NotForAProxy),
        (false, Some(scheme)) if *scheme == Scheme::HTTP => Target::from_authority(authority, Some(80)),
        (false, Some(_)) => Err(EgressError::SchemeNotForwarded),
    }
}

fn refusal(error: &EgressError) -> Response<AnswerBody> {
    let mut response = Response::new(Either::Left(Full::from(format!("{error}\n"))));
    *response.status_mut() = error.status();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
