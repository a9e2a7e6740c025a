//! Why a request did not get through: the sentence the sandboxed program reads, and the status that goes with it.

use std::io;
use std::net::IpAddr;

use hyper::StatusCode;

use super::target::Target;

/// Display is the body of the answer. It tells no resolved address: what the launcher's resolver knows about internal
/// names is not the sandbox's business. The log has it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EgressError {
    #[error("cofferdam: this is a proxy; send CONNECT host:port, or a request for http://host/path")]
    NotForAProxy,
    #[error("cofferdam: only http:// is forwarded; reach everything else through CONNECT")]
    SchemeNotForwarded,
    #[error("cofferdam: the request names no valid host and port ({problem})")]
    BadTarget { problem: &'static str },
    #[error("cofferdam: the request is not one a proxy can pass on ({problem})")]
    BadRequest { problem: &'static str },
    #[error("cofferdam: {target} is not on this sandbox's allow-list; allow it with --net {target}")]
    NotAllowed { target: Target },
    #[error(
        "cofferdam: {target} is {kind}, which is reached only when it is named exactly; allow it with --net {target}"
    )]
    PrivateAddress { target: Target, address: IpAddr, kind: &'static str },
    #[error(
        "cofferdam: {target} is the cloud's metadata service, which holds credentials and is reached only when its \
         address is named exactly; allow that address with --net"
    )]
    MetadataAddress { target: Target, address: IpAddr },
    #[error("cofferdam: {target} cannot be resolved; check the name's spelling and this machine's resolver")]
    Unresolvable { target: Target, problem: Option<io::Error> },
    #[error("cofferdam: resolving {target} took too long; try again, or check this machine's resolver")]
    ResolveTimedOut { target: Target },
    #[error("cofferdam: {target} cannot be connected to ({problem}); check that the server is up")]
    ConnectFailed { target: Target, problem: io::Error },
    #[error("cofferdam: connecting to {target} took too long; check that the server is up")]
    ConnectTimedOut { target: Target },
    #[error("cofferdam: {target} did not answer in HTTP ({problem})")]
    AnswerFailed { target: Target, problem: String },
    #[error("cofferdam: {target} took the request and then said nothing for too long")]
    AnswerTimedOut { target: Target },
}

impl EgressError {
    pub fn status(&self) -> StatusCode {
        match self {
            Self::NotForAProxy | Self::SchemeNotForwarded | Self::BadTarget { .. } | Self::BadRequest { .. } => {
                StatusCode::BAD_REQUEST
            }
            Self::NotAllowed { .. } | Self::PrivateAddress { .. } | Self::MetadataAddress { .. } => {
                StatusCode::FORBIDDEN
            }
            Self::Unresolvable { .. } | Self::ConnectFailed { .. } | Self::AnswerFailed { .. } => {
                StatusCode::BAD_GATEWAY
            }
            Self::ResolveTimedOut { .. } | Self::ConnectTimedOut { .. } | Self::AnswerTimedOut { .. } => {
                StatusCode::GATEWAY_TIMEOUT
            }
        }
    }

    /// The address that was the reason, for the log.
    pub fn address(&self) -> Option<IpAddr> {
        match self {
            Self::PrivateAddress { address, .. } | Self::MetadataAddress { address, .. } => Some(*address),
            _ => None,
        }
    }
}
