//! HTTP response: its head, and its body as a stream of chunks, decompressed if needed.
//!
//! **Invariant:** a body never grows beyond its limit, before or after decompression, and its connection is
//! reused only after the body has been read to its end.

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;

use std::future::poll_fn;
use std::io::{self, Write as _};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use flate2::write::GzDecoder;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, StatusCode};
use hyper::body::{Body as _, Incoming};
use tokio::time::timeout;
use toolrack_transport::RequestError;

use crate::connection_pool::{ConnectionPool, to_io_error};
use crate::http1::{COPY_BYTES, Http1Connection, MAX_PREALLOC_BYTES};
use crate::request_headers::{HTTP_SESSION_ID, parse_session_id};
use crate::status_mapping::error_from_response;
use crate::transport::TaskGroup;

/// Bytes read from the body of an error response.
pub(crate) const MAX_ERROR_BODY_BYTES: usize = 64 << 10;
/// How long the rest of a body may take for its connection to be kept.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(500);

/// Connection that delivers the body, and the pool that the connection returns to, if any.
pub(crate) enum BodySource {
    Http1(Box<Http1Connection>, Option<Arc<ConnectionPool>>),
    Http2(Incoming),
}

/// Response whose head has arrived.
pub(crate) struct HttpResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    /// `None` after the end of the body.
    source: Option<BodySource>,
    pub(crate) content: ContentInfo,
    gzip: Option<Box<GzDecoder<Vec<u8>>>>,
    /// Idle timeout of the body.
    pub(crate) idle: Option<Duration>,
}

impl HttpResponse {
    pub(crate) fn new(
        status: StatusCode,
        headers: HeaderMap,
        content: ContentInfo,
        source: BodySource,
    ) -> Self {
        let gzip = (content.encoding == ContentEncoding::Gzip)
            .then(|| Box::new(GzDecoder::new(Vec::new())));
        Self { status, headers, source: Some(source), content, gzip, idle: None }
    }

    /// Whether the response is an SSE stream.
    pub(crate) fn is_event_stream(&self) -> bool {
        self.status.is_success() && self.content.kind == BodyKind::EventStream
    }

    /// Id of the session that the server has started.
    pub(crate) fn session_id(&self) -> Option<HeaderValue> {
        self.headers.get(HTTP_SESSION_ID).and_then(parse_session_id)
    }

    /// Content type, for error messages.
    pub(crate) fn content_type(&self) -> &str {
        match self.content.kind {
            BodyKind::Json => "application/json",
            BodyKind::EventStream => "text/event-stream",
            BodyKind::Other => {
                let value = self.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
                value.unwrap_or_default()
            }
        }
    }

    /// Returns the next decompressed chunk; `None` at the end.
    pub(crate) async fn next_chunk(&mut self, limit_bytes: usize) -> io::Result<Option<Bytes>> {
        loop {
            let idle = self.idle;
            let encoded = poll_fn(|context| self.poll_chunk(context));
            let encoded = match idle {
                None => encoded.await,
                Some(idle) => timeout(idle, encoded).await.unwrap_or_else(|_elapsed| {
                    let reason = format!("no data within {idle:?}");
                    Err(io::Error::new(io::ErrorKind::TimedOut, reason))
                }),
            };
            let Some(encoded) = encoded? else { return Ok(None) };
            let chunk = match (&mut self.gzip, self.content.encoding) {
                (Some(gzip), _) => decode_gzip(gzip, &encoded, limit_bytes)?,
                (None, ContentEncoding::Identity) => encoded,
                (None, _) => return Err(io::Error::other("unsupported content encoding")),
            };
            if !chunk.is_empty() {
                return Ok(Some(chunk));
            }
        }
    }

    /// See [`Http1Connection::parse_buffered`].
    pub(crate) fn parse_buffered<T>(
        &mut self,
        parse: impl FnOnce(&[u8]) -> Option<T>,
    ) -> Option<T> {
        let Some(BodySource::Http1(connection, _)) = &mut self.source else { return None };
        if self.content.encoding != ContentEncoding::Identity {
            return None;
        }
        let parsed = connection.parse_buffered(parse)?;
        self.try_finish();
        Some(parsed)
    }

    /// Reads the whole body into one buffer. A body in one chunk is not copied, unless it is small.
    pub(crate) async fn read_all(&mut self, limit_bytes: usize) -> io::Result<Bytes> {
        // With gzip, the declared length says nothing about the decoded body.
        let declared =
            self.remaining_length().filter(|_| self.content.encoding == ContentEncoding::Identity);
        if declared.is_some_and(|declared| declared > limit_bytes as u64) {
            return Err(too_large());
        }
        let Some(first) = self.next_chunk(limit_bytes).await? else { return Ok(Bytes::new()) };
        if first.len() > limit_bytes {
            return Err(too_large());
        }
        if declared == Some(first.len() as u64) {
            // hyper slices HTTP/2 chunks out of a large read buffer.
            let is_slice = matches!(self.source, Some(BodySource::Http2(_)));
            let is_copied = is_slice && first.len() <= COPY_BYTES;
            self.try_finish();
            return Ok(if is_copied { Bytes::copy_from_slice(&first) } else { first });
        }
        let capacity = declared.unwrap_or_default().min(MAX_PREALLOC_BYTES);
        let mut buffer = BytesMut::with_capacity(usize::try_from(capacity).unwrap_or_default());
        buffer.extend_from_slice(&first);
        drop(first);
        while let Some(chunk) = self.next_chunk(limit_bytes).await? {
            if buffer.len() + chunk.len() > limit_bytes {
                return Err(too_large());
            }
            buffer.extend_from_slice(&chunk);
        }
        Ok(buffer.freeze())
    }

    /// Error of a response with an error status.
    pub(crate) async fn read_error(&mut self) -> RequestError {
        error_from_response(self.status, &self.read_prefix(MAX_ERROR_BODY_BYTES).await)
    }

    /// Reads the start of the body, for error messages. Ignores errors: the status has already failed the
    /// request.
    pub(crate) async fn read_prefix(&mut self, limit_bytes: usize) -> Bytes {
        let mut buffer = BytesMut::new();
        while let Ok(Some(chunk)) = self.next_chunk(limit_bytes).await {
            let room = limit_bytes.saturating_sub(buffer.len()).min(chunk.len());
            buffer.extend_from_slice(chunk.get(..room).unwrap_or_default());
            if buffer.len() >= limit_bytes {
                break;
            }
        }
        buffer.freeze()
    }

    /// Bytes still to come, if the server declared a length.
    fn remaining_length(&self) -> Option<u64> {
        match self.source.as_ref()? {
            BodySource::Http1(connection, _) => connection.framing.remaining_length(),
            BodySource::Http2(body) => body.size_hint().upper(),
        }
    }

    /// Drops the connection in the middle of the body.
    pub(crate) fn abort(&mut self) {
        self.source = None;
    }

    /// Returns the connection if the body has ended. Never waits.
    fn try_finish(&mut self) {
        // The no-op waker loses no wake-up: each later poll brings the waker of its own task.
        let mut context = Context::from_waker(std::task::Waker::noop());
        // A few chunks may already be buffered; an endless body is not followed.
        for _ in 0..4 {
            if !matches!(self.poll_chunk(&mut context), Poll::Ready(Ok(Some(_more)))) {
                return;
            }
        }
    }

    /// Drains the body in the background so that the connection can be reused, without making the caller wait.
    pub(crate) fn release(&mut self, tasks: &TaskGroup) {
        self.try_finish();
        // HTTP/2: dropping the body resets its stream and leaves the connection alone.
        let source = self.source.take().filter(|source| matches!(source, BodySource::Http1(..)));
        let Some(source) = source.filter(|_| !tasks.stop.is_cancelled()) else { return };
        // The rest is discarded, so it is not decompressed.
        let mut rest = Self::new(self.status, HeaderMap::new(), ContentInfo::default(), source);
        tasks.spawn_until_stopped(async move {
            let rest = async { while let Ok(Some(_)) = rest.next_chunk(COPY_BYTES).await {} };
            // Late or not, the connection is closed or back in the pool.
            let _is_complete = timeout(DRAIN_TIMEOUT, rest).await;
        });
    }

    fn poll_chunk(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        let chunk = match &mut self.source {
            None => return Poll::Ready(Ok(None)),
            Some(BodySource::Http1(connection, _)) => ready!(connection.poll_chunk(context)),
            Some(BodySource::Http2(body)) => ready!(poll_http2(body, context)),
        };
        if !matches!(chunk, Ok(Some(_)))
            && let Some(BodySource::Http1(connection, Some(pool))) = self.source.take()
            && chunk.is_ok()
        {
            // At the end of the body, not of the response: the caller may keep that for longer.
            pool.return_connection(connection);
        }
        Poll::Ready(chunk)
    }
}

fn poll_http2(body: &mut Incoming, context: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
    loop {
        match ready!(Pin::new(&mut *body).poll_frame(context)) {
            Some(Ok(frame)) => match frame.into_data() {
                Ok(chunk) => return Poll::Ready(Ok(Some(chunk))),
                Err(_trailers) => {}
            },
            Some(Err(error)) => return Poll::Ready(Err(to_io_error(error))),
            None => return Poll::Ready(Ok(None)),
        }
    }
}

/// The error of a body over the limit, which [`is_too_large`] recognizes: no connection fails with this kind.
pub(crate) fn too_large() -> io::Error {
    io::Error::new(io::ErrorKind::FileTooLarge, "the response is too large")
}

pub(crate) fn is_too_large(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::FileTooLarge
}

/// A gzip byte expands to about a thousand at most, so a step of this size overshoots a limit by half a
/// megabyte at most.
const DECODE_STEP_BYTES: usize = 512;

/// Decompresses the next chunk. The result may be empty.
fn decode_gzip(
    decoder: &mut GzDecoder<Vec<u8>>,
    encoded: &[u8],
    limit_bytes: usize,
) -> io::Result<Bytes> {
    for step in encoded.chunks(DECODE_STEP_BYTES) {
        decoder.write_all(step)?;
        if decoder.get_ref().len() > limit_bytes {
            return Err(too_large());
        }
    }
    // Without a flush the decoder could hold back the end of an SSE event.
    decoder.flush()?;
    if decoder.get_ref().len() > limit_bytes {
        return Err(too_large());
    }
    Ok(Bytes::from(std::mem::take(decoder.get_mut())))
}

/// Type and encoding of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ContentInfo {
    pub(crate) kind: BodyKind,
    pub(crate) encoding: ContentEncoding,
}

/// Media type of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum BodyKind {
    Json,
    EventStream,
    #[default]
    Other,
}

/// Content encoding of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum ContentEncoding {
    #[default]
    Identity,
    Gzip,
    /// Not requested in `Accept-Encoding`.
    Unsupported,
}

impl ContentInfo {
    pub(crate) fn from_headers(headers: &HeaderMap) -> Self {
        let value = |name| headers.get(name).map(HeaderValue::as_bytes);
        Self {
            kind: value(CONTENT_TYPE).map(BodyKind::from_content_type).unwrap_or_default(),
            encoding: value(CONTENT_ENCODING).map(ContentEncoding::from_header).unwrap_or_default(),
        }
    }
}

impl BodyKind {
    /// Parses `Content-Type`.
    pub(crate) fn from_content_type(value: &[u8]) -> Self {
        let end = value.iter().position(|byte| *byte == b';').unwrap_or(value.len());
        let essence = value.get(..end).unwrap_or_default().trim_ascii();
        if essence.eq_ignore_ascii_case(b"application/json") {
            BodyKind::Json
        } else if essence.eq_ignore_ascii_case(b"text/event-stream") {
            BodyKind::EventStream
        } else {
            BodyKind::Other
        }
    }
}

impl ContentEncoding {
    /// Parses `Content-Encoding`.
    pub(crate) fn from_header(value: &[u8]) -> Self {
        if value.eq_ignore_ascii_case(b"identity") {
            ContentEncoding::Identity
        } else if value.eq_ignore_ascii_case(b"gzip") {
            ContentEncoding::Gzip
        } else {
            ContentEncoding::Unsupported
        }
    }
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn encoded(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn gzip_decoding_ignores_chunk_boundaries() {
        let text = b"{\"jsonrpc\":\"2.0\"} and more, and more, and more".repeat(20);
        let encoded = encoded(&text);
        for size in [1, 7, 64, encoded.len()] {
            let mut gzip = GzDecoder::new(Vec::new());
            let mut found = Vec::new();
            for chunk in encoded.chunks(size) {
                found.extend_from_slice(&decode_gzip(&mut gzip, chunk, 1 << 20).unwrap());
            }
            assert_eq!(found, text, "{size}");
        }
    }

    #[test]
    fn gzip_bomb_stops_at_the_limit() {
        let encoded = encoded(&vec![0; 64 << 20]);
        assert!(encoded.len() < 100 << 10);
        let mut gzip = GzDecoder::new(Vec::new());
        assert!(
            matches!(decode_gzip(&mut gzip, &encoded, 1 << 20), Err(error) if is_too_large(&error))
        );
        assert!(gzip.get_ref().len() < 3 << 20);
    }

    #[test]
    fn invalid_gzip_is_an_error() {
        let mut gzip = GzDecoder::new(Vec::new());
        let unpacked = decode_gzip(&mut gzip, b"{\"jsonrpc\":\"2.0\"}", 1 << 20);
        assert!(matches!(unpacked, Err(error) if !is_too_large(&error)));
    }
}

#[cfg(test)]
mod header_tests {
    use super::*;

    #[track_caller]
    fn check(content_type: &str, expected: BodyKind) {
        assert_eq!(
            BodyKind::from_content_type(content_type.as_bytes()),
            expected,
            "{content_type}"
        );
    }

    #[test]
    fn content_type_parameters_are_ignored() {
        check("application/json", BodyKind::Json);
        check("Application/JSON; charset=utf-8", BodyKind::Json);
        check(" application/json ;x", BodyKind::Json);
        check("text/event-stream;charset=utf-8", BodyKind::EventStream);
        check("application/json-seq", BodyKind::Other);
        check("text/html", BodyKind::Other);
        check("", BodyKind::Other);
    }

    #[test]
    fn only_gzip_and_identity_are_supported() {
        for (value, expected) in [
            ("identity", ContentEncoding::Identity),
            ("GZIP", ContentEncoding::Gzip),
            ("br", ContentEncoding::Unsupported),
            ("gzip, br", ContentEncoding::Unsupported),
            ("", ContentEncoding::Unsupported),
        ] {
            assert_eq!(ContentEncoding::from_header(value.as_bytes()), expected, "{value}");
        }
        assert_eq!(ContentInfo::from_headers(&HeaderMap::new()), ContentInfo::default());
    }
}
