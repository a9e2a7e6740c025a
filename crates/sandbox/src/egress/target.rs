//! The host and port a request asks for, taken from its request line and validated. Whether it may be reached is
//! decided in `connect`.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use super::bounds::HOST_BYTES_MAX;
use super::error::EgressError;

/// What the policy judges and the resolver is asked for; a valid host name or an address, never anything else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Lower case, without brackets, without a trailing dot; addresses in their one normal spelling.
    host: String,
    port: u16,
    address: Option<IpAddr>,
}

impl Target {
    /// From `host:port`, `[v6]:port`, or without the port where there is a default.
    pub fn from_authority(authority: &str, default_port: Option<u16>) -> Result<Self, EgressError> {
        let wrong = |problem| EgressError::BadTarget { problem };
        if authority.contains('@') {
            return Err(wrong("a user name does not belong in front of the host"));
        }
        let (host, port) = match authority.strip_prefix('[') {
            Some(rest) => {
                let (host, tail) = rest.split_once(']').ok_or_else(|| wrong("a bracket is not closed"))?;
                let address = host.parse::<Ipv6Addr>().map_err(|_| wrong("brackets are for IPv6 addresses"))?;
                (address.to_string(), tail)
            }
            None => {
                let (host, tail) = authority.split_at(authority.find(':').unwrap_or(authority.len()));
                (host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase(), tail)
            }
        };
        let port = match (port, default_port) {
            ("", Some(port)) => port,
            ("", None) => return Err(wrong("the port is missing")),
            (tail, _) => port_number(tail).ok_or_else(|| wrong("the port is not a number from 1 to 65535"))?,
        };
        let address = host.parse::<IpAddr>().ok();
        if address.is_none() && !is_host_name(&host) {
            return Err(wrong("it is neither a host name nor an address"));
        }
        Ok(Self { host, port, address })
    }

    pub fn host(&self) -> &str {
        &self.host
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The address, when the host is spelled as one and needs no resolver.
    pub fn address(&self) -> Option<IpAddr> {
        self.address
    }

    /// The Host header of a forwarded request.
    pub fn host_header(&self) -> String {
        let whole = self.to_string();
        match whole.strip_suffix(":80") {
            Some(host) if self.port == 80 => host.to_owned(),
            _ => whole,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            Some(IpAddr::V6(address)) => write!(f, "[{address}]:{}", self.port),
            _ => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

/// `:443`
fn port_number(tail: &str) -> Option<u16> {
    let digits = tail.strip_prefix(':')?;
    digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok()).flatten().filter(|port| *port != 0)
}

/// Odd spellings of addresses (`127.1`, `0x7f.1`) are names here: the resolver turns them into the address they mean,
/// and that address is judged.
fn is_host_name(host: &str) -> bool {
    let label_is_valid = |label: &str| {
        (1..=63).contains(&label.len()) && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    host.len() <= HOST_BYTES_MAX && host.split('.').all(label_is_valid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authorities_become_targets_in_one_spelling() {
        for (authority, default, expected) in [
            ("Example.ORG:443", None, "example.org:443"),
            ("example.org.:443", None, "example.org:443"),
            ("example.org", Some(80), "example.org:80"),
            ("[0:0::1]:81", None, "[::1]:81"),
            ("[::1]", Some(80), "[::1]:80"),
            ("127.1:80", None, "127.1:80"),
        ] {
            assert_eq!(Target::from_authority(authority, default).unwrap().to_string(), expected, "{authority}");
        }
        assert_eq!(Target::from_authority("[::1]:80", None).unwrap().host_header(), "[::1]");
        assert_eq!(Target::from_authority("a.test:8080", None).unwrap().host_header(), "a.test:8080");
    }

    #[test]
    fn everything_else_is_refused() {
        let long = format!("{}:80", "a.".repeat(150));
        for authority in [
            "",
            ":80",
            "a.test",
            "a.test:",
            "a.test:0",
            "a.test:99999",
            "a.test:+80",
            "u@a.test:80",
            "a..b:80",
            ".:80",
            "a.test..:80",
            "::1:80",
            "[::1:80",
            "[::1]x:80",
            "[a.test]:80",
            "[fe80::1%lo]:80",
            "a%2eb:80",
            "a b:80",
            "a\0b:80",
            "*.a.test:80",
            "a/b:80",
            "é.test:80",
            &long,
        ] {
            assert!(Target::from_authority(authority, None).is_err(), "{authority:?}");
        }
    }
}
