//! A client session: a legacy session, or a client on stdio in either era.
//!
//! Holds the requests in flight ([`InFlightRequests`]) and the server requests that wait for the client's response.
//!
//! **Invariant:** every accepted request gets exactly one response, unless its client cancels it or disconnects: then
//! it gets none.
//! **Invariant:** a request id belongs to one request at a time, and the limits on requests hold however many arrive at
//! once.
//! **Invariant:** every task of a session ends with it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::{Notify, Semaphore, SemaphorePermit, oneshot};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use toolrack_mcp::{LogLevel, Method};
use toolrack_transport::{JsonRpcError, RawJson, RequestId};

use crate::encode::{
    Outcome, error_message, internal_error, invalid_request, notification, request, response,
    to_result, without_hidden_text,
};
use crate::error_mapping::GatewayErrorData;
use crate::gateway::Shared;
use crate::message_queue::{MessageQueue, StreamContent};
use crate::params::{ClientInfo, ClientMessage, ClientRequest, Incoming, Params};
use crate::request_context::RequestContext;
use crate::server_requests::{ClientId, LogFilter, NotificationSink};
use crate::subscriptions::Subscriber;

/// How long a request is queued before it is rejected.
const QUEUE_TIMEOUT: Duration = Duration::from_mins(1);

/// One client.
#[derive(Debug)]
pub(crate) struct ClientSession {
    pub(crate) shared: Arc<Shared>,
    /// Stream for messages outside of requests.
    pub(crate) queue: Arc<MessageQueue>,
    client_id: ClientId,
    /// Set by a legacy `initialize`.
    initialized: OnceLock<(Arc<ClientInfo>, Arc<Subscriber>, Arc<NotificationSink>)>,
    pub(crate) log_level: Arc<Mutex<Option<LogLevel>>>,
    is_ready: AtomicBool,
    pub(crate) in_flight: InFlightRequests,
    /// Notified when the roots of the client change. Changes while servers are being told cause one more round.
    roots_changes: Notify,
    /// Server requests without a response, by id.
    pending: Mutex<HashMap<u64, oneshot::Sender<Outcome>>>,
    next_request_id: AtomicU64,
    stop: CancellationToken,
}

/// Stream for the responses to one message or batch. The requests of a batch share it, and the last one finishes it.
#[derive(Debug)]
pub(crate) struct ResponseStream {
    pub(crate) queue: Arc<MessageQueue>,
    stays_open: bool,
}

impl Drop for ResponseStream {
    fn drop(&mut self) {
        if !self.stays_open {
            self.queue.finish();
        }
    }
}

impl ResponseStream {
    /// Stream that stays open after the responses.
    pub(crate) fn persistent(queue: &Arc<MessageQueue>) -> Arc<Self> {
        Arc::new(Self { queue: Arc::clone(queue), stays_open: true })
    }

    /// Stream that ends with the last response.
    pub(crate) fn closing(queue: &Arc<MessageQueue>) -> Arc<Self> {
        Arc::new(Self { queue: Arc::clone(queue), stays_open: false })
    }

    /// Sends a response, and finishes the stream with it if no other request holds the stream. Message and end go
    /// together, so that the HTTP response can be a single JSON body.
    fn push_last(self: Arc<Self>, message: Bytes) {
        // When the last two requests of a batch end together, neither may see 1. Then `drop` ends the stream.
        match Arc::strong_count(&self) {
            1 if !self.stays_open => self.queue.push_last(message),
            _ => self.queue.push(message),
        }
    }
}

impl ClientSession {
    /// Session of a client that has not sent anything yet. Messages outside of requests go to `queue`.
    pub(crate) fn new(shared: Arc<Shared>, queue: Arc<MessageQueue>) -> Arc<Self> {
        let options = &shared.options;
        Arc::new(Self {
            in_flight: InFlightRequests::new(options.max_in_flight, options.max_queued),
            shared,
            queue,
            client_id: ClientId::new(),
            initialized: OnceLock::new(),
            log_level: Arc::default(),
            is_ready: AtomicBool::new(false),
            roots_changes: Notify::new(),
            pending: Mutex::default(),
            next_request_id: AtomicU64::new(1),
            stop: CancellationToken::new(),
        })
    }

    pub(crate) fn subscriber(&self) -> Option<&Arc<Subscriber>> {
        self.initialized.get().map(|(_, subscriber, _)| subscriber)
    }

    pub(crate) fn client(&self) -> Option<&Arc<ClientInfo>> {
        self.initialized.get().map(|(client, ..)| client)
    }

    /// Handles a message or a batch.
    pub(crate) fn receive(self: &Arc<Self>, incoming: Incoming, responses: &Arc<ResponseStream>) {
        if !incoming.is_supported(self.client().map(|client| client.revision)) {
            let error = invalid_request("batches are not supported in this protocol version");
            return responses.queue.push(error_message(None, &error));
        }
        for message in incoming.messages {
            match message {
                ClientMessage::Request(request) => self.handle_request(request, responses),
                ClientMessage::Notification { method, params } => match Method::parse(&method) {
                    Some(Method::Initialized) => self.mark_ready(),
                    Some(Method::Cancelled) => {
                        params.request_id.inspect(|id| self.in_flight.cancel(id));
                    }
                    Some(Method::RootsListChanged) => self.roots_changes.notify_one(),
                    _ => {}
                },
                ClientMessage::Response { id, outcome } => {
                    let id = id.and_then(|id| id.as_local_id());
                    let sender = id.and_then(|id| self.pending.lock().remove(&id));
                    // The waiting side may have given up a moment ago.
                    sender.map(|sender| sender.send(outcome).is_ok());
                }
                ClientMessage::Malformed { id, error } => {
                    responses.queue.push(error_message(id.as_ref(), &error));
                }
            }
        }
    }

    fn handle_request(self: &Arc<Self>, request: ClientRequest, responses: &Arc<ResponseStream>) {
        let id = request.id.clone();
        // Handled here and not in a task, because the next message may already depend on the
        // session.
        if request.method == Method::Initialize.as_str() {
            return responses.queue.push(response(&id, &self.initialize(request.params)));
        }
        // A child token, so that the end of the session cancels the request.
        let token = self.stop.child_token();
        if let Err(error) = self.in_flight.register(&id, &token, &request.method) {
            return responses.queue.push(response(&id, &Err(error)));
        }
        let (this, responses) = (Arc::clone(self), Arc::clone(responses));
        self.shared.tracker.spawn(async move {
            let outcome = tokio::select! {
                // A request that is cancelled while it completes gets no response.
                biased;
                () = token.cancelled() => None,
                outcome = this.run_request(request, &responses.queue) => Some(outcome),
            };
            // Before the response is sent: the client may reuse the id as soon as it has the response.
            this.in_flight.requests.lock().remove(&id);
            if let Some(outcome) = outcome {
                responses.push_last(response(&id, &outcome));
            }
        });
    }

    async fn run_request(
        self: &Arc<Self>,
        request: ClientRequest,
        queue: &Arc<MessageQueue>,
    ) -> Outcome {
        let ClientRequest { id, method, params } = request;
        let _permit = self.in_flight.acquire(&method).await?;
        let params = params?;
        // A modern request carries its version, also in a session that began with `initialize`.
        let is_modern = params.meta_version()?.is_some();
        let (client, session) = match self.client() {
            Some(client) if !is_modern => {
                self.mark_ready();
                (Arc::clone(client), Some(Arc::clone(self)))
            }
            // Spec 2025-11-25, lifecycle: a ping is allowed before `initialize`.
            None if !is_modern && method == Method::Ping.as_str() => return to_result(&json!({})),
            _ => (Arc::new(ClientInfo::from_meta(&params)?), None),
        };
        let context = RequestContext {
            shared: Arc::clone(&self.shared),
            client,
            client_id: self.client_id.clone(),
            session,
            queue: Arc::clone(queue),
            id,
            method,
            params,
            timeout: None,
        };
        Arc::new(context).handle().await
    }

    fn initialize(self: &Arc<Self>, params: Result<Params, JsonRpcError>) -> Outcome {
        let client = ClientInfo::from_initialize(params?)?;
        let revision = client.revision;
        let subscriber = Subscriber::for_session(Arc::clone(&self.queue));
        let log_sink = Arc::new(NotificationSink {
            queue: Arc::clone(&self.queue),
            scope: Arc::clone(&self.shared.scope),
            progress_token: None,
            log_filter: LogFilter::Session(Arc::clone(&self.log_level)),
        });
        if self.initialized.set((Arc::new(client), subscriber, Arc::clone(&log_sink))).is_err() {
            return Err(invalid_request("the session is already initialized"));
        }
        self.shared.router.sessions.add(self);
        self.shared.router.log_sinks.add(&log_sink);
        if self.shared.router.forwards_roots {
            self.shared.tracker.spawn(forward_roots_changes(Arc::clone(self)));
        }
        let mut result = json!({
            "protocolVersion": revision.as_str(),
            "capabilities": self.shared.capabilities(revision),
            "serverInfo": self.shared.server_info(revision),
        });
        self.shared.add_instructions(&mut result);
        to_result(&result).map(without_hidden_text)
    }

    /// Starts to notify the client of changes. Some clients never send `notifications/initialized`, so the first
    /// request counts too.
    fn mark_ready(&self) {
        if let Some(subscriber) = self.subscriber()
            && !self.is_ready.swap(true, Ordering::AcqRel)
        {
            self.shared.subscribers.add(subscriber);
        }
    }

    /// Sends a server request to the client on the stream `preferred` and waits for the response. Dropping the future
    /// sends `notifications/cancelled`.
    pub(crate) async fn send_request(
        &self,
        preferred: &Arc<MessageQueue>,
        method: &str,
        params: Option<&RawJson>,
    ) -> Outcome {
        if preferred.content == StreamContent::ResponsesOnly {
            return Err(internal_error(
                "the client accepts no event stream, so it gets no requests",
            ));
        }
        let id = self.next_request_id.fetch_add(1, Ordering::Relaxed);
        let (sender, received) = oneshot::channel();
        // Registered before it is sent: the response may arrive at once.
        self.pending.lock().insert(id, sender);
        let message = request(id, method, params);
        // The stream may have ended meanwhile; the session's own stream stays.
        let queue = if preferred.push_if_open(&message) { preferred } else { &self.queue };
        let _pending = PendingRequest { session: self, id, queue };
        if !Arc::ptr_eq(queue, preferred) {
            queue.push(message);
        }
        let response = timeout(self.shared.options.client_response_timeout, received);
        match self.stop.run_until_cancelled(response).await {
            Some(Ok(Ok(outcome))) => outcome,
            Some(Err(_elapsed)) => Err(internal_error("the client did not respond in time")),
            None | Some(Ok(Err(_))) => Err(internal_error("the client is gone")),
        }
    }

    /// Cancels all requests of the client and releases its subscriptions.
    pub(crate) fn close(&self) {
        self.stop.cancel();
        if let Some(subscriber) = self.subscriber() {
            subscriber.close();
        }
        self.queue.finish();
    }
}

/// A server request at the client. Sends `notifications/cancelled` if it is dropped without a response.
struct PendingRequest<'a> {
    session: &'a ClientSession,
    id: u64,
    queue: &'a MessageQueue,
}

impl Drop for PendingRequest<'_> {
    fn drop(&mut self) {
        // A response removes the entry first, so an entry that is still there has none.
        if self.session.pending.lock().remove(&self.id).is_some() {
            let params =
                json!({ "requestId": self.id, "reason": "the response is no longer needed" });
            self.queue.push_lossy(notification(Method::Cancelled.as_str(), Some(&params)));
        }
    }
}

/// Tells servers that the roots changed, one round at a time: a client may send changes faster than servers take them.
async fn forward_roots_changes(session: Arc<ClientSession>) {
    while session.stop.run_until_cancelled(session.roots_changes.notified()).await.is_some() {
        session.stop.run_until_cancelled(session.shared.roots_changed()).await;
    }
}

/// Requests of one client by id: those that run, and those that are queued until fewer run.
#[derive(Debug)]
pub(crate) struct InFlightRequests {
    /// Each with the token that cancels it, and whether it is a subscription, which runs until the client cancels it.
    requests: Mutex<HashMap<RequestId, (CancellationToken, bool)>>,
    limit: usize,
    running: Semaphore,
    max_running: usize,
}

impl InFlightRequests {
    fn new(max_running: usize, max_queued: usize) -> Self {
        let limit = max_running.saturating_add(max_queued);
        let max_running = max_running.min(Semaphore::MAX_PERMITS);
        let running = Semaphore::new(max_running);
        Self { requests: Mutex::default(), limit, running, max_running }
    }

    /// Waits until the request may run. `None` for a request that needs no permit: a ping reaches no server, and
    /// subscriptions would hold their permits forever.
    async fn acquire(&self, method: &str) -> Result<Option<SemaphorePermit<'_>>, JsonRpcError> {
        if method == Method::Ping.as_str() || method == Method::Listen.as_str() {
            return Ok(None);
        }
        match timeout(QUEUE_TIMEOUT, self.running.acquire()).await {
            // The semaphore is never closed, so `ok` hides no error.
            Ok(permit) => Ok(permit.ok()),
            Err(_elapsed) => Err(GatewayErrorData::busy(format!(
                "{} requests are open and none finished within {} s",
                self.max_running,
                QUEUE_TIMEOUT.as_secs()
            ))),
        }
    }

    /// Registers a request under its id. `token` cancels it.
    fn register(
        &self,
        id: &RequestId,
        token: &CancellationToken,
        method: &str,
    ) -> Result<(), JsonRpcError> {
        let mut requests = self.requests.lock();
        let is_full = requests.len() >= self.limit;
        match requests.entry(id.clone()) {
            _ if is_full => {
                let message = format!("too many open requests: the limit is {}", self.limit);
                Err(GatewayErrorData::busy(message))
            }
            Entry::Occupied(_) => Err(invalid_request("the id belongs to an open request")),
            Entry::Vacant(entry) => {
                entry.insert((token.clone(), method == Method::Listen.as_str()));
                Ok(())
            }
        }
    }

    fn cancel(&self, id: &RequestId) {
        // Cancelled without the lock, which the woken task takes to remove its entry.
        let found = self.requests.lock().get(id).cloned();
        found.inspect(|(token, _)| token.cancel());
    }

    pub(crate) fn len(&self) -> usize {
        self.requests.lock().len()
    }

    /// Number of requests that end with a response, other than subscriptions.
    pub(crate) fn n_awaiting_response(&self) -> usize {
        self.requests.lock().values().filter(|(_, is_subscription)| !is_subscription).count()
    }
}

#[cfg(test)]
mod tests {
    use std::hint::spin_loop;
    use std::sync::atomic::AtomicUsize;
    use std::thread;

    use super::*;

    #[test]
    fn id_is_free_again_after_the_response() {
        let in_flight = InFlightRequests::new(1, 1);
        let token = CancellationToken::new();
        let register = |id: u64, method: &str| {
            let registered = in_flight.register(&RequestId::from(id), &token, method);
            registered.map_err(|error| error.code)
        };
        let (listen, call) = ("subscriptions/listen", "tools/call");
        assert_eq!(register(1, listen), Ok(()));
        assert_eq!(register(1, call), Err(-32600));
        assert_eq!(register(2, call), Ok(()));
        assert_eq!((in_flight.len(), in_flight.n_awaiting_response()), (2, 1));
        assert_eq!(register(3, call), Err(-32603), "too many");
        in_flight.requests.lock().remove(&RequestId::from(1));
        assert_eq!((register(1, call), in_flight.n_awaiting_response()), (Ok(()), 2));
        in_flight.cancel(&RequestId::from(7));
        assert!(!token.is_cancelled());
        in_flight.cancel(&RequestId::from(2));
        assert!(token.is_cancelled());
    }

    #[tokio::test(start_paused = true)]
    async fn queued_request_waits_for_a_permit_but_not_forever() {
        let in_flight = InFlightRequests::new(1, 1);
        let first = in_flight.acquire("tools/call").await.unwrap();
        assert!(first.is_some() && in_flight.acquire("ping").await.unwrap().is_none());
        assert!(in_flight.acquire("subscriptions/listen").await.unwrap().is_none());
        let busy = in_flight.acquire("tools/call").await.unwrap_err();
        let data = GatewayErrorData::from_error(&busy).unwrap();
        assert_eq!(data.cause, toolrack_manager::ErrorKind::Busy);
        assert_eq!(data.delivery, toolrack_transport::Delivery::NotSent);
        let (second, ()) = tokio::join!(in_flight.acquire("tools/call"), async { drop(first) });
        assert!(second.unwrap().is_some());
    }

    #[test]
    fn concurrent_requests_cannot_share_an_id() {
        const N_THREADS: usize = 2;
        let (n_ready, token) = (AtomicUsize::new(0), CancellationToken::new());
        let rounds: Vec<InFlightRequests> =
            (0..1_000).map(|_| InFlightRequests::new(1, 0)).collect();
        let id = RequestId::from(1);
        let register_all = || {
            let mut n_registered = 0;
            for (round, in_flight) in rounds.iter().enumerate() {
                // A barrier wakes one thread after the other, and they would never meet.
                n_ready.fetch_add(1, Ordering::AcqRel);
                while n_ready.load(Ordering::Acquire) < (round + 1) * N_THREADS {
                    spin_loop();
                }
                let registered = in_flight.register(&id, &token, "tools/call");
                n_registered += usize::from(registered.is_ok());
            }
            n_registered
        };
        let n_registered: usize = thread::scope(|scope| {
            let threads: Vec<_> = (0..N_THREADS).map(|_| scope.spawn(register_all)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(n_registered, rounds.len());
    }
}
