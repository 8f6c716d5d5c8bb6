//! A request as it is to be sent, borrowed from whoever has its parts: sent again without being made again.

use std::io::Write as _;

use bytes::Bytes;
use http::header::{AUTHORIZATION, PROXY_AUTHORIZATION};
use http::uri::{Parts, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use http_body_util::Full;

use crate::endpoint_url::Address;
use crate::request_headers::Beside;
use crate::mcp_headers::HTTP_SESSION_ID;
use crate::proxy::Proxy;

/// Everything about a request that does not depend on its connection.
pub(crate) struct Dispatch<'a> {
    pub(crate) verb: &'a Method,
    pub(crate) address: &'a Address,
    /// What is the same for all messages.
    pub(crate) usual: &'a Usual,
    /// What this message has. No name in it is usual too: a config cannot have them.
    pub(crate) beside: &'a Beside<'a>,
    pub(crate) authorization: Option<HeaderValue>,
    pub(crate) body: &'a [u8],
}

/// Headers that are the same for all messages, and their text, written once.
pub(crate) struct Usual {
    headers: HeaderMap,
    text: Box<[u8]>,
}

impl Usual {
    pub(crate) fn new(headers: HeaderMap) -> Self {
        let mut text = Vec::new();
        for (name, value) in &headers {
            write_field(&mut text, name, value.as_bytes());
        }
        Self { headers, text: text.into_boxed_slice() }
    }
}

impl Dispatch<'_> {
    /// The head for a connection of its own, to the server or to a proxy that reads it.
    pub(crate) fn write_head(&self, out: &mut Vec<u8>, proxy: Option<&Proxy>) {
        out.extend_from_slice(self.verb.as_str().as_bytes());
        out.push(b' ');
        if proxy.is_some() {
            out.extend_from_slice(b"http://");
            out.extend_from_slice(self.address.authority.as_str().as_bytes());
        }
        out.extend_from_slice(&self.address.head);
        out.extend_from_slice(&self.usual.text);
        self.beside.each(|name, value| write_field(out, name, value));
        if let Some(value) = &self.authorization {
            write_field(out, &AUTHORIZATION, value.as_bytes());
        }
        if let Some(value) = proxy.and_then(|proxy| proxy.authorization.as_ref()) {
            write_field(out, &PROXY_AUTHORIZATION, value.as_bytes());
        }
        if *self.verb == Method::POST || !self.body.is_empty() {
            // Writing to memory does not fail.
            let _written = write!(out, "content-length: {}\r\n", self.body.len());
        }
        out.extend_from_slice(b"\r\n");
    }

    /// The same for a connection that is shared with others.
    pub(crate) fn to_request(&self) -> Request<Full<Bytes>> {
        let mut parts = Parts::default();
        parts.scheme = Some(Scheme::HTTPS);
        parts.authority = Some(self.address.authority.clone());
        parts.path_and_query = Some(self.address.path.clone());
        let same_path = |_impossible| Uri::from(self.address.path.clone());
        // A copy, because such a connection keeps what it sends, and it may have to be sent again.
        let mut request = Request::new(Full::new(Bytes::copy_from_slice(self.body)));
        *request.method_mut() = self.verb.clone();
        *request.uri_mut() = Uri::from_parts(parts).unwrap_or_else(same_path);
        let headers = request.headers_mut();
        headers.clone_from(&self.usual.headers);
        self.beside.each(|name, value| {
            if let Ok(mut value) = HeaderValue::from_bytes(value) {
                value.set_sensitive(*name == HTTP_SESSION_ID);
                headers.append(name, value);
            }
        });
        headers.extend(self.authorization.clone().map(|value| (AUTHORIZATION, value)));
        request
    }
}

fn write_field(out: &mut Vec<u8>, name: &HeaderName, value: &[u8]) {
    let name = name.as_str().as_bytes();
    out.reserve(name.len() + value.len() + 4);
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use toolrack_transport::Dialect;

    use super::*;

    fn usual(pairs: &[(&'static str, &'static str)]) -> Usual {
        let pairs = pairs
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        Usual::new(pairs.collect())
    }

    #[track_caller]
    fn check(dispatch: &Dispatch<'_>, proxy: Option<&Proxy>, expected: &str) {
        let mut head = Vec::new();
        dispatch.write_head(&mut head, proxy);
        assert_eq!(String::from_utf8(head).unwrap(), expected.replace('\n', "\r\n"));
    }

    #[test]
    fn a_head_has_what_is_usual_and_what_is_its_own() {
        let address = Address::parse("http://127.0.0.1:8080/mcp?x=1").unwrap();
        let mut dispatch = Dispatch {
            verb: &Method::POST,
            address: &address,
            usual: &usual(&[("accept", "text/event-stream"), ("x-key", "k")]),
            beside: &Beside::stateless("2026-07-28", "ping", None),
            authorization: None,
            body: b"{}",
        };
        let head = "POST /mcp?x=1 HTTP/1.1\nhost: 127.0.0.1:8080\naccept: text/event-stream\n\
                    x-key: k\nmcp-protocol-version: 2026-07-28\nmcp-method: ping\n";
        check(&dispatch, None, &format!("{head}content-length: 2\n\n"));
        dispatch.authorization = Some(HeaderValue::from_static("Bearer t"));
        let rest = "authorization: Bearer t\ncontent-length: 2\n\n";
        check(&dispatch, None, &format!("{head}{rest}"));
        let request = dispatch.to_request();
        assert_eq!(request.uri(), "https://127.0.0.1:8080/mcp?x=1");
        assert_eq!(request.headers().len(), 5);
        assert_eq!(request.headers()["mcp-method"], "ping");
        assert_eq!(request.headers()["authorization"], "Bearer t");
        let id = Some(HeaderValue::from_static("s1"));
        let beside = Beside::session(Dialect::Session("2025-11-25"), id);
        dispatch.beside = &beside;
        let request = dispatch.to_request();
        assert_eq!(request.headers()["mcp-session-id"], "s1");
        assert!(request.headers()["mcp-session-id"].is_sensitive());
    }

    #[test]
    fn a_body_is_announced_where_one_is_expected() {
        let address = Address::parse("unix:/run/x.sock:/mcp").unwrap();
        let mut dispatch = Dispatch {
            verb: &Method::GET,
            address: &address,
            usual: &usual(&[]),
            beside: &Beside::default(),
            authorization: None,
            body: b"",
        };
        check(&dispatch, None, "GET /mcp HTTP/1.1\nhost: localhost\n\n");
        dispatch.verb = &Method::POST;
        check(&dispatch, None, "POST /mcp HTTP/1.1\nhost: localhost\ncontent-length: 0\n\n");
    }
}
