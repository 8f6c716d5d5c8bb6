//! Who may come in: requests whose `Host` and `Origin` are not ours are turned away.
//!
//! A page in a browser can make requests to this machine under a name of its own; such a request carries that
//! name.

use std::fmt;
use std::sync::Arc;

use http::request::Parts;
use http::{HeaderMap, Uri, header};

/// Looks at a request before its body is read. `Err` says why it is turned away.
pub type Check = dyn Fn(&Parts) -> Result<(), String> + Send + Sync;

/// Who may come in.
#[derive(Clone, Default)]
pub enum Access {
    /// Requests to this machine by its own name, from its own pages.
    #[default]
    Loopback,
    /// Whatever a program's own check lets in.
    Checked(Arc<Check>),
}

impl Access {
    pub(crate) fn check(&self, parts: &Parts) -> Result<(), String> {
        match self {
            Access::Loopback => loopback(&parts.headers, &parts.uri),
            Access::Checked(check) => check(parts),
        }
    }
}

fn loopback(headers: &HeaderMap, uri: &Uri) -> Result<(), String> {
    let host = match headers.get(header::HOST) {
        Some(host) => host.to_str().ok().map(str::to_owned),
        // HTTP/2 says it in the address.
        None => uri.authority().map(ToString::to_string),
    };
    if !host.as_deref().is_some_and(is_local) {
        return Err("Invalid Host header".to_owned());
    }
    let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
    let origin = origin.to_str().ok().and_then(|it| it.split_once("://"));
    match origin {
        Some(("http" | "https", authority)) if is_local(authority) => Ok(()),
        _ => Err("Invalid Origin header".to_owned()),
    }
}

/// Whether an authority is this machine, at whatever port.
fn is_local(authority: &str) -> bool {
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (authority, None),
    };
    let has_port = port.is_none_or(|it| it.parse::<u16>().is_ok());
    has_port && ["localhost", "127.0.0.1", "[::1]"].iter().any(|it| host.eq_ignore_ascii_case(it))
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Access::Loopback => "Loopback",
            Access::Checked(_) => "Checked(…)",
        })
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[track_caller]
    fn check(host: Option<&str>, origin: Option<&str>, expected: Result<(), ()>) {
        let mut headers = HeaderMap::new();
        let mut put = |name, value: Option<&str>| {
            value.map(|it| headers.insert(name, HeaderValue::from_str(it).unwrap()));
        };
        put(header::HOST, host);
        put(header::ORIGIN, origin);
        let checked = loopback(&headers, &Uri::from_static("/mcp"));
        assert_eq!(checked.map_err(drop), expected, "{host:?} {origin:?}");
    }

    #[test]
    fn only_this_machine_is_let_in() {
        check(Some("localhost:3000"), None, Ok(()));
        check(Some("LOCALHOST"), None, Ok(()));
        check(Some("127.0.0.1:1"), Some("http://localhost:5173"), Ok(()));
        check(Some("[::1]:80"), Some("https://[::1]"), Ok(()));
        check(Some("evil.example"), None, Err(()));
        check(Some("evil.example:3000"), Some("http://localhost"), Err(()));
        check(Some("localhost"), Some("http://evil.example"), Err(()));
        check(Some("localhost.evil.example"), None, Err(()));
        check(Some("127.0.0.1.evil.example"), None, Err(()));
        check(Some("localhost:evil"), None, Err(()));
        check(Some("localhost"), Some("null"), Err(()));
        check(Some("localhost"), Some("file://localhost"), Err(()));
        check(None, None, Err(()));
    }
}
