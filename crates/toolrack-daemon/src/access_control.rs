//! Who is let in: decided from the head of a request alone, before anything else of it is looked at.
//!
//! A browser can be made to send requests by any page it shows, so a request over TCP has to name this machine
//! itself (`Host`), must not come from another page (`Origin`, `Sec-Fetch-Site`), and has to bring a key that no
//! page knows. A request over the Unix socket comes from a process of the same user, which the kernel vouches for.
//!
//! **Invariant:** what is not known to be harmless is refused.

use std::net::SocketAddr;

use http::header::{AUTHORIZATION, HOST, HeaderMap, HeaderName, HeaderValue, ORIGIN};
use http::request::Parts;

use crate::tokens::Keys;

/// Pages send it with every request, and scripts cannot change it.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const SEC_FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");

/// Where a request came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Door {
    /// The Unix socket, whose other end has been checked by the kernel.
    Socket,
    /// TCP, at this address of ours.
    Tcp(SocketAddr),
}

/// What a route asks of whoever comes in over TCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    /// A key. The rule, for every path that is not known to be another.
    Key,
    /// Nothing but to come from here: the page itself, which holds no data, and how it gets its key.
    Nothing,
}

/// Why somebody is not let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The request is for somebody else.
    Host,
    /// It comes from another page.
    Origin,
    /// It has no key.
    NoKey,
    /// It has a wrong one.
    WrongKey,
}

/// What a path asks for.
pub(crate) fn asked(method: &http::Method, path: &str) -> Asked {
    let reads = method == http::Method::GET || method == http::Method::HEAD;
    match path {
        "/healthz" if reads => Asked::Nothing,
        "/api/login" if method == http::Method::POST => Asked::Nothing,
        path if reads && crate::assets::is_asset(path) => Asked::Nothing,
        _ => Asked::Key,
    }
}

/// Whether a request is let in.
pub(crate) fn admit(door: Door, head: &Parts, keys: &Keys) -> Result<(), Refusal> {
    let Door::Tcp(own) = door else { return Ok(()) };
    check_host(own, head)?;
    check_origin(own, head)?;
    match asked(&head.method, head.uri.path()) {
        Asked::Nothing => Ok(()),
        Asked::Key => check_key(&head.headers, keys),
    }
}

fn check_host(own: SocketAddr, head: &Parts) -> Result<(), Refusal> {
    let host = only(&head.headers, &HOST).map_err(|_several| Refusal::Host)?;
    if !host.is_some_and(|it| is_own_authority(own, it)) {
        return Err(Refusal::Host);
    }
    // A request line may name a host of its own, and that one counts for whoever routes by it.
    match head.uri.authority() {
        Some(named) if !is_own_authority(own, named.as_str()) => Err(Refusal::Host),
        _ => Ok(()),
    }
}

fn check_origin(own: SocketAddr, head: &Parts) -> Result<(), Refusal> {
    let headers = &head.headers;
    let foreign = |_several| Refusal::Origin;
    if let Some(origin) = only(headers, &ORIGIN).map_err(foreign)? {
        let authority = origin.strip_prefix("http://").ok_or(Refusal::Origin)?;
        if !is_own_authority(own, authority) {
            return Err(Refusal::Origin);
        }
    }
    match only(headers, &SEC_FETCH_SITE).map_err(foreign)? {
        // `none` is a person who typed the address or followed a link from outside of the browser.
        None | Some("same-origin" | "none") => Ok(()),
        Some("cross-site") if is_arrival(head) => Ok(()),
        Some(_) => Err(Refusal::Origin),
    }
}

/// Whether a browser goes to our page, in a window of its own. So it does from the private file that leads here. The
/// page holds no data, cannot be framed, and whoever sent the browser here sees nothing of it.
fn is_arrival(head: &Parts) -> bool {
    let says = |name: HeaderName, value| only(&head.headers, &name) == Ok(Some(value));
    head.method == http::Method::GET
        && head.uri.path() == "/"
        && says(SEC_FETCH_MODE, "navigate")
        && says(SEC_FETCH_DEST, "document")
}

fn check_key(headers: &HeaderMap, keys: &Keys) -> Result<(), Refusal> {
    let given = only(headers, &AUTHORIZATION).map_err(|_several| Refusal::WrongKey)?;
    let Some(given) = given else { return Err(Refusal::NoKey) };
    let key = given.split_once(' ').filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    match key {
        Some((_, key)) if keys.fits(key.trim()) => Ok(()),
        _ => Err(Refusal::WrongKey),
    }
}

/// Names of this machine that no name server has a say in, at our own port, letter for letter.
fn is_own_authority(own: SocketAddr, authority: &str) -> bool {
    let Some((name, port)) = authority.rsplit_once(':') else { return false };
    matches!(name, "127.0.0.1" | "[::1]" | "localhost") && port == own.port().to_string()
}

/// The one value of a header. Several, or one that is no text, are an error.
fn only<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Result<Option<&'h str>, ()> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(());
    }
    HeaderValue::to_str(value).map(Some).map_err(drop)
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    const OWN: &str = "127.0.0.1:7000";

    #[track_caller]
    fn check(uri: &str, headers: &[(&str, &str)], expected: Result<(), Refusal>) {
        let keys = Keys::for_test("right");
        let mut request = Request::builder().uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (head, ()) = request.body(()).unwrap().into_parts();
        let door = Door::Tcp(OWN.parse().unwrap());
        assert_eq!(admit(door, &head, &keys), expected, "{uri} {headers:?}");
        assert_eq!(admit(Door::Socket, &head, &keys), Ok(()));
    }

    #[test]
    fn only_this_machine_by_its_own_name_at_our_port() {
        let key = ("authorization", "Bearer right");
        for host in [OWN, "localhost:7000", "[::1]:7000"] {
            check("/api/tools", &[("host", host), key], Ok(()));
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
            check("/api/tools", &[("host", host), key], Err(Refusal::Host));
            check("/", &[("host", host)], Err(Refusal::Host));
        }
        check("/", &[], Err(Refusal::Host));
        check("/", &[("host", OWN), ("host", OWN)], Err(Refusal::Host));
        check("http://evil.example/", &[("host", OWN)], Err(Refusal::Host));
        check("http://127.0.0.1:7000/", &[("host", OWN)], Ok(()));
    }

    #[test]
    fn no_other_page_gets_in() {
        let check = |more: &[(&str, &str)], expected| {
            let mut headers = vec![("host", OWN), ("authorization", "Bearer right")];
            headers.extend(more);
            check("/api/tools", &headers, expected);
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
            check(&[("origin", origin)], Err(Refusal::Origin));
        }
        check(&[("sec-fetch-site", "same-origin")], Ok(()));
        check(&[("sec-fetch-site", "none")], Ok(()));
        for site in ["cross-site", "same-site", "", "NONE", "same-origin, none"] {
            check(&[("sec-fetch-site", site)], Err(Refusal::Origin));
        }
    }

    #[test]
    fn a_browser_may_be_sent_to_the_page_and_nowhere_else() {
        let from = |site, mode, dest| {
            let host = ("host", OWN);
            [host, ("sec-fetch-site", site), ("sec-fetch-mode", mode), ("sec-fetch-dest", dest)]
        };
        let arrival = from("cross-site", "navigate", "document");
        check("/", &arrival, Ok(()));
        for path in ["/app.js", "/healthz", "/api/tools", "/api/login", "/mcp"] {
            check(path, &arrival, Err(Refusal::Origin));
        }
        for other in [
            from("same-site", "navigate", "document"),
            from("cross-site", "navigate", "iframe"),
            from("cross-site", "no-cors", "document"),
            from("cross-site", "cors", "empty"),
        ] {
            check("/", &other, Err(Refusal::Origin));
        }
        let with_origin = [&arrival[..], &[("origin", "null")]].concat();
        check("/", &with_origin, Err(Refusal::Origin));
    }

    #[test]
    fn every_route_but_the_page_wants_a_key() {
        let host = ("host", OWN);
        for path in ["/", "/?token=right", "/healthz"] {
            check(path, &[host], Ok(()));
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
            check(path, &[host], Err(Refusal::NoKey));
            for key in
                ["Bearer wrong", "Bearer", "Bearer ", "Basic right", "right", "Bearer right right"]
            {
                check(path, &[host, ("authorization", key)], Err(Refusal::WrongKey));
            }
            check(path, &[host, ("authorization", "bearer right")], Ok(()));
            check(path, &[host, ("cookie", "token=right")], Err(Refusal::NoKey));
        }
    }
}
