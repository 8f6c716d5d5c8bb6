//! Sessions of legacy clients over HTTP: opened by `initialize`, used by POST, read by GET, closed by DELETE.
//!
//! Spec 2025-11-25, transports: a client that disconnects has not cancelled anything. Its messages are kept, and it
//! gets them again with `Last-Event-ID`.
//!
//! **Invariant:** session ids are unguessable, and the number of sessions is bounded.
//! **Invariant:** a session with a request in flight or an open stream never expires.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode};
use parking_lot::Mutex;
use tokio::time::Instant;
use toolrack_mcp::{Era, Revision};
use toolrack_transport::{JsonRpcError, Message, split_batch};
use uuid::Uuid;

use super::HttpGateway;
use super::request_headers::{HTTP_SESSION_ID, LAST_EVENT_ID, PROTOCOL_VERSION, single_value};
use super::response::{
    Accepts, BodyShape, EventStream, HttpResponse, empty, error_response, event_stream, json,
    method_not_allowed, respond,
};
use crate::client_session::{ClientSession, ResponseStream};
use crate::encode::{internal_error, invalid_request};
use crate::message_queue::{MessageQueue, Replay, StreamContent};
use crate::subscriptions::response_loss_notice;

/// Streams of a session that are kept for resumption. Beyond them, the oldest finished one is dropped.
const MAX_STREAMS: usize = 64;
/// Number of the stream for messages outside of requests.
const STANDALONE: u64 = 0;

/// Contents of a POST body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Contents {
    /// At least one request, so there is a response.
    Requests,
    /// Only notifications and responses.
    NoRequests,
    /// Nothing valid in this revision.
    Malformed,
}

impl HttpGateway {
    /// Handles `initialize`: opens a session.
    pub(crate) async fn open_session(&self, message: &Bytes) -> HttpResponse {
        let shared = &self.gateway.shared;
        let standalone = Arc::new(MessageQueue::new(Replay::Yes, shared.manager.redactor()));
        let client = ClientSession::new(Arc::clone(shared), standalone);
        // No replay: the response is a JSON body, which cannot be resumed.
        let queue = Arc::new(MessageQueue::new(Replay::No, shared.manager.redactor()));
        let reader = queue.attach_reader(None);
        client.receive(message, &ResponseStream::closing(&queue));
        // `initialize` is handled synchronously, so this does not wait.
        let Some((_, result)) = queue.next(&reader).await else {
            return error_response(StatusCode::BAD_REQUEST, &internal_error("no response"));
        };
        // `initialize` failed, so there is no session to keep.
        if client.client().is_none() {
            return json(StatusCode::OK, result);
        }
        let Some(id) = self.sessions.insert(Arc::clone(&client)) else {
            client.close();
            let error = internal_error("too many sessions are open");
            return error_response(StatusCode::SERVICE_UNAVAILABLE, &error);
        };
        let mut response = json(StatusCode::OK, result);
        if let Ok(mut id) = HeaderValue::from_str(&id) {
            id.set_sensitive(true);
            response.headers_mut().insert(HTTP_SESSION_ID, id);
        }
        response
    }

    /// Handles a POST in a session.
    pub(crate) async fn post_in_session(
        &self,
        id: &str,
        headers: &HeaderMap,
        message: Bytes,
        accepts: Accepts,
    ) -> HttpResponse {
        let session = match self.session(id, headers) {
            Ok(session) => session,
            Err(response) => return *response,
        };
        let client = &session.client;
        let revision = client.client().map(|client| client.revision);
        match contents(&message, revision) {
            Contents::NoRequests => {
                client.receive(&message, &ResponseStream::persistent(client.queue()));
                empty(StatusCode::ACCEPTED)
            }
            Contents::Requests => {
                let (number, queue) = session.open_stream(accepts.stream_content());
                let reader = queue.attach_reader(None);
                let reader_guard = Some(session.attach_reader());
                client.receive(&message, &ResponseStream::closing(&queue));
                let has_opening =
                    revision.is_some_and(|revision| revision >= Revision::R2025_11_25);
                let opening = has_opening.then(|| opening_event(number));
                let events = EventStream {
                    queue: Arc::clone(&queue),
                    reader,
                    name: Some(number.to_string()),
                    prefix: None,
                    _cancel: None,
                    _reader_guard: reader_guard,
                };
                let is_batch = split_batch(&message).is_some();
                let shape = if is_batch { BodyShape::Batch } else { BodyShape::Single };
                let response = respond(events, (accepts, shape), opening, || StatusCode::OK).await;
                // A JSON body has an exact size and cannot be resumed, so its stream need not be kept.
                let is_json = http_body::Body::size_hint(response.body()).exact().is_some();
                if queue.is_finished() && is_json {
                    session.close_stream(number);
                }
                response
            }
            Contents::Malformed => {
                let redactor = self.gateway.shared.manager.redactor();
                let queue = Arc::new(MessageQueue::new(Replay::No, redactor));
                let reader = queue.attach_reader(None);
                client.receive(&message, &ResponseStream::closing(&queue));
                let error = queue.next(&reader).await.map(|(_, message)| message);
                json(StatusCode::BAD_REQUEST, error.unwrap_or_default())
            }
        }
    }

    /// Handles GET: the stream for messages outside of requests, or the resumed stream of a response.
    pub(crate) fn get(&self, headers: &HeaderMap) -> HttpResponse {
        let Some(id) = single_value(headers, &HTTP_SESSION_ID) else {
            return method_not_allowed("POST");
        };
        if matches!(Accepts::from_headers(headers), None | Some(Accepts::Json)) {
            let error = invalid_request("Not Acceptable: only text/event-stream is available");
            return error_response(StatusCode::NOT_ACCEPTABLE, &error);
        }
        let session = match self.session(id, headers) {
            Ok(session) => session,
            Err(response) => return *response,
        };
        let last_event = single_value(headers, &LAST_EVENT_ID);
        let (number, queue, from) = match last_event.and_then(|event| session.resume(event)) {
            Some((number, queue, next)) => (number, queue, Some(next)),
            None => (STANDALONE, Arc::clone(session.client.queue()), None),
        };
        let reader = queue.attach_reader(from);
        event_stream(EventStream {
            queue,
            reader,
            name: Some(number.to_string()),
            prefix: Some(Bytes::from_static(b": open\n\n")),
            _cancel: None,
            _reader_guard: Some(session.attach_reader()),
        })
    }

    /// Handles DELETE: closes the session.
    pub(crate) fn delete(&self, headers: &HeaderMap) -> HttpResponse {
        let Some(id) = single_value(headers, &HTTP_SESSION_ID) else {
            return method_not_allowed("POST");
        };
        if let Err(response) = self.session(id, headers) {
            return *response;
        }
        self.sessions.remove(id);
        empty(StatusCode::OK)
    }

    fn session(
        &self,
        id: &str,
        headers: &HeaderMap,
    ) -> Result<Arc<HttpSession>, Box<HttpResponse>> {
        let session = self.sessions.get(id).ok_or_else(|| {
            let error = JsonRpcError::new(-32001, "Session not found");
            Box::new(error_response(StatusCode::NOT_FOUND, &error))
        })?;
        let is_legacy = |version: &str| {
            Revision::parse(version).is_some_and(|revision| revision.era() == Era::Legacy)
        };
        match single_value(headers, &PROTOCOL_VERSION) {
            Some(version) if !is_legacy(version) => {
                let error = invalid_request("Bad Request: Unsupported protocol version");
                Err(Box::new(error_response(StatusCode::BAD_REQUEST, &error)))
            }
            // A missing header is fine: clients before 2025-06-18 send none.
            _ => Ok(session),
        }
    }
}

/// Spec 2025-11-25, transports §Resumability: the first event has an id and no data, so that the client can resume a
/// stream that breaks before its first message.
fn opening_event(number: u64) -> Bytes {
    Bytes::from(format!("id: {number}-begin\ndata: \n\n"))
}

/// Classifies a POST body. Malformed messages beside a request are reported in the response stream.
fn contents(message: &[u8], revision: Option<Revision>) -> Contents {
    let messages = match split_batch(message) {
        Some(_) if revision.is_none_or(|revision| !revision.has_batches()) => {
            return Contents::Malformed;
        }
        Some(batch) => batch,
        None => vec![message],
    };
    let mut contents = if messages.is_empty() { Contents::Malformed } else { Contents::NoRequests };
    for message in messages {
        match Message::parse(message) {
            Ok(Message::Request { .. }) => return Contents::Requests,
            Ok(_) => {}
            Err(_) => contents = Contents::Malformed,
        }
    }
    contents
}

/// All sessions of an endpoint.
#[derive(Debug)]
pub(crate) struct Sessions {
    by_id: Mutex<HashMap<String, Arc<HttpSession>>>,
    limit: usize,
    idle_timeout: Duration,
}

/// A legacy session and its resumable streams.
#[derive(Debug)]
pub(crate) struct HttpSession {
    client: Arc<ClientSession>,
    streams: Mutex<VecDeque<(u64, Arc<MessageQueue>)>>,
    n_streams: AtomicU64,
    n_readers: AtomicUsize,
    last_used: Mutex<Instant>,
}

/// Counts a client that reads a stream of the session, until dropped.
#[derive(Debug)]
pub(crate) struct ReaderGuard(Arc<HttpSession>);

impl Drop for ReaderGuard {
    fn drop(&mut self) {
        // In this order: a session without readers must not be seen with its old time of last use.
        self.0.mark_used();
        self.0.n_readers.fetch_sub(1, Ordering::AcqRel);
    }
}

impl HttpSession {
    fn new(client: Arc<ClientSession>) -> Self {
        Self {
            client,
            streams: Mutex::default(),
            n_streams: AtomicU64::new(STANDALONE),
            n_readers: AtomicUsize::new(0),
            last_used: Mutex::new(Instant::now()),
        }
    }

    fn mark_used(&self) {
        *self.last_used.lock() = Instant::now();
    }

    fn attach_reader(self: &Arc<Self>) -> ReaderGuard {
        self.mark_used();
        self.n_readers.fetch_add(1, Ordering::AcqRel);
        ReaderGuard(Arc::clone(self))
    }

    /// Opens a stream for the responses to one message.
    fn open_stream(&self, content: StreamContent) -> (u64, Arc<MessageQueue>) {
        let number = self.n_streams.fetch_add(1, Ordering::Relaxed) + 1;
        let redactor = self.client.shared.manager.redactor();
        let queue = Arc::new(MessageQueue::new(Replay::Yes, redactor).with_content(content));
        queue.add_loss_notice(response_loss_notice());
        let mut streams = self.streams.lock();
        // Open streams are never dropped; the limit on requests in flight bounds them.
        if streams.len() >= MAX_STREAMS
            && let Some(index) = streams.iter().position(|(_, queue)| queue.is_finished())
        {
            streams.remove(index);
        }
        streams.push_back((number, Arc::clone(&queue)));
        (number, queue)
    }

    fn close_stream(&self, number: u64) {
        self.streams.lock().retain(|(stream, _)| *stream != number);
    }

    /// The stream of the event that the client saw last, and the number of its next message.
    fn resume(&self, last_event: &str) -> Option<(u64, Arc<MessageQueue>, u64)> {
        let (stream, number) = last_event.split_once('-')?;
        let stream = stream.parse().ok()?;
        let next =
            if number == "begin" { 0 } else { number.parse::<u64>().ok()?.checked_add(1)? };
        if stream == STANDALONE {
            return Some((STANDALONE, Arc::clone(self.client.queue()), next));
        }
        let streams = self.streams.lock();
        let (_, queue) = streams.iter().find(|(number, _)| *number == stream)?;
        Some((stream, Arc::clone(queue), next))
    }

    /// Since when the session is idle. `None` while it is in use.
    fn idle_since(&self) -> Option<Instant> {
        let is_used = self.n_readers.load(Ordering::Acquire) > 0 || self.client.n_in_flight() > 0;
        (!is_used).then(|| *self.last_used.lock())
    }
}

impl Sessions {
    pub(crate) fn new(limit: usize, idle_timeout: Duration) -> Self {
        Self { by_id: Mutex::default(), limit, idle_timeout }
    }

    /// Adds a session and returns its id. At the limit, the session that is idle for longest is closed; `None` if all
    /// are in use.
    fn insert(&self, client: Arc<ClientSession>) -> Option<String> {
        let id = Uuid::new_v4().simple().to_string();
        let mut sessions = self.by_id.lock();
        let mut removed = None;
        if sessions.len() >= self.limit {
            let idle = sessions.iter();
            let idle = idle.filter_map(|(id, session)| Some((session.idle_since()?, id)));
            let oldest = idle.min().map(|(_, id)| id.clone())?;
            removed = sessions.remove(&oldest);
        }
        sessions.insert(id.clone(), Arc::new(HttpSession::new(client)));
        // Closing cancels requests and releases subscriptions: not under the lock.
        drop(sessions);
        removed.inspect(|session| session.client.close());
        Some(id)
    }

    fn get(&self, id: &str) -> Option<Arc<HttpSession>> {
        let found = self.by_id.lock().get(id).map(Arc::clone);
        found.inspect(|session| session.mark_used())
    }

    fn remove(&self, id: &str) {
        let found = self.by_id.lock().remove(id);
        found.inspect(|session| session.client.close());
    }

    pub(crate) fn len(&self) -> usize {
        self.by_id.lock().len()
    }

    /// Closes sessions that have been idle for too long.
    pub(crate) fn close_expired(&self) {
        let is_expired = |session: &HttpSession| {
            session.idle_since().is_some_and(|since| since.elapsed() >= self.idle_timeout)
        };
        let mut sessions = self.by_id.lock();
        let expired = sessions.iter().filter(|(_, session)| is_expired(session));
        let ids: Vec<String> = expired.map(|(id, _)| id.clone()).collect();
        let removed: Vec<_> = ids.iter().filter_map(|id| sessions.remove(id)).collect();
        drop(sessions);
        // Without the lock, as in `insert`.
        for session in removed {
            session.client.close();
        }
    }

    /// Ends the streams for messages outside of requests.
    pub(crate) fn finish_standalone_streams(&self) {
        for session in self.by_id.lock().values() {
            session.client.queue().finish();
        }
    }

    pub(crate) fn close_all(&self) {
        let sessions = std::mem::take(&mut *self.by_id.lock());
        for session in sessions.values() {
            session.client.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn post_body_is_classified() {
        let check = |message: &str, expected| {
            let revision = Some(Revision::R2025_03_26);
            assert_eq!(contents(message.as_bytes(), revision), expected, "{message}");
            let revision = Some(Revision::R2025_11_25);
            let is_batch = message.starts_with('[');
            let without_batches = if is_batch { Contents::Malformed } else { expected };
            assert_eq!(contents(message.as_bytes(), revision), without_batches, "{message}");
        };
        check(r#"{"id":1,"method":"m"}"#, Contents::Requests);
        check(r#"{"method":"m"}"#, Contents::NoRequests);
        check(r#"{"id":1,"result":{}}"#, Contents::NoRequests);
        check(r#"[{"method":"m"},{"id":1,"method":"m"}]"#, Contents::Requests);
        check(r#"[{"method":"m"}]"#, Contents::NoRequests);
        check("[]", Contents::Malformed);
        check("[7]", Contents::Malformed);
        check(r#"[7,{"method":"m"}]"#, Contents::Malformed);
        check(r#"[7,{"id":1,"method":"m"}]"#, Contents::Requests);
        check("{oops", Contents::Malformed);
    }
}
