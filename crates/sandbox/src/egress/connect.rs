//! The one way to the outside: decides by name, resolves once, judges every address, and connects to exactly one that
//! was judged. What is then said over the connection is not its business.

use std::io;
use std::net::{IpAddr, SocketAddr};

use cofferdam_protocol::NetworkPolicy;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use super::Egress;
use super::address::{Reach, canonical, is_of_this_machine, judge};
use super::bounds::CONNECT_ATTEMPTS_MAX;
use super::error::EgressError;
use super::target::Target;

pub(super) async fn connect(egress: &Egress, target: &Target) -> Result<(TcpStream, SocketAddr), EgressError> {
    // Before the resolver: a name that is not allowed must not leave the machine as a question either.
    if !egress.policy.allows(target.host(), target.port()) {
        return Err(EgressError::NotAllowed { target: target.clone() });
    }
    let deadline = Instant::now() + egress.bounds.reach_timeout;
    let resolved = match target.address() {
        Some(address) => vec![address],
        None => timeout_at(deadline, egress.resolver.resolve(target.host()))
            .await
            .map_err(|_| EgressError::ResolveTimedOut { target: target.clone() })?
            .map_err(|problem| EgressError::Unresolvable { target: target.clone(), problem: Some(problem) })?,
    };
    let mut failure = None;
    for address in permitted(&egress.policy, target, &resolved)?.into_iter().take(CONNECT_ATTEMPTS_MAX) {
        let address = SocketAddr::new(address, target.port());
        let attempt_deadline = deadline.min(Instant::now() + egress.bounds.connect_timeout);
        match timeout_at(attempt_deadline, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                // Small messages go both ways; a failure costs speed only.
                let _ = stream.set_nodelay(true);
                return Ok((stream, address));
            }
            Ok(Err(problem)) if problem.kind() != io::ErrorKind::TimedOut => {
                failure = Some(EgressError::ConnectFailed { target: target.clone(), problem });
            }
            Ok(Err(_)) | Err(_) => failure = Some(EgressError::ConnectTimedOut { target: target.clone() }),
        }
    }
    Err(failure.unwrap_or_else(|| EgressError::Unresolvable { target: target.clone(), problem: None }))
}

/// The addresses that may be connected to, each once, in the resolver's order; the reason when there are none.
fn permitted(policy: &NetworkPolicy, target: &Target, resolved: &[IpAddr]) -> Result<Vec<IpAddr>, EgressError> {
    let mut permitted = Vec::new();
    let mut refusal = EgressError::Unresolvable { target: target.clone(), problem: None };
    for address in resolved.iter().copied().map(canonical) {
        match check(policy, target, address) {
            Ok(()) if permitted.contains(&address) => {}
            Ok(()) => permitted.push(address),
            Err(reason) => refusal = reason,
        }
    }
    if permitted.is_empty() { Err(refusal) } else { Ok(permitted) }
}

fn check(policy: &NetworkPolicy, target: &Target, address: IpAddr) -> Result<(), EgressError> {
    let kind = match judge(address) {
        Reach::Public if is_of_this_machine(address) => "an address of this machine",
        Reach::Public => return Ok(()),
        Reach::Private(kind) => kind,
        // A name that is allowed may be somebody else's to point here; only the address itself shows the intent.
        Reach::Metadata if policy.allows_private(&address.to_string(), target.port()) => return Ok(()),
        Reach::Metadata => return Err(EgressError::MetadataAddress { target: target.clone(), address }),
    };
    if policy.allows_private(target.host(), target.port()) {
        return Ok(());
    }
    Err(EgressError::PrivateAddress { target: target.clone(), address, kind })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permitted_of(policy: &str, authority: &str, resolved: &[&str]) -> Result<Vec<String>, EgressError> {
        let resolved: Vec<IpAddr> = resolved.iter().map(|a| a.parse().unwrap()).collect();
        let target = Target::from_authority(authority, None).unwrap();
        let permitted = permitted(&policy.parse().unwrap(), &target, &resolved)?;
        Ok(permitted.iter().map(IpAddr::to_string).collect())
    }

    #[test]
    fn private_addresses_are_skipped_and_public_ones_stay() {
        let resolved = ["10.0.0.1", "1.1.1.1", "::1", "::ffff:1.1.1.1", "2606:4700::1111", "169.254.169.254"];
        for policy in ["open", "*.a.test"] {
            let permitted = permitted_of(policy, "x.a.test:443", &resolved).unwrap();
            assert_eq!(permitted, ["1.1.1.1", "2606:4700::1111"], "{policy}");
        }
    }

    #[test]
    fn only_an_exact_name_reaches_a_private_address() {
        assert_eq!(permitted_of("x.a.test", "x.a.test:80", &["10.0.0.1"]).unwrap(), ["10.0.0.1"]);
        assert_eq!(permitted_of("x.a.test:80", "x.a.test:80", &["::ffff:10.0.0.1"]).unwrap(), ["10.0.0.1"]);
        for policy in ["open", "*.a.test", "x.a.test:81", "a.test"] {
            let error = permitted_of(policy, "x.a.test:80", &["10.0.0.1", "::1"]).unwrap_err();
            assert!(matches!(error, EgressError::PrivateAddress { .. }), "{policy}: {error}");
        }
    }

    #[test]
    fn metadata_is_reached_only_by_its_own_address() {
        for (policy, authority) in [("x.a.test", "x.a.test:80"), ("open", "169.254.169.254:80")] {
            let error = permitted_of(policy, authority, &["169.254.169.254"]).unwrap_err();
            assert!(matches!(error, EgressError::MetadataAddress { .. }), "{policy}: {error}");
        }
        for (policy, authority) in
            [("169.254.169.254", "169.254.169.254:80"), ("x.a.test,169.254.169.254:80", "x.a.test:80")]
        {
            assert!(permitted_of(policy, authority, &["169.254.169.254"]).is_ok(), "{policy}");
        }
    }
}
