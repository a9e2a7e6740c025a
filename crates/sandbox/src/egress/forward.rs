//! Plain requests (`GET http://host/path`): passed on over a connection of their own, without the headers that were
//! meant for the proxy. Framing is written anew on both sides, so no two parsers have to agree on one message.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::client::conn::http1;
use hyper::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, HOST, HeaderName, HeaderValue, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE,
    TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use hyper::http::request::Parts;
use hyper::http::uri::PathAndQuery;
use hyper::{HeaderMap, Method, Request, Response, StatusCode, Uri, Version};
use hyper_util::rt::TokioIo;
use tokio::task::JoinSet;

use super::Egress;
use super::bounds::HEADER_BYTES_MAX;
use super::connect::connect;
use super::error::EgressError;
use super::log::{OpenConnection, RequestLog};
use super::meter::{Meter, Metered};
use super::target::Target;

/// The server's answer, and everything that has to live as long as it.
#[derive(Debug)]
pub(super) struct ForwardedBody {
    body: Incoming,
    /// Drives the connection to the server; aborted when the body is dropped.
    _driver: JoinSet<()>,
    _open: OpenConnection,
}

pub(super) async fn forward(
    egress: &Egress,
    log: &RequestLog,
    target: &Target,
    request: Request<Incoming>,
) -> Result<Response<ForwardedBody>, EgressError> {
    let (mut head, body) = request.into_parts();
    let method = head.method.clone();
    rewrite_request(&mut head, &body, target)?;
    let (stream, address) = connect(egress, target).await?;
    let meter = Meter::new();
    let open = log.opened(address, meter.clone());

    let failed =
        |problem: hyper::Error| EgressError::AnswerFailed { target: target.clone(), problem: problem.to_string() };
    let (mut sender, connection) = http1::Builder::new()
        .max_buf_size(HEADER_BYTES_MAX)
        .handshake(TokioIo::new(Metered::new(stream, meter.clone())))
        .await
        .map_err(failed)?;
    let mut driver = JoinSet::new();
    driver.spawn(async move {
        // Its errors reach the client through the answer.
        let _ = connection.await;
    });
    let response = tokio::select! {
        response = sender.send_request(Request::from_parts(head, body)) => response.map_err(failed)?,
        () = meter.idle_for(egress.bounds.answer_timeout) => {
            return Err(EgressError::AnswerTimedOut { target: target.clone() });
        }
    };
    let (mut head, body) = response.into_parts();
    rewrite_response(&mut head.headers, head.status, &method, &body)
        .map_err(|problem| EgressError::AnswerFailed { target: target.clone(), problem: problem.to_owned() })?;
    head.version = Version::HTTP_11;
    Ok(Response::from_parts(head, ForwardedBody { body, _driver: driver, _open: open }))
}

impl Body for ForwardedBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

fn rewrite_request(head: &mut Parts, body: &Incoming, target: &Target) -> Result<(), EgressError> {
    if !is_plainly_chunked(&head.headers) {
        return Err(EgressError::BadRequest { problem: "of transfer encodings only chunked is known" });
    }
    let had_length = head.headers.contains_key(CONTENT_LENGTH);
    remove_hop_by_hop(&mut head.headers);
    // The proxy's own side has answered it already.
    head.headers.remove(EXPECT);
    let host = HeaderValue::from_str(&target.host_header())
        .map_err(|_| EgressError::BadTarget { problem: "it is not a host name" })?;
    head.headers.insert(HOST, host);
    // No connection is used twice, and saying so lets the server close first.
    head.headers.insert(CONNECTION, HeaderValue::from_static("close"));
    head.headers.remove(CONTENT_LENGTH);
    match body.size_hint().exact() {
        Some(0) if !had_length => {}
        Some(length) => {
            head.headers.insert(CONTENT_LENGTH, length.into());
        }
        None => {
            head.headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
    }
    let path = head.uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
    head.uri = Uri::from(path);
    head.version = Version::HTTP_11;
    Ok(())
}

fn rewrite_response(
    headers: &mut HeaderMap,
    status: StatusCode,
    method: &Method,
    body: &Incoming,
) -> Result<(), &'static str> {
    if status == StatusCode::SWITCHING_PROTOCOLS {
        return Err("it switches to a protocol nobody asked for");
    }
    if !is_plainly_chunked(headers) {
        return Err("its transfer encoding is not chunked");
    }
    let was_chunked = headers.contains_key(TRANSFER_ENCODING);
    remove_hop_by_hop(headers);
    // Of an answer without a body the length is a statement about another one, and stays.
    let describes_another = *method == Method::HEAD || status == StatusCode::NOT_MODIFIED;
    if was_chunked || !describes_another {
        headers.remove(CONTENT_LENGTH);
    }
    if let (false, Some(length)) = (describes_another || status == StatusCode::NO_CONTENT, body.size_hint().exact()) {
        headers.insert(CONTENT_LENGTH, length.into());
    }
    Ok(())
}

/// Any other encoding would be lost with the header that names it.
fn is_plainly_chunked(headers: &HeaderMap) -> bool {
    headers.get_all(TRANSFER_ENCODING).iter().all(|value| value.as_bytes().eq_ignore_ascii_case(b"chunked"))
}

/// RFC 9110, 7.6.1, and what is older than it. No Via is added: some servers stop compressing when they see one, and
/// the loops it is for cannot arise, since nothing outside reaches the listener.
fn remove_hop_by_hop(headers: &mut HeaderMap) {
    const NAMES: [HeaderName; 10] = [
        CONNECTION,
        HeaderName::from_static("keep-alive"),
        PROXY_AUTHENTICATE,
        HeaderName::from_static("proxy-authentication-info"),
        PROXY_AUTHORIZATION,
        HeaderName::from_static("proxy-connection"),
        TE,
        TRAILER,
        TRANSFER_ENCODING,
        UPGRADE,
    ];
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in NAMES.iter().chain(&named) {
        headers.remove(name);
    }
}
