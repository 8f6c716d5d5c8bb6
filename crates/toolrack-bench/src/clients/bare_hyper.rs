//! The same exchange by hyper-util's pooled client, and no MCP: what a good HTTP library costs by itself.

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, Request, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use memchr::memmem;

use super::bare_tcp::{ACCEPTED, message};
use super::{Call, Caller, HttpContender, text_bytes};
use crate::server::http::Eras;
use crate::server_process::RemoteServer;

#[derive(Debug, Clone)]
pub(crate) struct BareHyper {
    client: Client<HttpConnector, Full<Bytes>>,
    uri: Uri,
    headers: HeaderMap,
}

impl HttpContender for BareHyper {
    async fn connect(server: &RemoteServer) -> anyhow::Result<Self> {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let client = Client::builder(TokioExecutor::new()).build(connector);
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static(ACCEPTED));
        Ok(Self { client, uri: server.url(Eras::Both).parse()?, headers })
    }
}

impl Caller for BareHyper {
    async fn call(&self, call: &Call) -> anyhow::Result<usize> {
        let mut request = Request::new(Full::new(Bytes::from(message(call))));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        let response = self.client.request(request).await?;
        ensure!(response.status().is_success(), "status {}", response.status());
        let body = response.into_body().collect().await?.to_bytes();
        text_in(&body).context("another answer than the server sends")
    }

    async fn close(self) -> anyhow::Result<()> {
        Ok(())
    }
}

/// The result is found, and looked at no further.
fn text_in(body: &[u8]) -> Option<usize> {
    const RESULT: &[u8] = br#""result":"#;
    let result = body.get(memmem::find(body, RESULT)? + RESULT.len()..)?;
    text_bytes(result.trim_ascii_end().strip_suffix(b"}")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(body: &str, expected: Option<usize>) {
        assert_eq!(text_in(body.as_bytes()), expected);
    }

    #[test]
    fn a_result_is_found_in_either_framing() {
        let message = r#"{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"hello"}],"isError":false}}"#;
        check(&format!("{message}\n"), Some(5));
        check(&format!("event: message\ndata: {message}\n\n"), Some(5));
        check(r#"{"jsonrpc":"2.0","id":1,"error":{}}"#, None);
    }
}
