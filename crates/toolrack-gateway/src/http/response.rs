//! HTTP responses: status codes, and the choice between a JSON body and an SSE stream.
//!
//! **Invariant:** a stream that the client does not read holds nothing but its message queue. Dropping a body releases
//! everything that it kept alive.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use futures_util::stream;
use http::header::{ACCEPT, ALLOW, CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Empty, Full, StreamBody};
use tokio::time::timeout;
use toolrack_mcp::ErrorCode;
use toolrack_transport::{JsonRpcError, RequestId};

use crate::encode::error_message;
use crate::message_queue::{MessageQueue, Reader, StreamContent};

/// Body of a response.
pub type GatewayBody = UnsyncBoxBody<Bytes, Infallible>;

pub(crate) type HttpResponse = Response<GatewayBody>;

/// SSE comment that shows that the stream is alive.
const KEEP_ALIVE: Bytes = Bytes::from_static(b": alive\n\n");
/// How often an idle stream sends a keep-alive comment.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// After this time without a message, a stream is started to show that the request is alive.
const JSON_WAIT: Duration = Duration::from_secs(10);

/// The content types that a client accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Accepts {
    Both,
    Json,
    EventStream,
}

impl Accepts {
    /// Parses `Accept`. `None` if it includes neither content type.
    ///
    /// Spec 2025-11-25 and 2026-07-28, transports: a client has to accept both. A client that accepts only one gets
    /// that one, and a missing header counts as both.
    pub(crate) fn from_headers(headers: &HeaderMap) -> Option<Self> {
        let values = headers.get_all(ACCEPT).iter();
        let mut values = values.filter_map(|value| value.to_str().ok()).peekable();
        if values.peek().is_none() {
            return Some(Accepts::Both);
        }
        let (mut json, mut events) = (false, false);
        for range in values.flat_map(|value| value.split(',')) {
            match range.split(';').next().unwrap_or_default().trim().to_ascii_lowercase().as_str() {
                "*/*" => (json, events) = (true, true),
                "application/json" | "application/*" => json = true,
                "text/event-stream" | "text/*" => events = true,
                _ => {}
            }
        }
        match (json, events) {
            (true, true) => Some(Accepts::Both),
            (true, false) => Some(Accepts::Json),
            (false, true) => Some(Accepts::EventStream),
            (false, false) => None,
        }
    }

    /// The messages that a stream to such a client can carry.
    pub(crate) fn stream_content(self) -> StreamContent {
        match self {
            Accepts::Json => StreamContent::ResponsesOnly,
            Accepts::Both | Accepts::EventStream => StreamContent::All,
        }
    }
}

/// Form of a JSON body: as the client's message, so the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyShape {
    Single,
    /// JSON-RPC batch of spec 2025-03-26: an array of messages.
    Batch,
}

impl BodyShape {
    fn join(self, responses: &[Bytes]) -> Bytes {
        match (self, responses) {
            (BodyShape::Single, [response]) => response.clone(),
            _ => {
                let trimmed = responses.iter().map(|response| response.trim_ascii_end());
                let trimmed: Vec<&[u8]> = trimmed.collect();
                [b"[", trimmed.join(&b',').as_slice(), b"]\n"].concat().into()
            }
        }
    }
}

/// Spec 2026-07-28, transports: HTTP status of a JSON-RPC error.
pub(crate) fn error_status(error: &JsonRpcError) -> StatusCode {
    match ErrorCode(error.code) {
        ErrorCode::METHOD_NOT_FOUND => StatusCode::NOT_FOUND,
        ErrorCode::HEADER_MISMATCH
        | ErrorCode::MISSING_CLIENT_CAPABILITY
        | ErrorCode::UNSUPPORTED_VERSION => StatusCode::BAD_REQUEST,
        _ => StatusCode::OK,
    }
}

pub(crate) fn error_response(
    status: StatusCode,
    id: Option<&RequestId>,
    error: &JsonRpcError,
) -> HttpResponse {
    json(status, error_message(id, error))
}

pub(crate) fn json(status: StatusCode, message: Bytes) -> HttpResponse {
    let mut response = Response::new(Full::new(message).boxed_unsync());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

pub(crate) fn empty(status: StatusCode) -> HttpResponse {
    let mut response = Response::new(Empty::new().boxed_unsync());
    *response.status_mut() = status;
    response
}

pub(crate) fn method_not_allowed(allowed: &'static str) -> HttpResponse {
    let mut response = empty(StatusCode::METHOD_NOT_ALLOWED);
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    response
}

pub(crate) fn event_stream(events: EventStream) -> HttpResponse {
    let frames = stream::unfold(events, async |mut events| {
        let chunk = events.next_chunk().await?;
        Some((Ok(Frame::data(chunk)), events))
    });
    let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // nginx and others buffer event streams unless told otherwise.
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    response
}

/// SSE stream of the messages in a queue.
pub(crate) struct EventStream {
    queue: Arc<MessageQueue>,
    reader: Reader,
    /// Name of the stream in event ids, if it can be resumed.
    name: Option<String>,
    /// Written before the next event.
    pub(crate) prefix: Option<Bytes>,
    /// Dropped when the client disconnects: cancels a modern request, or lets a legacy session expire.
    _on_disconnect: Box<dyn Send>,
}

impl EventStream {
    /// Stream from the message `from`, or else from the first unread message on.
    pub(crate) fn new(
        queue: Arc<MessageQueue>,
        from: Option<u64>,
        name: Option<String>,
        on_disconnect: Box<dyn Send>,
    ) -> Self {
        let reader = queue.attach_reader(from);
        Self { queue, reader, name, prefix: None, _on_disconnect: on_disconnect }
    }

    async fn next_chunk(&mut self) -> Option<Bytes> {
        if let Some(prefix) = self.prefix.take() {
            return Some(prefix);
        }
        // `next` is cancel safe, so the timeout loses no message.
        match timeout(KEEP_ALIVE_INTERVAL, self.queue.next(&self.reader)).await {
            Ok(next) => {
                next.map(|(number, message)| encode_event(self.name.as_deref(), number, &message))
            }
            Err(_elapsed) => Some(KEEP_ALIVE),
        }
    }
}

/// A message as an SSE event. Every message is one line, so one `data:` field is enough.
fn encode_event(stream: Option<&str>, number: u64, message: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(message.len() + 64);
    if let Some(stream) = stream {
        out.put_slice(format!("id: {stream}-{number}\n").as_bytes());
    }
    out.put_slice(b"data: ");
    out.put_slice(message.trim_ascii_end());
    out.put_slice(b"\n\n");
    out.freeze()
}

/// Responds as JSON if the client accepts nothing else, or if the first message is also the last one and comes soon.
/// Otherwise responds as a stream that begins with `opening`.
pub(crate) async fn respond(
    mut events: EventStream,
    (accepts, shape): (Accepts, BodyShape),
    opening: Option<Bytes>,
    status: impl Fn() -> StatusCode,
) -> HttpResponse {
    if accepts == Accepts::Json {
        // The queue carries nothing but responses (`StreamContent::ResponsesOnly`).
        let mut responses = Vec::new();
        while let Some((_, message)) = events.queue.next(&events.reader).await {
            responses.push(message);
        }
        if responses.is_empty() {
            return empty(StatusCode::ACCEPTED);
        }
        return json(status(), shape.join(&responses));
    }
    let first = timeout(JSON_WAIT, events.queue.next(&events.reader)).await;
    match first {
        // The stream ended without a message: a cancelled request has no response.
        Ok(None) => empty(StatusCode::ACCEPTED),
        Ok(Some((number, message)))
            if events.queue.is_last(number) && accepts != Accepts::EventStream =>
        {
            json(status(), shape.join(&[message]))
        }
        Ok(Some((number, message))) => {
            let first = encode_event(events.name.as_deref(), number, &message);
            events.prefix = Some([opening.unwrap_or_default(), first].concat().into());
            event_stream(events)
        }
        Err(_elapsed) => {
            events.prefix = Some(opening.unwrap_or(KEEP_ALIVE));
            event_stream(events)
        }
    }
}

#[cfg(test)]
mod tests {
    use toolrack_transport::Redactor;

    use super::*;
    use crate::message_queue::Replay;

    /// The body that a JSON-only client gets for these responses.
    async fn body(responses: &[&'static str], shape: BodyShape) -> String {
        let content = Accepts::Json.stream_content();
        let queue = MessageQueue::new(Replay::No, content, &Redactor::default());
        let events = EventStream::new(Arc::clone(&queue), None, None, Box::new(()));
        for response in responses {
            queue.push_lossy(Bytes::from_static(b"a notification\n"));
            queue.push(Bytes::from_static(response.as_bytes()));
        }
        queue.finish();
        let response = respond(events, (Accepts::Json, shape), None, || StatusCode::OK).await;
        let body = response.into_body().collect().await.unwrap().to_bytes();
        String::from_utf8_lossy(&body).into_owned()
    }

    #[tokio::test]
    async fn json_only_client_gets_every_response_and_nothing_else() {
        assert_eq!(body(&[], BodyShape::Single).await, "");
        assert_eq!(body(&["1\n"], BodyShape::Single).await, "1\n");
        assert_eq!(body(&["1\n"], BodyShape::Batch).await, "[1]\n");
        assert_eq!(body(&["1\n", "2\n"], BodyShape::Batch).await, "[1,2]\n");
    }

    #[test]
    fn accept_header_is_parsed() {
        let check = |accept: Option<&str>, expected: Option<Accepts>| {
            let mut headers = HeaderMap::new();
            accept.map(|value| headers.insert(ACCEPT, HeaderValue::from_str(value).unwrap()));
            assert_eq!(Accepts::from_headers(&headers), expected, "{accept:?}");
        };
        check(Some("application/json, text/event-stream"), Some(Accepts::Both));
        check(Some("Application/JSON;q=0.5"), Some(Accepts::Json));
        check(Some("text/event-stream"), Some(Accepts::EventStream));
        check(Some("*/*"), Some(Accepts::Both));
        check(Some("text/html"), None);
        check(None, Some(Accepts::Both));
    }

    /// Protocol facts §18.5.
    #[test]
    fn errors_map_to_http_status() {
        let check = |code, expected: u16| {
            assert_eq!(error_status(&JsonRpcError::new(code, "")).as_u16(), expected, "{code}");
        };
        check(-32601, 404);
        check(-32020, 400);
        check(-32021, 400);
        check(-32022, 400);
        check(-32602, 200);
        check(-32603, 200);
    }

    #[test]
    fn message_is_one_sse_event() {
        assert_eq!(encode_event(None, 3, b"{}\n"), "data: {}\n\n");
        assert_eq!(encode_event(Some("a"), 3, b"{}\n"), "id: a-3\ndata: {}\n\n");
    }
}
