//! Server URL: origin and path, parsed once.
//!
//! Besides `http://…` and `https://…`, `unix:/run/server.sock` is a Unix socket, and
//! `unix:/run/server.sock:/mcp` adds the request path, which is `/` otherwise.
//!
//! **Invariant:** a URL resolved against an endpoint has the same origin, or it is an error.

use std::fmt;
use std::path::PathBuf;

use http::uri::{Authority, PathAndQuery};
use url::{Host, Position, Url};

/// Parsed URL that requests go to.
#[derive(Clone)]
pub(crate) struct EndpointUrl {
    pub(crate) origin: Origin,
    pub(crate) path: PathAndQuery,
    pub(crate) authority: Authority,
    /// The request head after the HTTP method: path, version and `Host`.
    pub(crate) request_line: Box<[u8]>,
    /// Base for relative references. Made up for Unix sockets.
    base: Url,
}

/// Origin that credentials may be sent to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    Tcp { security: Security, host: Host, port: u16 },
    Unix(PathBuf),
}

/// Whether a connection is encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Security {
    Plain,
    Tls,
}

impl EndpointUrl {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        match text.strip_prefix("unix:") {
            Some(rest) => Self::parse_unix(rest),
            None => Self::parse_tcp(Url::parse(text).map_err(|error| error.to_string())?),
        }
    }

    /// Resolves a reference from the server.
    pub(crate) fn join(&self, reference: &str) -> Result<Self, String> {
        let url = self.base.join(reference).map_err(|error| error.to_string())?;
        // `origin()` leaves out user name and password, so they are checked as well.
        if url.origin() != self.base.origin() || has_userinfo(&url) {
            let origin = url.origin().ascii_serialization();
            return Err(format!("it leads to another origin: {origin}"));
        }
        Self::from_url(self.origin.clone(), url)
    }

    /// Whether requests go unencrypted to another machine.
    pub(crate) fn is_exposed(&self) -> bool {
        match &self.origin {
            Origin::Tcp { security: Security::Plain, host, .. } => !is_loopback(host),
            Origin::Tcp { security: Security::Tls, .. } | Origin::Unix(_) => false,
        }
    }

    fn parse_unix(rest: &str) -> Result<Self, String> {
        let (socket, path) = match rest.split_once(":/") {
            Some((socket, path)) => (socket, format!("/{path}")),
            None => (rest, "/".to_owned()),
        };
        if !socket.starts_with('/') {
            let reason = "a Unix socket needs an absolute path, as in `unix:/run/server.sock:/mcp`";
            return Err(reason.to_owned());
        }
        let url = Url::parse("http://localhost/").and_then(|base| base.join(&path));
        Self::from_url(Origin::Unix(PathBuf::from(socket)), url.map_err(|error| error.to_string())?)
    }

    fn parse_tcp(url: Url) -> Result<Self, String> {
        let security = match url.scheme() {
            "http" => Security::Plain,
            "https" => Security::Tls,
            other => {
                return Err(format!("unsupported scheme `{other}`; use http, https or unix"));
            }
        };
        if has_userinfo(&url) {
            let reason = "the URL must not contain a user name or password; use a header";
            return Err(reason.to_owned());
        }
        let (Some(host), Some(port)) = (url.host(), url.port_or_known_default()) else {
            return Err("the URL has no host".to_owned());
        };
        let origin = Origin::Tcp { security, host: host.to_owned(), port };
        Self::from_url(origin, url)
    }

    fn from_url(origin: Origin, url: Url) -> Result<Self, String> {
        let path = &url[Position::BeforePath..Position::AfterQuery];
        let path = PathAndQuery::try_from(path).map_err(|error| error.to_string())?;
        let authority = &url[Position::BeforeHost..Position::AfterPort];
        let authority = Authority::try_from(authority).map_err(|error| error.to_string())?;
        let request_line = format!("{path} HTTP/1.1\r\nhost: {authority}\r\n").into_bytes();
        Ok(Self { origin, path, authority, request_line: request_line.into(), base: url })
    }
}

/// Without the query, which may contain a key.
impl fmt::Display for EndpointUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            Origin::Unix(socket) => write!(f, "unix:{}:{}", socket.display(), self.path.path()),
            Origin::Tcp { .. } => {
                write!(f, "{}://{}{}", self.base.scheme(), self.authority, self.path.path())
            }
        }
    }
}

impl fmt::Debug for EndpointUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EndpointUrl({self})")
    }
}

pub(crate) fn is_loopback(host: &Host) -> bool {
    match host {
        // RFC 6761 §6.3: `localhost` and all names below it are loopback.
        Host::Domain(name) => name == "localhost" || name.ends_with(".localhost"),
        Host::Ipv4(address) => address.is_loopback(),
        Host::Ipv6(address) => address.is_loopback(),
    }
}

/// Removes user, password, query and fragment from a URL, which may be invalid.
pub(crate) fn redact_url(url: &str) -> String {
    let visible = url.split(['?', '#']).next().unwrap_or_default();
    let (scheme, rest) = visible.split_once("//").unwrap_or(("", visible));
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    match authority.rsplit_once('@') {
        Some((_user, host)) => format!("{scheme}//…@{host}{path}"),
        None => visible.to_owned(),
    }
}

fn has_userinfo(url: &Url) -> bool {
    !url.username().is_empty() || url.password().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redact_url_removes_userinfo_and_query() {
        for (url, expected) in [
            ("http://user:pass@host:1/x?key=1#y", "http://…@host:1/x"),
            ("http://user:p@ss@host", "http://…@host"),
            ("http://host/@scope/x?y", "http://host/@scope/x"),
            ("htp:user:pass@host", "//…@host"),
            ("", ""),
        ] {
            assert_eq!(redact_url(url), expected, "{url}");
        }
    }

    #[track_caller]
    fn check(text: &str, visible: &str, host: &str, path: &str) {
        let url = EndpointUrl::parse(text).unwrap();
        let found = (url.to_string(), url.authority.as_str(), url.path.as_str());
        assert_eq!(found, (visible.to_owned(), host, path), "{text}");
    }

    #[test]
    fn endpoint_urls_are_parsed() {
        check("https://a.example/mcp", "https://a.example/mcp", "a.example", "/mcp");
        check("HTTP://A.example:80", "http://a.example/", "a.example", "/");
        check("http://[::1]:8080/x?k=s#f", "http://[::1]:8080/x", "[::1]:8080", "/x?k=s");
        check(
            "https://bücher.example/ä",
            "https://xn--bcher-kva.example/%C3%A4",
            "xn--bcher-kva.example",
            "/%C3%A4",
        );
        check("unix:/run/a.sock", "unix:/run/a.sock:/", "localhost", "/");
        check("unix:/run/a.sock:/mcp?x=1", "unix:/run/a.sock:/mcp", "localhost", "/mcp?x=1");
    }

    #[test]
    fn invalid_endpoint_urls_are_rejected() {
        for text in ["", "mcp", "ftp://a", "file:///x", "https://u:p@a/", "unix:a.sock", "http://"]
        {
            assert!(EndpointUrl::parse(text).is_err(), "{text}");
        }
    }

    #[track_caller]
    fn check_join(base: &str, reference: &str, expected: Option<&str>) {
        let joined = EndpointUrl::parse(base).unwrap().join(reference);
        assert_eq!(
            joined.ok().map(|url| url.to_string()).as_deref(),
            expected,
            "{base} {reference}"
        );
    }

    #[test]
    fn join_rejects_another_origin() {
        let base = "https://a.example/sse";
        check_join(base, "/messages?id=1", Some("https://a.example/messages"));
        check_join(base, "messages", Some("https://a.example/messages"));
        check_join(base, "https://a.example:443/m", Some("https://a.example/m"));
        check_join(base, "http://a.example/m", None);
        check_join(base, "https://b.example/m", None);
        check_join(base, "//b.example/m", None);
        check_join(base, "https://a.example:8443/m", None);
        check_join(base, "https://u@a.example/m", None);
        check_join("unix:/run/a.sock:/sse", "/m", Some("unix:/run/a.sock:/m"));
        check_join("unix:/run/a.sock:/sse", "http://b/m", None);
    }

    #[test]
    fn only_plain_http_to_other_hosts_is_exposed() {
        for (text, expected) in [
            ("http://localhost/", false),
            ("http://x.localhost/", false),
            ("http://127.0.0.9/", false),
            ("http://[::1]/", false),
            ("unix:/run/a.sock", false),
            ("https://10.0.0.1/", false),
            ("http://localhost.example/", true),
            ("http://10.0.0.1/", true),
        ] {
            assert_eq!(EndpointUrl::parse(text).unwrap().is_exposed(), expected, "{text}");
        }
    }
}
