//! What a sandbox may reach: nothing (the default), a list of names, or everything public. Parsing and matching of
//! names; connecting, resolving and checking addresses is the egress proxy's work.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// More patterns than this in one policy is a mistake, not a policy.
pub const PATTERNS_MAX: usize = 1_000;

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NetworkPolicy {
    #[default]
    None,
    Allow(Vec<HostPattern>),
    /// Every public address; private ones still have to be named, which an open policy cannot do.
    Open,
}

/// `host`, `*.host` (names below it, not itself), or either with `:port`. An address counts as a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HostPattern {
    /// Lower case, without the `*.` and without a trailing dot.
    name: String,
    below: bool,
    port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "\"{pattern}\" is not a network pattern ({problem}); write none, open, or names such as example.org, *.example.org or example.org:443"
)]
pub struct PatternError {
    pub pattern: String,
    pub problem: &'static str,
}

impl HostPattern {
    /// Whether the pattern names this host and port. `host` as the client sent it.
    pub fn matches(&self, host: &str, port: u16) -> bool {
        if self.port.is_some_and(|p| p != port) {
            return false;
        }
        let host = normal(host);
        if self.below {
            host.len() > self.name.len() + 1
                && host.ends_with(&self.name)
                && host.as_bytes()[host.len() - self.name.len() - 1] == b'.'
        } else {
            host == self.name
        }
    }

    /// Whether the pattern names this very host (not a wildcard above it): only then may it be a private address.
    pub fn names_exactly(&self, host: &str, port: u16) -> bool {
        !self.below && self.matches(host, port)
    }
}

impl NetworkPolicy {
    pub fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }

    pub fn allows(&self, host: &str, port: u16) -> bool {
        match self {
            Self::None => false,
            Self::Allow(patterns) => patterns.iter().any(|p| p.matches(host, port)),
            Self::Open => true,
        }
    }

    /// Whether a private, loopback or link-local address is acceptable for this host.
    pub fn allows_private(&self, host: &str, port: u16) -> bool {
        match self {
            Self::Allow(patterns) => patterns.iter().any(|p| p.names_exactly(host, port)),
            Self::None | Self::Open => false,
        }
    }
}

impl FromStr for NetworkPolicy {
    type Err = PatternError;

    /// `none`, `open`, or patterns separated by commas.
    fn from_str(text: &str) -> Result<Self, PatternError> {
        match text.trim() {
            "none" => Ok(Self::None),
            "open" => Ok(Self::Open),
            list => {
                let patterns = list.split(',').map(|p| p.trim().parse()).collect::<Result<Vec<_>, _>>()?;
                if patterns.len() > PATTERNS_MAX {
                    return Err(PatternError { pattern: format!("{} patterns", patterns.len()), problem: "too many" });
                }
                Ok(Self::Allow(patterns))
            }
        }
    }
}

impl fmt::Display for NetworkPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Open => f.write_str("open"),
            Self::Allow(patterns) => {
                for (index, pattern) in patterns.iter().enumerate() {
                    write!(f, "{}{pattern}", if index == 0 { "" } else { "," })?;
                }
                Ok(())
            }
        }
    }
}

impl FromStr for HostPattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        let wrong = |problem| PatternError { pattern: text.to_owned(), problem };
        if text.contains('/') {
            return Err(wrong("it is a URL, not a name"));
        }
        if matches!(text, "none" | "open") {
            return Err(wrong("none and open stand alone, not in a list"));
        }
        let (below, rest) = match text.strip_prefix("*.") {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (host, port) = split_port(rest).ok_or_else(|| wrong("the port is not a number from 1 to 65535"))?;
        let name = normal(host);
        if name.is_empty() {
            return Err(wrong("the name is empty"));
        }
        if name.parse::<IpAddr>().is_ok() {
            return if below { Err(wrong("an address has no names below it")) } else { Ok(Self { name, below, port }) };
        }
        if name.contains('*') {
            return Err(wrong("a * may only stand for everything in front of the first dot, as in *.example.org"));
        }
        let label_is_valid = |label: &str| {
            !label.is_empty()
                && label.len() <= 63
                && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        };
        if name.len() > 253 || !name.split('.').all(label_is_valid) {
            return Err(wrong("it is not a host name"));
        }
        Ok(Self { name, below, port })
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let star = if self.below { "*." } else { "" };
        match self.port {
            Some(port) if self.name.contains(':') => write!(f, "{star}[{}]:{port}", self.name),
            Some(port) => write!(f, "{star}{}:{port}", self.name),
            None => write!(f, "{star}{}", self.name),
        }
    }
}

impl TryFrom<String> for HostPattern {
    type Error = PatternError;
    fn try_from(text: String) -> Result<Self, PatternError> {
        text.parse()
    }
}

impl From<HostPattern> for String {
    fn from(pattern: HostPattern) -> String {
        pattern.to_string()
    }
}

/// `host`, `host:port`, `[v6]`, `[v6]:port`, bare v6. `None` when a port is there but is not one.
fn split_port(text: &str) -> Option<(&str, Option<u16>)> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, tail) = rest.split_once(']')?;
        return match tail {
            "" => Some((host, None)),
            tail => Some((host, Some(port(tail.strip_prefix(':')?)?))),
        };
    }
    match text.split_once(':') {
        None => Some((text, None)),
        Some((_, tail)) if tail.contains(':') => Some((text, None)),
        Some((host, tail)) => Some((host, Some(port(tail)?))),
    }
}

fn port(text: &str) -> Option<u16> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten().filter(|p| *p != 0)
}

fn normal(host: &str) -> String {
    let host = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
    let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    // One spelling for each address, so that 0:0::1 and ::1 are the same name.
    host.parse::<IpAddr>().map(|ip| ip.to_string()).unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_what_they_say() {
        let policy: NetworkPolicy =
            "example.org, *.packages.test, api.test:8443, 127.0.0.2:80, [::1]:81".parse().unwrap();
        let cases = [
            ("example.org", 443, true),
            ("EXAMPLE.org.", 80, true),
            ("www.example.org", 443, false),
            ("badexample.org", 443, false),
            ("files.packages.test", 443, true),
            ("a.b.packages.test", 443, true),
            ("packages.test", 443, false),
            ("evilpackages.test", 443, false),
            ("api.test", 8443, true),
            ("api.test", 443, false),
            ("127.0.0.2", 80, true),
            ("127.0.0.1", 80, false),
            ("[0:0::1]", 81, true),
        ];
        for (host, port, expected) in cases {
            assert_eq!(policy.allows(host, port), expected, "{host}:{port}");
        }
        assert!(policy.allows_private("127.0.0.2", 80));
        assert!(!policy.allows_private("files.packages.test", 443));
        assert_eq!(policy.to_string().parse::<NetworkPolicy>().unwrap(), policy);
    }

    #[test]
    fn bad_patterns_are_refused_with_the_remedy() {
        for text in [
            "",
            "http://x.org",
            "x.org/path",
            "*",
            "*.*.org",
            "a b",
            "x:0",
            "x:99999",
            "*.10.0.0.1",
            "x..org",
            "x,,y",
            "open,x.org",
            "a\0b",
        ] {
            let error = text.parse::<NetworkPolicy>().unwrap_err().to_string();
            assert!(error.contains("write none, open, or names such as"), "{text}: {error}");
        }
    }
}
