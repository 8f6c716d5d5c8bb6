//! Where a server is: an origin and a path, parsed once.
//!
//! `http://…` and `https://…` are what they always are. `unix:/run/server.sock` is a socket in the file
//! system, and `unix:/run/server.sock:/mcp` says the path behind it, which is `/` otherwise.
//!
//! **Invariant:** what is reached from an address by a reference has the same origin, or it is an error.

use std::fmt;
use std::path::PathBuf;

use http::uri::{Authority, PathAndQuery};
use url::{Host, Url};

/// Where requests go.
#[derive(Clone)]
pub(crate) struct EndpointUrl {
    pub(crate) origin: Origin,
    pub(crate) path: PathAndQuery,
    pub(crate) authority: Authority,
    /// How the head of a request goes on after its http_method: the path, the version and `Host`.
    pub(crate) request_line: Box<[u8]>,
    /// What references are resolved against. For sockets it is made up.
    base: Url,
}

/// Whom we trust with what we send.
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

/// Why a text is no address we use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum UrlError {
    /// It cannot be read, for this reason.
    Invalid(String),
    /// It leads to this other origin.
    CrossOrigin(String),
}

impl EndpointUrl {
    pub(crate) fn parse(text: &str) -> Result<Self, UrlError> {
        match text.strip_prefix("unix:") {
            Some(rest) => Self::parse_unix(rest),
            None => Self::parse_tcp(Url::parse(text).map_err(invalid)?),
        }
    }

    /// Resolves what the server says instead of an address.
    pub(crate) fn join(&self, reference: &str) -> Result<Self, UrlError> {
        let url = self.base.join(reference).map_err(invalid)?;
        if url.origin() != self.base.origin() || has_userinfo(&url) {
            return Err(UrlError::CrossOrigin(url.origin().ascii_serialization()));
        }
        Self::from_url(self.origin.clone(), url)
    }

    /// Whether nothing leaves this machine.
    pub(crate) fn is_local(&self) -> bool {
        match &self.origin {
            Origin::Unix(_) => true,
            Origin::Tcp { host, .. } => is_loopback(host),
        }
    }

    pub(crate) fn is_encrypted(&self) -> bool {
        matches!(self.origin, Origin::Tcp { security: Security::Tls, .. })
    }

    fn parse_unix(rest: &str) -> Result<Self, UrlError> {
        let (socket, path) = match rest.split_once(":/") {
            Some((socket, path)) => (socket, format!("/{path}")),
            None => (rest, "/".to_owned()),
        };
        if !socket.starts_with('/') {
            let reason = "a socket needs an absolute path, as in `unix:/run/server.sock:/mcp`";
            return Err(UrlError::Invalid(reason.to_owned()));
        }
        let url = Url::parse("http://localhost/").and_then(|base| base.join(&path));
        Self::from_url(Origin::Unix(PathBuf::from(socket)), url.map_err(invalid)?)
    }

    fn parse_tcp(url: Url) -> Result<Self, UrlError> {
        let security = match url.scheme() {
            "http" => Security::Plain,
            "https" => Security::Tls,
            other => {
                let reason = format!("`{other}` is no scheme we speak; use http, https or unix");
                return Err(UrlError::Invalid(reason));
            }
        };
        if has_userinfo(&url) {
            let reason = "name and password do not belong into the URL; use a header";
            return Err(UrlError::Invalid(reason.to_owned()));
        }
        let (Some(host), Some(port)) = (url.host(), url.port_or_known_default()) else {
            return Err(UrlError::Invalid("the URL has no host".to_owned()));
        };
        let origin = Origin::Tcp { security, host: host.to_owned(), port };
        Self::from_url(origin, url)
    }

    fn from_url(origin: Origin, url: Url) -> Result<Self, UrlError> {
        let path = match url.query() {
            Some(query) => format!("{}?{query}", url.path()),
            None => url.path().to_owned(),
        };
        let host = match url.port() {
            Some(port) => format!("{}:{port}", url.host_str().unwrap_or_default()),
            None => url.host_str().unwrap_or_default().to_owned(),
        };
        let path = PathAndQuery::try_from(path).map_err(invalid)?;
        let authority = Authority::try_from(host).map_err(invalid)?;
        let request_line = format!("{path} HTTP/1.1\r\nhost: {authority}\r\n").into_bytes();
        Ok(Self {
            origin,
            path,
            authority,
            request_line: request_line.into_boxed_slice(),
            base: url,
        })
    }
}

/// Shown without the query, which may hold a key.
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

impl fmt::Display for UrlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UrlError::Invalid(reason) => f.write_str(reason),
            UrlError::CrossOrigin(origin) => write!(f, "it leads to another origin: {origin}"),
        }
    }
}

pub(crate) fn is_loopback<S: AsRef<str>>(host: &Host<S>) -> bool {
    match host {
        Host::Domain(name) => {
            let name = name.as_ref();
            name == "localhost" || name.ends_with(".localhost")
        }
        Host::Ipv4(address) => address.is_loopback(),
        Host::Ipv6(address) => address.is_loopback(),
    }
}

/// An address that may be invalid_definition, without what may be secret in it: user, password, query and fragment.
pub(crate) fn redact_url(url: &str) -> String {
    let shown = url.split(['?', '#']).next().unwrap_or_default();
    let (scheme, rest) = shown.split_once("//").unwrap_or(("", shown));
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    match authority.rsplit_once('@') {
        Some((_user, host)) => format!("{scheme}//…@{host}{path}"),
        None => shown.to_owned(),
    }
}

fn has_userinfo(url: &Url) -> bool {
    !url.username().is_empty() || url.password().is_some()
}

fn invalid(fault: impl fmt::Display) -> UrlError {
    UrlError::Invalid(fault.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_password_is_shown() {
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
    fn check(text: &str, shown: &str, host: &str, path: &str) {
        let address = EndpointUrl::parse(text).unwrap();
        let found = (address.to_string(), address.authority.as_str(), address.path.as_str());
        assert_eq!(found, (shown.to_owned(), host, path), "{text}");
    }

    #[test]
    fn addresses_are_read() {
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
    fn what_is_no_address_is_refused() {
        for text in ["", "mcp", "ftp://a", "file:///x", "https://u:p@a/", "unix:a.sock", "http://"]
        {
            assert!(EndpointUrl::parse(text).is_err(), "{text}");
        }
    }

    #[track_caller]
    fn read_sse_response(base: &str, reference: &str, expected: Option<&str>) {
        let joined = EndpointUrl::parse(base).unwrap().join(reference);
        assert_eq!(
            joined.ok().map(|url| url.to_string()).as_deref(),
            expected,
            "{base} {reference}"
        );
    }

    #[test]
    fn references_stay_at_home() {
        let base = "https://a.example/sse";
        follow(base, "/messages?id=1", Some("https://a.example/messages"));
        follow(base, "messages", Some("https://a.example/messages"));
        follow(base, "https://a.example:443/m", Some("https://a.example/m"));
        follow(base, "http://a.example/m", None);
        follow(base, "https://b.example/m", None);
        follow(base, "//b.example/m", None);
        follow(base, "https://a.example:8443/m", None);
        follow(base, "https://u@a.example/m", None);
        follow("unix:/run/a.sock:/sse", "/m", Some("unix:/run/a.sock:/m"));
        follow("unix:/run/a.sock:/sse", "http://b/m", None);
    }

    #[test]
    fn loopback_is_known() {
        for (text, expected) in [
            ("http://localhost/", true),
            ("http://x.localhost/", true),
            ("http://127.0.0.9/", true),
            ("http://[::1]/", true),
            ("unix:/run/a.sock", true),
            ("http://localhost.example/", false),
            ("http://10.0.0.1/", false),
        ] {
            assert_eq!(EndpointUrl::parse(text).unwrap().is_local(), expected, "{text}");
        }
    }
}
