//! Bare HTTP clients on hyper, without any MCP library.
//!
//! [`BareHyper`] sends the same requests as an MCP client with hyper-util's pooled client: the cost of a good HTTP
//! library alone. [`BareHyperConnection`] does it with hyper's connection API and the smallest possible pool, which
//! is what an HTTP transport could be built on instead of its own HTTP/1.1 reader. [`Session`] is a session of the
//! legacy era that keeps next to nothing, so that only the gateway's memory counts.

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HOST};
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use memchr::memmem;
use parking_lot::Mutex;
use tokio::net::TcpStream;

use super::bare_pipe::{INITIALIZE, INITIALIZED, LIST_TOOLS};
use super::bare_tcp::{ACCEPT_TYPES, call_message};
use super::{BenchClient, Call, text_bytes};

#[derive(Debug)]
pub(crate) struct BareHyper {
    client: Client<HttpConnector, Full<Bytes>>,
    uri: Uri,
    headers: HeaderMap,
}

impl BareHyper {
    pub(crate) fn connect(url: &str) -> anyhow::Result<Self> {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let client = Client::builder(TokioExecutor::new()).build(connector);
        Ok(Self { client, uri: url.parse()?, headers: request_headers() })
    }
}

fn request_headers() -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(ACCEPT, HeaderValue::from_static(ACCEPT_TYPES));
    headers
}

fn call_request(uri: &Uri, headers: &HeaderMap, call: &Call) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::new(Bytes::from(call_message(call))));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = uri.clone();
    *request.headers_mut() = headers.clone();
    request
}

/// Reads a whole response, and finds the result without decoding it.
async fn read_result(response: Response<Incoming>) -> anyhow::Result<usize> {
    ensure!(response.status().is_success(), "status {}", response.status());
    let body = response.into_body().collect().await?.to_bytes();
    result_text_bytes(&body).context("unexpected response")
}

impl BenchClient for BareHyper {
    async fn call(&self, call: &Call) -> anyhow::Result<usize> {
        let request = call_request(&self.uri, &self.headers, call);
        read_result(self.client.request(request).await?).await
    }
}

/// Calls over hyper's connection API, one connection for each call in flight.
#[derive(Debug)]
pub(crate) struct BareHyperConnection {
    authority: String,
    path: Uri,
    headers: HeaderMap,
    idle: Mutex<Vec<SendRequest<Full<Bytes>>>>,
}

impl BareHyperConnection {
    pub(crate) fn connect(url: &str) -> anyhow::Result<Self> {
        let uri: Uri = url.parse()?;
        let authority = uri.authority().context("no host")?.as_str().to_owned();
        let path = uri.path_and_query().map_or("/", |path| path.as_str()).parse()?;
        let mut headers = request_headers();
        // The connection API leaves `Host` to its caller.
        headers.insert(HOST, HeaderValue::from_str(&authority)?);
        Ok(Self { authority, path, headers, idle: Mutex::default() })
    }

    #[expect(clippy::disallowed_methods, reason = "hyper's connection task ends with its sender")]
    async fn connection(&self) -> anyhow::Result<SendRequest<Full<Bytes>>> {
        let idle = self.idle.lock().pop();
        if let Some(sender) = idle {
            return Ok(sender);
        }
        let stream = TcpStream::connect(&self.authority).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(sender)
    }
}

impl BenchClient for BareHyperConnection {
    async fn call(&self, call: &Call) -> anyhow::Result<usize> {
        let mut sender = self.connection().await?;
        sender.ready().await?;
        let request = call_request(&self.path, &self.headers, call);
        let text_bytes = read_result(sender.send_request(request).await?).await?;
        self.idle.lock().push(sender);
        Ok(text_bytes)
    }
}

/// Finds the result without decoding it.
fn result_text_bytes(body: &[u8]) -> Option<usize> {
    const RESULT: &[u8] = br#""result":"#;
    let result = body.get(memmem::find(body, RESULT)? + RESULT.len()..)?;
    text_bytes(result.trim_ascii_end().strip_suffix(b"}")?)
}

const SESSION_ID: &str = "mcp-session-id";

/// An open session: a connection for requests and one for its stream.
#[derive(Debug)]
pub(crate) struct Session {
    client: Client<HttpConnector, Full<Bytes>>,
    uri: Uri,
    id: Option<HeaderValue>,
    stream: Option<Incoming>,
}

impl Session {
    /// Initializes, lists all tools and opens the stream.
    pub(crate) async fn open(url: &str) -> anyhow::Result<Self> {
        let client = Client::builder(TokioExecutor::new()).build_http();
        let mut session = Self { client, uri: url.parse()?, id: None, stream: None };
        let id = session.post(INITIALIZE).await?.headers().get(SESSION_ID).cloned();
        session.id = Some(id.context("the gateway opened no session")?);
        session.post(INITIALIZED).await?;
        session.post(LIST_TOOLS).await?;
        let stream = session.request(Method::GET, Bytes::new()).await?;
        session.stream = Some(stream.into_body());
        Ok(session)
    }

    /// Whether the gateway has kept the stream open.
    pub(crate) fn is_open(&self) -> bool {
        self.stream.as_ref().is_some_and(|stream| !hyper::body::Body::is_end_stream(stream))
    }

    /// Sends a message and reads the whole response.
    async fn post(&self, message: &'static [u8]) -> anyhow::Result<Response<Bytes>> {
        let response = self.request(Method::POST, Bytes::from_static(message)).await?;
        let (head, body) = response.into_parts();
        Ok(Response::from_parts(head, body.collect().await?.to_bytes()))
    }

    async fn request(&self, method: Method, body: Bytes) -> anyhow::Result<Response<Incoming>> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = self.uri.clone();
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static(ACCEPT_TYPES));
        if let Some(id) = &self.id {
            headers.insert(SESSION_ID, id.clone());
        }
        let response = self.client.request(request).await?;
        ensure!(response.status().is_success(), "status {}", response.status());
        Ok(response)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(body: &str, expected: Option<usize>) {
        assert_eq!(result_text_bytes(body.as_bytes()), expected);
    }

    #[test]
    fn result_is_found_in_json_and_sse() {
        let message = r#"{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"hello"}],"isError":false}}"#;
        check(&format!("{message}\n"), Some(5));
        check(&format!("event: message\ndata: {message}\n\n"), Some(5));
        check(r#"{"jsonrpc":"2.0","id":1,"error":{}}"#, None);
    }
}
