//! Refuses requests that come by a name that is not ours or from pages that are not ours, before anything else looks
//! at them. Any page can make a browser send requests to this machine, and any name can be made to resolve to it;
//! who may do what among those let in is not decided here.

use std::net::{IpAddr, SocketAddr};

use axum::http::header::{HOST, HeaderMap, HeaderName, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{Method, Uri};

use super::Problem;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const SEC_FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");

#[derive(Debug)]
pub struct Guard {
    listening: SocketAddr,
    /// In lower case, without a final dot.
    allowed_hosts: Vec<String>,
}

impl Guard {
    /// `allowed_hosts` are names without a port, besides those that mean this machine anyway.
    pub fn new(listening: SocketAddr, allowed_hosts: Vec<String>) -> Self {
        Self { listening, allowed_hosts: allowed_hosts.iter().map(|name| normal(name)).collect() }
    }

    pub fn check(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
        let host = host(uri, headers)?;
        self.check_host(&host)?;
        check_origin(&host, headers)?;
        check_fetch_site(method, headers)
    }

    fn check_host(&self, host: &Host) -> Result<(), Problem> {
        let name = &host.name;
        if name.ends_with(".localhost") {
            return Err(Problem::wrong_host(format!(
                "{name} is where content from sandboxes is shown, the API is not there; use localhost without anything before it"
            )));
        }
        let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().ok();
        let is_listening = address.is_some_and(|address| {
            // "Any address" is none that somebody can be at.
            address == self.listening.ip() && !address.is_unspecified() && host.port == Some(self.listening.port())
        });
        let is_loopback = name == "localhost" || address.is_some_and(|address| address.is_loopback());
        if is_loopback || is_listening || self.allowed_hosts.contains(name) {
            return Ok(());
        }
        Err(Problem::wrong_host(format!(
            "the request is for the host {name}, which is not known to be this server; use localhost, or start the server \
             with --allowed-host {name} if that is its name"
        )))
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Host {
    name: String,
    port: Option<u16>,
}

impl Host {
    fn parse(text: &str) -> Option<Self> {
        let authority = text.parse::<Authority>().ok().filter(|_| !text.contains('@'))?;
        let name = normal(authority.host());
        // A colon with nothing or no number behind it is a port that could not be understood.
        let has_port = authority.as_str().len() > authority.host().len();
        let port = authority.port_u16();
        (!name.is_empty() && has_port == port.is_some()).then_some(Self { name, port })
    }

    fn is_same(&self, other: &Self, default_port: u16) -> bool {
        self.name == other.name && self.port.unwrap_or(default_port) == other.port.unwrap_or(default_port)
    }
}

fn normal(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

fn host(uri: &Uri, headers: &HeaderMap) -> Result<Host, Problem> {
    let malformed =
        |what: &str| Problem::malformed(format!("{what}; send one Host header, as in Host: localhost:8000"));
    let mut values = headers.get_all(HOST).iter();
    let host = match (values.next(), values.next()) {
        (Some(value), None) => value.to_str().ok().and_then(Host::parse),
        (None, _) => return Err(malformed("the request has no Host header")),
        (Some(_), Some(_)) => return Err(malformed("the request has more than one Host header")),
    };
    let host = host.ok_or_else(|| malformed("the Host header of the request is not a host"))?;
    match uri.authority().map(|authority| Host::parse(authority.as_str())) {
        Some(target) if target.as_ref() != Some(&host) => {
            Err(malformed("the host in the request line is not the one in the Host header"))
        }
        _ => Ok(host),
    }
}

fn check_origin(host: &Host, headers: &HeaderMap) -> Result<(), Problem> {
    let mut values = headers.get_all(ORIGIN).iter();
    let Some(value) = values.next() else {
        return Ok(());
    };
    let origin = value.to_str().unwrap_or_default();
    let parsed = origin
        .strip_prefix("http://")
        .map(|rest| (rest, 80))
        .or_else(|| origin.strip_prefix("https://").map(|rest| (rest, 443)))
        .and_then(|(rest, default_port)| Some((Host::parse(rest)?, default_port)));
    match parsed {
        Some((origin, default_port)) if values.next().is_none() && origin.is_same(host, default_port) => Ok(()),
        _ => Err(Problem::foreign_origin(
            "the request was made by a page of another origin; open the server's own page, or use a client that is no web page",
        )),
    }
}

/// Says more than `Origin`, which is missing from a page's plain GETs.
fn check_fetch_site(method: &Method, headers: &HeaderMap) -> Result<(), Problem> {
    let is = |name: HeaderName, expected: &str| headers.get(name).is_some_and(|value| value == expected);
    let is_ours = is(SEC_FETCH_SITE, "same-origin") || is(SEC_FETCH_SITE, "none");
    // A link on another site that somebody followed: the answer is shown to them, not to that site.
    let is_visit = matches!(*method, Method::GET | Method::HEAD)
        && is(SEC_FETCH_MODE, "navigate")
        && is(SEC_FETCH_DEST, "document");
    if !headers.contains_key(SEC_FETCH_SITE) || is_ours || is_visit {
        return Ok(());
    }
    Err(Problem::foreign_origin(
        "the browser says that the request was made by another site; open the server's own page, or use a client that is no \
         web page",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The status a request would be refused with; 200 if it is let in.
    fn check(method: &str, uri: &str, lines: &[&str]) -> u16 {
        let guard = Guard::new(([192, 168, 1, 5], 8000).into(), vec!["Coffer.example.".to_owned()]);
        let mut headers = HeaderMap::new();
        for line in lines {
            let (name, value) = line.split_once(": ").expect("a header");
            headers.append(HeaderName::try_from(name).expect("a name"), value.parse().expect("a value"));
        }
        let method = method.parse().expect("a method");
        guard.check(&method, &uri.parse().expect("a uri"), &headers).map_or_else(|problem| problem.status, |()| 200)
    }

    #[test]
    fn hosts() {
        let cases = [
            ("localhost", 200),
            ("LocalHost:1234", 200),
            ("localhost.:8000", 200),
            ("127.0.0.1:8000", 200),
            ("127.8.9.10", 200),
            ("[::1]:8000", 200),
            ("192.168.1.5:8000", 200),
            ("192.168.1.5:8001", 421),
            ("192.168.1.5", 421),
            ("coffer.example", 200),
            ("coffer.example:443", 200),
            ("COFFER.example.:443", 200),
            ("x.coffer.example", 421),
            ("example.com", 421),
            ("localhost.example.com", 421),
            ("127.0.0.1.example.com", 421),
            ("0.0.0.0:8000", 421),
            ("[::]:8000", 421),
            ("128.0.0.1:8000", 421),
            ("2130706433:8000", 421),
            ("8000-job.localhost:8000", 421),
            ("x.localhost.", 421),
            ("user@localhost", 400),
            ("localhost:", 400),
            ("localhost:port", 400),
            ("localhost:99999", 400),
            ("localhost/path", 400),
            ("localhost localhost", 400),
            ("[::1", 400),
            (":8000", 400),
            (".", 400),
        ];
        for (host, expected) in cases {
            assert_eq!(check("GET", "/", &[&format!("host: {host}")]), expected, "{host}");
        }
        assert_eq!(check("GET", "/", &[]), 400);
        assert_eq!(check("GET", "/", &["host: localhost", "host: localhost"]), 400);
        assert_eq!(check("GET", "http://localhost/", &["host: localhost"]), 200);
        assert_eq!(check("GET", "http://example.com/", &["host: localhost"]), 400);
    }

    #[test]
    fn origins() {
        let cases = [
            ("http://localhost:8000", 200),
            ("https://localhost:8000", 200),
            ("http://LOCALHOST:8000", 200),
            ("http://localhost", 403),
            ("http://localhost:8001", 403),
            ("http://127.0.0.1:8000", 403),
            ("http://x.localhost:8000", 403),
            ("http://example.com", 403),
            ("http://localhost:8000.example.com", 403),
            ("http://localhost:8000/", 403),
            ("http://user@localhost:8000", 403),
            ("ftp://localhost:8000", 403),
            ("localhost:8000", 403),
            ("null", 403),
        ];
        for (origin, expected) in cases {
            let origin_header = format!("origin: {origin}");
            for method in ["GET", "POST", "OPTIONS"] {
                let status = check(method, "/", &["host: localhost:8000", &origin_header]);
                assert_eq!(status, expected, "{method} {origin}");
            }
        }
        let ours = "origin: http://localhost";
        assert_eq!(check("POST", "/", &["host: localhost:80", ours]), 200, "the port that goes without saying");
        assert_eq!(check("POST", "/", &["host: localhost", "origin: https://localhost"]), 200);
        assert_eq!(check("POST", "/", &["host: localhost", ours, ours]), 403, "twice");
        let handshake = ["host: localhost", "upgrade: websocket", "origin: http://example.com"];
        assert_eq!(check("GET", "/", &handshake), 403);
    }

    #[test]
    fn sites() {
        let cases = [
            ("GET", "same-origin", "cors", "empty", 200),
            ("POST", "same-origin", "cors", "empty", 200),
            ("GET", "none", "navigate", "document", 200),
            ("GET", "cross-site", "navigate", "document", 200),
            ("HEAD", "same-site", "navigate", "document", 200),
            ("POST", "cross-site", "navigate", "document", 403),
            ("GET", "cross-site", "navigate", "iframe", 403),
            ("GET", "cross-site", "no-cors", "image", 403),
            ("GET", "cross-site", "no-cors", "script", 403),
            ("GET", "same-site", "cors", "empty", 403),
            ("GET", "cross-site", "websocket", "websocket", 403),
            ("GET", "something-new", "cors", "empty", 403),
        ];
        for (method, site, mode, dest, expected) in cases {
            let lines = [
                "host: localhost".to_owned(),
                format!("sec-fetch-site: {site}"),
                format!("sec-fetch-mode: {mode}"),
                format!("sec-fetch-dest: {dest}"),
            ];
            let lines: Vec<_> = lines.iter().map(String::as_str).collect();
            assert_eq!(check(method, "/", &lines), expected, "{method} {site} {mode} {dest}");
        }
    }
}
