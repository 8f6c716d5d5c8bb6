//! Sends HTTP requests: authentication challenges, redirects and `Retry-After`.
//!
//! **Invariant:** nothing is sent to another origin, and no message is sent more than four times,
//! redirects aside.

use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, LOCATION, PROXY_AUTHORIZATION,
    RETRY_AFTER, WWW_AUTHENTICATE,
};
use http::uri::{Parts, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::Full;
use tokio::time::{Instant, sleep};
use toolrack_transport::{
    AuthChallenge, AuthError, Authorization, CachedCredential, Credentials, RequestError,
    TransportError, sanitize_line,
};

use crate::connection_pool::ConnectionPool;
use crate::endpoint_url::EndpointUrl;
use crate::http1::{OutputBuffer, SentFlag};
use crate::proxy::Proxy;
use crate::request_headers::{HTTP_SESSION_ID, RequestHeaders};
use crate::response::HttpResponse;
use crate::status_mapping::{is_idempotent, retry_after};

const MAX_SENDS: u32 = 4;
const MAX_REDIRECTS: u32 = 5;
/// Limits of the error text read from a 401 or 403 response.
const MAX_CHALLENGE_BYTES: usize = 4 << 10;
const MAX_CHALLENGE_CHARS: usize = 200;

/// Everything that all requests of a transport share.
pub(crate) struct RequestSender {
    pub(crate) pool: Arc<ConnectionPool>,
    /// URL of the server, as configured.
    pub(crate) url: EndpointUrl,
    credentials: Option<Arc<dyn Credentials>>,
    post: CommonHeaders,
    get: CommonHeaders,
}

/// JSON-RPC message, or an empty one for a GET or DELETE.
#[derive(Default)]
pub(crate) struct OutgoingMessage<'a> {
    pub(crate) method: &'a str,
    /// `Mcp-Name`.
    pub(crate) name: Option<&'a str>,
    /// Id of a request.
    pub(crate) id: u64,
    pub(crate) body: OutputBuffer,
    /// Latest time until which a `Retry-After` delay is acceptable. `None` without a waiting caller.
    pub(crate) deadline: Option<Instant>,
    pub(crate) sent: SentFlag,
}

/// One request to send. Does not depend on the connection, and borrows, so that a retry builds nothing again.
pub(crate) struct HttpRequest<'a> {
    pub(crate) http_method: &'a Method,
    pub(crate) url: &'a EndpointUrl,
    /// Headers of all requests.
    pub(crate) common_headers: &'a CommonHeaders,
    /// Headers of this request. Disjoint from `common_headers`: a config cannot set reserved headers.
    pub(crate) headers: &'a RequestHeaders<'a>,
    pub(crate) message: &'a OutgoingMessage<'a>,
    /// Set by [`RequestSender::send`].
    pub(crate) authorization: Option<HeaderValue>,
}

impl RequestSender {
    pub(crate) fn new(
        pool: Arc<ConnectionPool>,
        url: EndpointUrl,
        credentials: Option<Arc<dyn Credentials>>,
        mut headers: HeaderMap,
    ) -> Self {
        // The only encoding that `response` can decode.
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        let get = CommonHeaders::new(headers.clone());
        let both = "application/json, text/event-stream";
        headers.insert(ACCEPT, HeaderValue::from_static(both));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Self { pool, url, credentials, post: CommonHeaders::new(headers), get }
    }

    /// A request without credentials, which [`RequestSender::send`] adds.
    pub(crate) fn request<'a>(
        &'a self,
        http_method: &'a Method,
        url: &'a EndpointUrl,
        headers: &'a RequestHeaders<'a>,
        message: &'a OutgoingMessage<'a>,
    ) -> HttpRequest<'a> {
        let common_headers = if *http_method == Method::POST { &self.post } else { &self.get };
        HttpRequest { http_method, url, common_headers, headers, message, authorization: None }
    }

    /// Sends a request until the response is neither a challenge nor a redirect, and not a retryable
    /// `Retry-After`.
    pub(crate) async fn send(
        &self,
        request: &HttpRequest<'_>,
    ) -> Result<HttpResponse, RequestError> {
        let mut redirected: Option<Box<EndpointUrl>> = None;
        let (mut n_sends, mut n_redirects, mut has_waited) = (0, 0, false);
        loop {
            let url = redirected.as_deref().unwrap_or(request.url);
            // In the loop: a challenge may have brought a new token.
            let authorization = self.current_authorization().await?;
            let header_value = authorization.as_ref().map(header_value).transpose()?;
            n_sends += 1;
            let sent = &request.message.sent;
            let attempt = HttpRequest { url, authorization: header_value, ..*request };
            let mut response = self.pool.exchange(&attempt).await?;
            let status = response.status;
            // 403 too: with `insufficient_scope` it asks for a token with more scopes.
            if matches!(status.as_u16(), 401 | 403) {
                // Boxed, like every rare branch, to keep the future of a normal call small.
                let challenge = self.handle_auth_challenge(
                    &mut response,
                    request,
                    authorization.as_ref(),
                    n_sends,
                );
                Box::pin(challenge).await?;
                // The server has rejected it, so it counts as sent only when it is sent again.
                sent.clear();
                continue;
            }
            if status.is_redirection() {
                n_redirects += 1;
                redirected = Some(Box::new(self.redirect_target(
                    &mut response,
                    request,
                    url,
                    n_redirects,
                )?));
                sent.clear();
                // Not counted as a send: `MAX_REDIRECTS` limits redirects.
                n_sends -= 1;
                continue;
            }
            match retry_delay(&response, request).filter(|_| !has_waited && n_sends < MAX_SENDS) {
                Some(wait) => {
                    // Before the wait, so that other requests can use the connection meanwhile.
                    response.release(&self.pool.tasks);
                    Box::pin(sleep(wait)).await;
                    has_waited = true;
                }
                None => return Ok(response),
            }
        }
    }

    async fn current_authorization(&self) -> Result<Option<Authorization>, RequestError> {
        let Some(credentials) = &self.credentials else { return Ok(None) };
        // The common case is synchronous; `obtain` allocates a boxed future.
        match credentials.cached() {
            CachedCredential::None => Ok(None),
            CachedCredential::Ready(authorization) => Ok(Some(authorization)),
            CachedCredential::Obtain => credentials.obtain().await.map_err(RequestError::not_sent),
        }
    }

    /// `Ok` if the request is worth sending again.
    async fn handle_auth_challenge(
        &self,
        response: &mut HttpResponse,
        request: &HttpRequest<'_>,
        sent: Option<&Authorization>,
        n_sends: u32,
    ) -> Result<(), RequestError> {
        let status = response.status;
        let challenges: Vec<String> = response
            .headers
            .get_all(WWW_AUTHENTICATE)
            .iter()
            .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
            .collect();
        // Before the credentials act: a login can take minutes, and the connection must not wait
        // for it.
        let body = response.read_prefix(MAX_CHALLENGE_BYTES).await;
        response.release(&self.pool.tasks);
        if let Some(credentials) = self.credentials.as_ref().filter(|_| n_sends < MAX_SENDS) {
            let operation = (request.message.method, request.message.name);
            let challenges = &challenges;
            let challenge = AuthChallenge { status: status.as_u16(), challenges, sent, operation };
            return credentials.on_challenge(challenge).await.map_err(RequestError::answered);
        }
        let text = sanitize_line(String::from_utf8_lossy(&body).trim(), MAX_CHALLENGE_CHARS);
        let or = |default: &str| if text.is_empty() { default.to_owned() } else { text.clone() };
        Err(RequestError::answered(if status == StatusCode::UNAUTHORIZED {
            AuthError::LoginRequired { reason: or("the server requires authentication") }
        } else {
            AuthError::Forbidden { reason: or("the server responded with HTTP status 403") }
        }))
    }

    /// URL to follow. The specification is silent; like the official clients: same origin only, and the HTTP
    /// method must stay.
    fn redirect_target(
        &self,
        response: &mut HttpResponse,
        request: &HttpRequest<'_>,
        from: &EndpointUrl,
        n_redirects: u32,
    ) -> Result<EndpointUrl, RequestError> {
        let status = response.status;
        let fail = |text: String| {
            let error = TransportError::Status { code: status.as_u16(), text };
            RequestError::answered(error)
        };
        let location = response.headers.get(LOCATION).and_then(|value| value.to_str().ok());
        let location = location.unwrap_or_default().to_owned();
        response.release(&self.pool.tasks);
        // 301, 302 and 303 turn a POST into a GET, which would lose the message.
        let keeps_method = matches!(status.as_u16(), 307 | 308);
        if location.is_empty() || !(keeps_method || *request.http_method == Method::GET) {
            return Err(fail("redirect cannot be followed".to_owned()));
        }
        if n_redirects > MAX_REDIRECTS {
            return Err(fail("too many redirects".to_owned()));
        }
        from.join(&location)
            .map_err(|error| fail(format!("redirect not followed: {}", sanitize_line(&error, 200))))
    }
}

fn header_value(authorization: &Authorization) -> Result<HeaderValue, RequestError> {
    // The error must not quote the value, which is a secret.
    let mut value = HeaderValue::from_str(authorization.reveal()).map_err(|_invalid| {
        let reason = "the value of the header `Authorization` is not valid".to_owned();
        RequestError::not_sent(AuthError::LoginRequired { reason })
    })?;
    value.set_sensitive(true);
    Ok(value)
}

/// Delay before the single retry that a busy server asked for.
fn retry_delay(response: &HttpResponse, request: &HttpRequest<'_>) -> Option<Duration> {
    let wait = retry_after(response.status, response.headers.get(RETRY_AFTER), SystemTime::now())?;
    // A 503 may come from a proxy after the server has acted, so only idempotent requests are
    // repeated.
    let deadline = request.message.deadline.filter(|_| request.is_idempotent())?;
    // Jitter: clients that were rejected together do not come back together.
    let wait = wait + Duration::from_millis(fastrand::u64(0..250));
    (Instant::now() + wait < deadline).then_some(wait)
}

/// Headers that all requests share, serialized once.
pub(crate) struct CommonHeaders {
    headers: HeaderMap,
    text: Box<[u8]>,
}

impl CommonHeaders {
    pub(crate) fn new(headers: HeaderMap) -> Self {
        let mut text = Vec::new();
        for (name, value) in &headers {
            write_field(&mut text, name, value.as_bytes());
        }
        Self { headers, text: text.into_boxed_slice() }
    }
}

impl HttpRequest<'_> {
    /// Whether sending the request twice is safe.
    pub(crate) fn is_idempotent(&self) -> bool {
        *self.http_method == Method::GET || is_idempotent(self.message.method)
    }

    /// Writes the HTTP/1.1 head, for the server or for a forwarding proxy.
    pub(crate) fn write_head(&self, out: &mut Vec<u8>, proxy: Option<&Proxy>) {
        out.extend_from_slice(self.http_method.as_str().as_bytes());
        out.push(b' ');
        if proxy.is_some() {
            out.extend_from_slice(b"http://");
            out.extend_from_slice(self.url.authority.as_str().as_bytes());
        }
        out.extend_from_slice(&self.url.request_line);
        out.extend_from_slice(&self.common_headers.text);
        self.headers.for_each(|name, value| write_field(out, name, value));
        if let Some(value) = &self.authorization {
            write_field(out, &AUTHORIZATION, value.as_bytes());
        }
        if let Some(value) = proxy.and_then(|proxy| proxy.authorization.as_ref()) {
            write_field(out, &PROXY_AUTHORIZATION, value.as_bytes());
        }
        // RFC 9110 §8.6: a POST states its length even if it is zero.
        let body = &self.message.body.0;
        if *self.http_method == Method::POST || !body.is_empty() {
            // Writing to memory does not fail.
            let _written = write!(out, "content-length: {}\r\n", body.len());
        }
        out.extend_from_slice(b"\r\n");
    }

    /// Builds the request for HTTP/2.
    pub(crate) fn to_request(&self) -> Request<Full<Bytes>> {
        let mut parts = Parts::default();
        // HTTP/2 is spoken only over TLS, where ALPN chose it.
        parts.scheme = Some(Scheme::HTTPS);
        parts.authority = Some(self.url.authority.clone());
        parts.path_and_query = Some(self.url.path.clone());
        let same_path = |_impossible| Uri::from(self.url.path.clone());
        let mut request = Request::new(Full::new(Bytes::copy_from_slice(&self.message.body.0)));
        *request.method_mut() = self.http_method.clone();
        *request.uri_mut() = Uri::from_parts(parts).unwrap_or_else(same_path);
        let headers = request.headers_mut();
        headers.clone_from(&self.common_headers.headers);
        self.headers.for_each(|name, value| {
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
    use toolrack_transport::ProtocolMode;

    use super::*;

    fn common_headers(pairs: &[(&'static str, &'static str)]) -> CommonHeaders {
        let pairs = pairs
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        CommonHeaders::new(pairs.collect())
    }

    #[track_caller]
    fn check(request: &HttpRequest<'_>, proxy: Option<&Proxy>, expected: &str) {
        let mut head = Vec::new();
        request.write_head(&mut head, proxy);
        assert_eq!(String::from_utf8(head).unwrap(), expected.replace('\n', "\r\n"));
    }

    #[test]
    fn request_head_has_common_and_own_headers() {
        let url = EndpointUrl::parse("http://127.0.0.1:8080/mcp?x=1").unwrap();
        let body = Bytes::from_static(b"{}");
        let mut built = HttpRequest {
            http_method: &Method::POST,
            url: &url,
            common_headers: &common_headers(&[("accept", "text/event-stream"), ("x-key", "k")]),
            headers: &RequestHeaders::for_stateless("2026-07-28", "ping", None),
            message: &OutgoingMessage {
                body: OutputBuffer(body.into()),
                ..OutgoingMessage::default()
            },
            authorization: None,
        };
        let head = "POST /mcp?x=1 HTTP/1.1\nhost: 127.0.0.1:8080\naccept: text/event-stream\n\
                    x-key: k\nmcp-protocol-version: 2026-07-28\nmcp-method: ping\n";
        check(&built, None, &format!("{head}content-length: 2\n\n"));
        built.authorization = Some(HeaderValue::from_static("Bearer t"));
        let rest = "authorization: Bearer t\ncontent-length: 2\n\n";
        check(&built, None, &format!("{head}{rest}"));
        let request = built.to_request();
        assert_eq!(request.uri(), "https://127.0.0.1:8080/mcp?x=1");
        assert_eq!(request.headers().len(), 5);
        assert_eq!(request.headers()["mcp-method"], "ping");
        assert_eq!(request.headers()["authorization"], "Bearer t");
        let id = Some(HeaderValue::from_static("s1"));
        let headers = RequestHeaders::for_session(ProtocolMode::Session("2025-11-25"), id);
        built.headers = &headers;
        let request = built.to_request();
        assert_eq!(request.headers()["mcp-session-id"], "s1");
        assert!(request.headers()["mcp-session-id"].is_sensitive());
    }

    #[test]
    fn post_always_has_content_length() {
        let url = EndpointUrl::parse("unix:/run/x.sock:/mcp").unwrap();
        let mut built = HttpRequest {
            http_method: &Method::GET,
            url: &url,
            common_headers: &common_headers(&[]),
            headers: &RequestHeaders::default(),
            message: &OutgoingMessage::default(),
            authorization: None,
        };
        check(&built, None, "GET /mcp HTTP/1.1\nhost: localhost\n\n");
        built.http_method = &Method::POST;
        check(&built, None, "POST /mcp HTTP/1.1\nhost: localhost\ncontent-length: 0\n\n");
    }
}
