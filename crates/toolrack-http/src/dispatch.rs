//! A request as it is to be sent, borrowed from whoever has its parts: sent again without being made again.

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_LENGTH, HOST, PROXY_AUTHORIZATION};
use http::uri::{Parts, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use http_body_util::Full;

use crate::address::Address;
use crate::proxy::Proxy;

/// Everything about a request that does not depend on its connection.
pub(crate) struct Dispatch<'a> {
    pub(crate) verb: &'a Method,
    pub(crate) address: &'a Address,
    /// What is the same for all messages.
    pub(crate) usual: &'a HeaderMap,
    /// What this message has; it wins over what is usual.
    pub(crate) own: &'a [(HeaderName, HeaderValue)],
    pub(crate) authorization: Option<HeaderValue>,
    pub(crate) body: Bytes,
}

impl Dispatch<'_> {
    /// The head for a connection of its own, to the server or to a proxy that reads it.
    pub(crate) fn write_head(&self, out: &mut Vec<u8>, proxy: Option<&Proxy>) {
        let mut put = |bytes: &[u8]| out.extend_from_slice(bytes);
        put(self.verb.as_str().as_bytes());
        put(b" ");
        if proxy.is_some() {
            put(b"http://");
            put(self.address.authority.as_str().as_bytes());
        }
        put(self.address.path.as_str().as_bytes());
        put(b" HTTP/1.1\r\n");
        let mut field = |name: &HeaderName, value: &[u8]| {
            for part in [name.as_str().as_bytes(), b": ", value, b"\r\n"] {
                out.extend_from_slice(part);
            }
        };
        field(&HOST, self.address.host.as_bytes());
        self.each_header(|name, value| field(name, value.as_bytes()));
        if let Some(value) = proxy.and_then(|proxy| proxy.authorization.as_ref()) {
            field(&PROXY_AUTHORIZATION, value.as_bytes());
        }
        if *self.verb == Method::POST || !self.body.is_empty() {
            field(&CONTENT_LENGTH, self.body.len().to_string().as_bytes());
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
        let mut request = Request::new(Full::new(self.body.clone()));
        *request.method_mut() = self.verb.clone();
        *request.uri_mut() = Uri::from_parts(parts).unwrap_or_else(same_path);
        let headers = request.headers_mut();
        self.each_header(|name, value| {
            headers.append(name, value.clone());
        });
        request
    }

    fn each_header(&self, mut each: impl FnMut(&HeaderName, &HeaderValue)) {
        for (name, value) in self.usual {
            let is_replaced = *name == HOST
                || self.authorization.is_some() && *name == AUTHORIZATION
                || self.own.iter().any(|(own, _)| own == name);
            if !is_replaced {
                each(name, value);
            }
        }
        for (name, value) in self.own {
            each(name, value);
        }
        if let Some(value) = &self.authorization {
            each(&AUTHORIZATION, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pairs = pairs
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        pairs.collect()
    }

    #[track_caller]
    fn check(dispatch: &Dispatch<'_>, proxy: Option<&Proxy>, expected: &str) {
        let mut head = Vec::new();
        dispatch.write_head(&mut head, proxy);
        assert_eq!(String::from_utf8(head).unwrap(), expected.replace('\n', "\r\n"));
    }

    #[test]
    fn a_head_has_what_is_usual_unless_the_message_says_otherwise() {
        let address = Address::parse("http://127.0.0.1:8080/mcp?x=1").unwrap();
        let usual = headers(&[("accept", "text/event-stream"), ("authorization", "Basic eA==")]);
        let own = [(HeaderName::from_static("accept"), HeaderValue::from_static("*/*"))];
        let mut dispatch = Dispatch {
            verb: &Method::POST,
            address: &address,
            usual: &usual,
            own: &own,
            authorization: None,
            body: Bytes::from_static(b"{}"),
        };
        let head = "POST /mcp?x=1 HTTP/1.1\nhost: 127.0.0.1:8080\n";
        let rest = "authorization: Basic eA==\naccept: */*\ncontent-length: 2\n\n";
        check(&dispatch, None, &format!("{head}{rest}"));
        dispatch.authorization = Some(HeaderValue::from_static("Bearer t"));
        let rest = "accept: */*\nauthorization: Bearer t\ncontent-length: 2\n\n";
        check(&dispatch, None, &format!("{head}{rest}"));
        let request = dispatch.to_request();
        assert_eq!(request.uri(), "https://127.0.0.1:8080/mcp?x=1");
        assert_eq!(request.headers().len(), 2);
        assert_eq!(request.headers()["authorization"], "Bearer t");
    }

    #[test]
    fn a_body_is_announced_where_one_is_expected() {
        let address = Address::parse("unix:/run/x.sock:/mcp").unwrap();
        let mut dispatch = Dispatch {
            verb: &Method::GET,
            address: &address,
            usual: &HeaderMap::new(),
            own: &[],
            authorization: None,
            body: Bytes::new(),
        };
        check(&dispatch, None, "GET /mcp HTTP/1.1\nhost: localhost\n\n");
        dispatch.verb = &Method::POST;
        check(&dispatch, None, "POST /mcp HTTP/1.1\nhost: localhost\ncontent-length: 0\n\n");
    }
}
