//! HTTP client over a Unix socket, for a program that talks to its own daemon. Knows nothing of MCP.
//!
//! **Invariant:** a response arrives within the timeout or not at all, and is never larger than the limit.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{Method, StatusCode};
use tokio::time::timeout;

use crate::connect::connect_unix;
use crate::endpoint_url::EndpointUrl;
use crate::http1::{Http1Connection, OutputBuffer};
use crate::request_headers::RequestHeaders;
use crate::request_sender::{CommonHeaders, HttpRequest, OutgoingMessage};
use crate::response::{BodySource, HttpResponse};

/// Largest response body.
const MAX_BODY_BYTES: usize = 64 << 20;

/// Client of the HTTP server on one Unix socket.
#[derive(Debug, Clone)]
pub struct UnixClient {
    path: PathBuf,
}

/// Complete response.
#[derive(Debug, Clone)]
pub struct UnixResponse {
    /// HTTP status.
    pub status: StatusCode,
    /// Response body.
    pub body: Bytes,
}

impl UnixClient {
    /// A client for the socket at `path`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Sends a request for `target`, such as `/api/tools?server=git`, on a new connection. A body is JSON.
    ///
    /// # Errors
    ///
    /// If no process listens on the socket, or the response is late, incomplete or too large.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection; the server may still process the request.
    pub async fn request(
        &self,
        method: Method,
        target: &str,
        body: Option<Bytes>,
        time_limit: Duration,
    ) -> io::Result<UnixResponse> {
        let url = EndpointUrl::parse(&format!("unix:{}:{target}", self.path.display()))
            .map_err(|reason| io::Error::new(io::ErrorKind::InvalidInput, reason))?;
        let mut common_headers = HeaderMap::new();
        if body.is_some() {
            common_headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        let body = body.unwrap_or_default();
        let request = HttpRequest {
            http_method: &method,
            url: &url,
            common_headers: &CommonHeaders::new(common_headers),
            headers: &RequestHeaders::default(),
            message: &OutgoingMessage {
                body: OutputBuffer(body.into()),
                ..OutgoingMessage::default()
            },
            authorization: None,
        };
        let exchange = async {
            let mut connection = Box::new(Http1Connection::new(connect_unix(&self.path).await?));
            let head = connection.send(&request, None).await.map_err(|failure| failure.error)?;
            let source = BodySource::Http1(connection, None);
            let mut response = HttpResponse::new(head.status, head.headers, head.content, source);
            let body = response.read_all(MAX_BODY_BYTES).await?;
            Ok(UnixResponse { status: response.status, body })
        };
        timeout(time_limit, exchange).await.unwrap_or_else(|_elapsed| {
            let reason = format!("no response within {time_limit:?}");
            Err(io::Error::new(io::ErrorKind::TimedOut, reason))
        })
    }
}
