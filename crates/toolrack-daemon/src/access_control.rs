//! Access control: `Host`, `Origin` and token checks on the request head, before anything else reads the request.
//!
//! Any web page can make a browser send requests to localhost. A request over TCP must therefore name this daemon
//! (`Host`), must not come from another site (`Origin`, `Sec-Fetch-Site`), and must carry a token that no page knows.
//! A request over the Unix socket comes from a process of the same user, which the kernel has verified.
//!
//! **Invariant:** fail closed: a request that is not known to be harmless is refused.

use std::net::SocketAddr;

use http::header::{AUTHORIZATION, HeaderMap, HeaderName};
use http::request::Parts;
use toolrack_gateway::{ForbiddenHeader, check_host_and_origin, single_value};

use crate::tokens::Tokens;

/// Browsers send these headers with every request, and scripts cannot change them.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const SEC_FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");

/// The listener that accepted a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListenerKind {
    /// The Unix socket, whose peer the kernel has verified.
    Unix,
    /// TCP, at this local address.
    Tcp(SocketAddr),
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AccessDenied {
    /// `Host` does not name this daemon.
    Host,
    /// The request comes from another site.
    Origin,
    /// The request has no token.
    MissingToken,
    /// The token is invalid.
    InvalidToken,
}

/// Whether a route needs no token: the dashboard's static files, its login and the liveness probe.
pub(crate) fn is_public(method: &http::Method, path: &str) -> bool {
    let is_read = method == http::Method::GET || method == http::Method::HEAD;
    match path {
        "/healthz" => is_read,
        "/api/login" => method == http::Method::POST,
        // An exact match against the list of files: a pattern could let `/api/..` through.
        path => is_read && crate::assets::is_asset(path),
    }
}

/// Checks whether a request is allowed.
pub(crate) fn check(
    listener: ListenerKind,
    head: &Parts,
    tokens: &Tokens,
) -> Result<(), AccessDenied> {
    let ListenerKind::Tcp(own) = listener else { return Ok(()) };
    // Before the token: a page behind DNS rebinding is refused in the same way with or without one.
    check_host_and_origin(head, Some(own.port())).map_err(|forbidden| match forbidden {
        ForbiddenHeader::Host => AccessDenied::Host,
        ForbiddenHeader::Origin => AccessDenied::Origin,
    })?;
    check_fetch_site(head)?;
    if is_public(&head.method, head.uri.path()) {
        return Ok(());
    }
    check_token(&head.headers, tokens)
}

fn check_fetch_site(head: &Parts) -> Result<(), AccessDenied> {
    match single_value(&head.headers, &SEC_FETCH_SITE) {
        // `none`: the user typed the address or followed a link from outside the browser.
        Some("same-origin" | "none") => Ok(()),
        Some("cross-site") if is_dashboard_navigation(head) => Ok(()),
        None if !head.headers.contains_key(SEC_FETCH_SITE) => Ok(()),
        _ => Err(AccessDenied::Origin),
    }
}

/// Whether a browser navigates to the dashboard in a top-level window, as the login file makes it do.
///
/// Safe from any site: the page holds no data, cannot be framed, and the referring site cannot read it.
fn is_dashboard_navigation(head: &Parts) -> bool {
    let has = |name: HeaderName, value| single_value(&head.headers, &name) == Some(value);
    head.method == http::Method::GET
        && head.uri.path() == "/"
        && has(SEC_FETCH_MODE, "navigate")
        && has(SEC_FETCH_DEST, "document")
}

fn check_token(headers: &HeaderMap, tokens: &Tokens) -> Result<(), AccessDenied> {
    if !headers.contains_key(AUTHORIZATION) {
        return Err(AccessDenied::MissingToken);
    }
    let value = single_value(headers, &AUTHORIZATION).and_then(|value| value.split_once(' '));
    // RFC 9110 §11.1: the scheme is case-insensitive.
    match value.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")) {
        Some((_, token)) if tokens.is_valid(token.trim()) => Ok(()),
        _ => Err(AccessDenied::InvalidToken),
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    const OWN: &str = "127.0.0.1:7000";

    #[track_caller]
    fn check_request(uri: &str, headers: &[(&str, &str)], expected: Result<(), AccessDenied>) {
        let tokens = Tokens::for_test("right");
        let mut request = Request::builder().uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (head, ()) = request.body(()).unwrap().into_parts();
        let listener = ListenerKind::Tcp(OWN.parse().unwrap());
        assert_eq!(check(listener, &head, &tokens), expected, "{uri} {headers:?}");
        assert_eq!(check(ListenerKind::Unix, &head, &tokens), Ok(()));
    }

    #[test]
    fn only_loopback_names_with_own_port_are_accepted_as_host() {
        let auth = ("authorization", "Bearer right");
        for host in [OWN, "localhost:7000", "[::1]:7000"] {
            check_request("/api/tools", &[("host", host), auth], Ok(()));
        }
        let wrong = [
            "127.0.0.1",
            "127.0.0.1:7001",
            "127.0.0.1:07000",
            "localhost",
            "LOCALHOST:7000",
            "localhost.:7000",
            "127.0.0.1.nip.io:7000",
            "evil.example:7000",
            "evil.example",
            "user@127.0.0.1:7000",
            "0.0.0.0:7000",
            "127.1:7000",
            "2130706433:7000",
            "[::]:7000",
            "[::ffff:127.0.0.1]:7000",
            "",
            ":7000",
            " 127.0.0.1:7000",
        ];
        for host in wrong {
            check_request("/api/tools", &[("host", host), auth], Err(AccessDenied::Host));
            check_request("/", &[("host", host)], Err(AccessDenied::Host));
        }
        check_request("/", &[], Err(AccessDenied::Host));
        check_request("/", &[("host", OWN), ("host", OWN)], Err(AccessDenied::Host));
        check_request("http://evil.example/", &[("host", OWN)], Err(AccessDenied::Host));
        check_request("http://127.0.0.1:7000/", &[("host", OWN)], Ok(()));
    }

    #[test]
    fn cross_origin_requests_are_refused() {
        let check = |more: &[(&str, &str)], expected| {
            let mut headers = vec![("host", OWN), ("authorization", "Bearer right")];
            headers.extend(more);
            check_request("/api/tools", &headers, expected);
        };
        for origin in ["http://127.0.0.1:7000", "http://localhost:7000"] {
            check(&[("origin", origin)], Ok(()));
        }
        let wrong = [
            "null",
            "",
            "http://evil.example",
            "https://127.0.0.1:7000",
            "http://127.0.0.1",
            "http://127.0.0.1:7001",
            "http://127.0.0.1:7000/",
            "http://127.0.0.1:7000.evil.example",
            "file://",
            "chrome-extension://abc",
        ];
        for origin in wrong {
            check(&[("origin", origin)], Err(AccessDenied::Origin));
        }
        check(&[("sec-fetch-site", "same-origin")], Ok(()));
        check(&[("sec-fetch-site", "none")], Ok(()));
        for site in ["cross-site", "same-site", "", "NONE", "same-origin, none"] {
            check(&[("sec-fetch-site", site)], Err(AccessDenied::Origin));
        }
    }

    #[test]
    fn cross_site_navigation_reaches_only_the_dashboard() {
        let from = |site, mode, dest| {
            let host = ("host", OWN);
            [host, ("sec-fetch-site", site), ("sec-fetch-mode", mode), ("sec-fetch-dest", dest)]
        };
        let navigation = from("cross-site", "navigate", "document");
        check_request("/", &navigation, Ok(()));
        for path in ["/app.js", "/healthz", "/api/tools", "/api/login", "/mcp"] {
            check_request(path, &navigation, Err(AccessDenied::Origin));
        }
        for other in [
            from("same-site", "navigate", "document"),
            from("cross-site", "navigate", "iframe"),
            from("cross-site", "no-cors", "document"),
            from("cross-site", "cors", "empty"),
        ] {
            check_request("/", &other, Err(AccessDenied::Origin));
        }
        let with_origin = [&navigation[..], &[("origin", "null")]].concat();
        check_request("/", &with_origin, Err(AccessDenied::Origin));
    }

    #[test]
    fn all_routes_but_the_static_ones_require_a_token() {
        let host = ("host", OWN);
        for path in ["/", "/?token=right", "/healthz"] {
            check_request(path, &[host], Ok(()));
        }
        for path in [
            "/readyz",
            "/metrics",
            "/api/tools",
            "/api/tools?token=right",
            "/mcp",
            "/nowhere",
            "//",
            "/x/..",
        ] {
            check_request(path, &[host], Err(AccessDenied::MissingToken));
            for value in
                ["Bearer wrong", "Bearer", "Bearer ", "Basic right", "right", "Bearer right right"]
            {
                check_request(
                    path,
                    &[host, ("authorization", value)],
                    Err(AccessDenied::InvalidToken),
                );
            }
            check_request(path, &[host, ("authorization", "bearer right")], Ok(()));
            check_request(
                path,
                &[host, ("cookie", "token=right")],
                Err(AccessDenied::MissingToken),
            );
        }
    }
}
