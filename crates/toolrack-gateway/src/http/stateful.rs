//! Sessions of legacy clients over HTTP: opened by `initialize`, used by POST, read by GET, closed by DELETE.
//!
//! Spec 2025-11-25, transports: a client that disconnects has not cancelled anything. Its messages are kept, and it
//! gets them again with `Last-Event-ID`.
//!
//! **Invariant:** session ids are unguessable, and the number of sessions is bounded.
//! **Invariant:** a session is found only with the credential that opened it, so its id alone is no credential.
//! **Invariant:** a session with a request in flight or an open stream never expires.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use toolrack_mcp::{Era, Revision};
use toolrack_transport::JsonRpcError;
use uuid::Uuid;

use super::request_headers::{HTTP_SESSION_ID, LAST_EVENT_ID, PROTOCOL_VERSION, single_value};
use super::response::{
    Accepts, BodyShape, EventStream, HttpResponse, empty, event_stream, json, method_not_allowed,
    respond,
};
use super::{Rejection, rejection};
use crate::client_session::{ClientSession, ResponseStream};
use crate::encode::internal_error;
use crate::gateway::Shared;
use crate::message_queue::{MessageQueue, Replay, StreamContent};
use crate::params::{Contents, Incoming};

/// Lower bound of the interval at which idle sessions are looked for.
const MIN_EXPIRY_INTERVAL: Duration = Duration::from_millis(50);
/// Streams of a session that are kept for resumption. Beyond them, the oldest finished one is dropped.
const MAX_STREAMS: usize = 64;
/// Number of the stream for messages outside of requests.
const STANDALONE: u64 = 0;

/// All sessions of an endpoint.
#[derive(Debug)]
pub(crate) struct Sessions {
    pub(crate) shared: Arc<Shared>,
    pub(crate) by_id: Mutex<HashMap<String, Arc<HttpSession>>>,
    pub(crate) limit: usize,
    pub(crate) idle_timeout: Duration,
}

/// A legacy session and its resumable streams.
#[derive(Debug)]
pub(crate) struct HttpSession {
    client: Arc<ClientSession>,
    /// The credential that opened it.
    pub(crate) owner: Option<Box<str>>,
    streams: Mutex<VecDeque<(u64, Arc<MessageQueue>)>>,
    n_streams: AtomicU64,
    n_readers: AtomicUsize,
    last_used: Mutex<Instant>,
}

/// Counts a client that reads a stream of the session, until dropped.
#[derive(Debug)]
struct ReaderGuard(Arc<HttpSession>);

impl Drop for ReaderGuard {
    fn drop(&mut self) {
        // In this order: a session without readers must not be seen with its old time of last use.
        self.0.mark_used();
        self.0.n_readers.fetch_sub(1, Ordering::AcqRel);
    }
}

impl HttpSession {
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
        let queue = MessageQueue::new(Replay::Yes, content, redactor);
        queue.report_losses();
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

    /// The stream of the event that the client saw last, and the number of its next message.
    fn resume(&self, last_event: &str) -> Option<(u64, Arc<MessageQueue>, u64)> {
        let (stream, number) = last_event.split_once('-')?;
        let stream = stream.parse().ok()?;
        let next =
            if number == "begin" { 0 } else { number.parse::<u64>().ok()?.checked_add(1)? };
        if stream == STANDALONE {
            return Some((STANDALONE, Arc::clone(&self.client.queue), next));
        }
        let streams = self.streams.lock();
        let (_, queue) = streams.iter().find(|(number, _)| *number == stream)?;
        Some((stream, Arc::clone(queue), next))
    }

    /// Since when the session is idle. `None` while it is in use.
    fn idle_since(&self) -> Option<Instant> {
        let is_used = self.n_readers.load(Ordering::Acquire) > 0 || self.client.in_flight.len() > 0;
        (!is_used).then(|| *self.last_used.lock())
    }
}

impl Sessions {
    /// Handles `initialize`: opens a session.
    pub(crate) async fn open(
        &self,
        incoming: Incoming,
        owner: Option<&str>,
    ) -> Result<HttpResponse, Rejection> {
        let redactor = self.shared.manager.redactor();
        let standalone = MessageQueue::new(Replay::Yes, StreamContent::All, redactor);
        let client = ClientSession::new(Arc::clone(&self.shared), standalone);
        let result = receive_one(&client, incoming).await;
        // `initialize` failed, so there is no session to keep.
        if client.client().is_none() {
            return Ok(json(StatusCode::OK, result));
        }
        let Some(id) = self.insert(Arc::clone(&client), owner) else {
            client.close();
            let error = internal_error("too many sessions are open");
            return Err((StatusCode::SERVICE_UNAVAILABLE, error));
        };
        let mut response = json(StatusCode::OK, result);
        if let Ok(mut id) = HeaderValue::from_str(&id) {
            id.set_sensitive(true);
            response.headers_mut().insert(HTTP_SESSION_ID, id);
        }
        Ok(response)
    }

    /// Handles a POST in a session.
    pub(crate) async fn post(
        session: &Arc<HttpSession>,
        incoming: Incoming,
        accepts: Accepts,
    ) -> Result<HttpResponse, Rejection> {
        let client = &session.client;
        let revision = client.client().map(|client| client.revision);
        match incoming.contents(revision) {
            Contents::Requests => {}
            Contents::NoRequests => {
                client.receive(incoming, &ResponseStream::persistent(&client.queue));
                return Ok(empty(StatusCode::ACCEPTED));
            }
            Contents::Malformed => {
                return Ok(json(StatusCode::BAD_REQUEST, receive_one(client, incoming).await));
            }
        }
        let (number, queue) = session.open_stream(accepts.stream_content());
        let (name, reader) = (Some(number.to_string()), Box::new(session.attach_reader()));
        let events = EventStream::new(Arc::clone(&queue), None, name, reader);
        let shape = if incoming.is_batch { BodyShape::Batch } else { BodyShape::Single };
        client.receive(incoming, &ResponseStream::closing(&queue));
        let has_opening = revision.is_some_and(|revision| revision >= Revision::R2025_11_25);
        // Spec 2025-11-25, transports §Resumability: the first event has an id and no data, so that the client can
        // resume a stream that breaks before its first message.
        let opening = has_opening.then(|| format!("id: {number}-begin\ndata: \n\n").into());
        let response = respond(events, (accepts, shape), opening, || StatusCode::OK).await;
        // A JSON body has an exact size and cannot be resumed, so its stream need not be kept.
        let is_json = http_body::Body::size_hint(response.body()).exact().is_some();
        if queue.is_finished() && is_json {
            session.streams.lock().retain(|(stream, _)| *stream != number);
        }
        Ok(response)
    }

    /// Handles GET: the stream for messages outside of requests, or the resumed stream of a response.
    pub(crate) fn get(
        &self,
        headers: &HeaderMap,
        owner: Option<&str>,
    ) -> Result<HttpResponse, Rejection> {
        let Some(id) = single_value(headers, &HTTP_SESSION_ID) else {
            return Ok(method_not_allowed("POST"));
        };
        if matches!(Accepts::from_headers(headers), None | Some(Accepts::Json)) {
            return Err(rejection(
                StatusCode::NOT_ACCEPTABLE,
                "Not Acceptable: only text/event-stream is available",
            ));
        }
        let session = self.session(id, headers, owner)?;
        let last_event = single_value(headers, &LAST_EVENT_ID);
        let (number, queue, from) = match last_event.and_then(|event| session.resume(event)) {
            Some((number, queue, next)) => (number, queue, Some(next)),
            None => (STANDALONE, Arc::clone(&session.client.queue), None),
        };
        let (name, reader) = (Some(number.to_string()), Box::new(session.attach_reader()));
        let mut events = EventStream::new(queue, from, name, reader);
        events.prefix = Some(Bytes::from_static(b": open\n\n"));
        Ok(event_stream(events))
    }

    /// Handles DELETE: closes the session.
    pub(crate) fn delete(
        &self,
        headers: &HeaderMap,
        owner: Option<&str>,
    ) -> Result<HttpResponse, Rejection> {
        let Some(id) = single_value(headers, &HTTP_SESSION_ID) else {
            return Ok(method_not_allowed("POST"));
        };
        let session = self.session(id, headers, owner)?;
        self.by_id.lock().remove(id);
        session.client.close();
        Ok(empty(StatusCode::OK))
    }

    /// The session of a request. One of another owner does not exist for it.
    pub(crate) fn session(
        &self,
        id: &str,
        headers: &HeaderMap,
        owner: Option<&str>,
    ) -> Result<Arc<HttpSession>, Rejection> {
        let session = self.by_id.lock().get(id).map(Arc::clone);
        let session = session.filter(|session| session.owner.as_deref() == owner);
        let not_found = || (StatusCode::NOT_FOUND, JsonRpcError::new(-32001, "Session not found"));
        let session = session.ok_or_else(not_found)?;
        session.mark_used();
        let is_legacy = |version: &str| {
            Revision::parse(version).is_some_and(|revision| revision.era() == Era::Legacy)
        };
        match single_value(headers, &PROTOCOL_VERSION) {
            Some(version) if !is_legacy(version) => {
                Err(rejection(StatusCode::BAD_REQUEST, "Bad Request: Unsupported protocol version"))
            }
            // A missing header is fine: clients before 2025-06-18 send none.
            _ => Ok(session),
        }
    }

    /// Adds a session and returns its id. At the limit, the session that is idle for longest is closed; `None` if all
    /// are in use.
    fn insert(&self, client: Arc<ClientSession>, owner: Option<&str>) -> Option<String> {
        let id = Uuid::new_v4().simple().to_string();
        let mut sessions = self.by_id.lock();
        let mut removed = None;
        if sessions.len() >= self.limit {
            let idle = sessions.iter();
            let idle = idle.filter_map(|(id, session)| Some((session.idle_since()?, id)));
            let oldest = idle.min().map(|(_, id)| id.clone())?;
            removed = sessions.remove(&oldest);
        }
        let session = HttpSession {
            client,
            owner: owner.map(Box::from),
            streams: Mutex::default(),
            n_streams: AtomicU64::new(STANDALONE),
            n_readers: AtomicUsize::new(0),
            last_used: Mutex::new(Instant::now()),
        };
        sessions.insert(id.clone(), Arc::new(session));
        // Closing cancels requests and releases subscriptions: not under the lock.
        drop(sessions);
        removed.inspect(|session| session.client.close());
        Some(id)
    }

    /// Closes idle sessions until the endpoint is dropped or the gateway closed, then all of them.
    pub(crate) async fn expire(self: Arc<Self>, stop: CancellationToken) {
        let interval = (self.idle_timeout / 4).max(MIN_EXPIRY_INTERVAL);
        while stop.run_until_cancelled(sleep(interval)).await.is_some() {
            self.close_if(|session| {
                session.idle_since().is_some_and(|since| since.elapsed() >= self.idle_timeout)
            });
        }
        self.close_if(|_session| true);
    }

    pub(crate) fn close_if(&self, is_ended: impl Fn(&HttpSession) -> bool) {
        let removed: Vec<_> =
            self.by_id.lock().extract_if(|_, session| is_ended(session)).collect();
        // Without the lock, as in `insert`.
        for (_, session) in removed {
            session.client.close();
        }
    }

    /// Ends the streams for messages outside of requests.
    pub(crate) fn finish_standalone_streams(&self) {
        for session in self.by_id.lock().values() {
            session.client.queue.finish();
        }
    }
}

/// Handles a message that is answered at once, and returns the first response.
async fn receive_one(client: &Arc<ClientSession>, incoming: Incoming) -> Bytes {
    // No replay: the response is a JSON body, which cannot be resumed.
    let redactor = client.shared.manager.redactor();
    let queue = MessageQueue::new(Replay::No, StreamContent::All, redactor);
    let reader = queue.attach_reader(None);
    client.receive(incoming, &ResponseStream::closing(&queue));
    queue.next(&reader).await.map(|(_, message)| message).unwrap_or_default()
}
