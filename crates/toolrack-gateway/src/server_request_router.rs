//! Routes server-initiated requests (sampling, elicitation, roots) and log messages to clients.
//!
//! A legacy server sends requests while it works. Over HTTP they arrive on the response stream of our request and so
//! name it; over stdio they do not, and [`ServerQueue`] decides which client can be meant. A modern server puts its
//! requests into results, which never come here.
//!
//! Roots are different: a legacy server keeps them for all later work, of any client. So they are forwarded only where
//! the gateway serves a single client.
//!
//! **Invariant:** a server request reaches a client only about a request of that client, only from a server in the
//! client's scope, and only with a capability that the client declared.
//! **Invariant:** an ambiguous server request reaches no client; the server gets an error.
//! **Invariant:** no client decides on the roots of a server that other clients use too.
//!
//! Lock order: `queues` before the locks of an [`ActiveRequest`]. No lock is held across an `await`.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::value::RawValue;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use toolrack_client::{ClientHandler, Limits, RawServerRequest, SamplingError};
use toolrack_mcp::{
    ClientCapabilities, Elicitation, ElicitationCapability, ElicitationResult, LogLevel,
    LogMessage, Method, Root, RootsCapability, SamplingCapability, SamplingParams, SamplingResult,
};
use toolrack_transport::BoxFuture;
use toolrack_transport::{JsonRpcError, RawJson};

use crate::active_request::{ActiveRequest, ClientId};
use crate::client_session::ClientSession;
use crate::encode::{Outcome, internal_error};
use crate::server_request_owner::{Completion, RequestOwner, ServerQueue, Turn};
use crate::subscriptions::LogSubscriber;

/// Unanswered requests of one server. Many clients share it, so the limit is far above that of a single person.
const MAX_SERVER_REQUESTS: usize = 512;

/// Routes requests and log messages of servers to clients. Pass it to the manager as its handler, and to every gateway
/// in front of that manager.
#[derive(Default)]
pub struct ServerRequestRouter {
    clients: Clients,
    queues: Mutex<HashMap<Box<str>, ServerQueue>>,
    /// Changes when a request leaves a queue or a client is asked: the moments at which a waiting request may get its
    /// turn.
    changes: watch::Sender<u64>,
    sessions: Mutex<Vec<Weak<ClientSession>>>,
    log_subscribers: Mutex<Vec<Weak<LogSubscriber>>>,
    fallback: Option<Arc<dyn ClientHandler>>,
}

/// How many clients the gateway serves in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Clients {
    #[default]
    Many,
    One,
}

/// Keeps a request active in its server's queue until dropped.
#[derive(Debug)]
pub(crate) struct ActiveGuard {
    router: Arc<ServerRequestRouter>,
    server: Box<str>,
    request: Arc<ActiveRequest>,
    completion: Completion,
}

/// Keeps a request waiting in its server's queue until dropped.
struct QueueGuard<'a> {
    router: &'a ServerRequestRouter,
    server: &'a str,
    ticket: u64,
}

impl ServerRequestRouter {
    /// Router for a gateway with any number of clients.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Router for a gateway that serves a single client in its life. The servers get the roots of that client.
    pub fn for_one_client() -> Arc<Self> {
        Arc::new(Self { clients: Clients::One, ..Self::default() })
    }

    /// Router with a handler for server requests that reach no client.
    pub fn with_fallback(fallback: Arc<dyn ClientHandler>) -> Arc<Self> {
        Arc::new(Self { fallback: Some(fallback), ..Self::default() })
    }

    /// Limits for the manager behind a gateway. Its servers send requests to many clients instead of one person, so
    /// more of them may be unanswered.
    pub fn limits() -> Limits {
        Limits {
            server_requests: MAX_SERVER_REQUESTS,
            user_requests: MAX_SERVER_REQUESTS,
            ..Limits::default()
        }
    }

    /// Makes a request active at a server once it is its client's turn, and after `max_wait` at the latest.
    pub(crate) async fn begin(
        self: &Arc<Self>,
        server: &str,
        request: &Arc<ActiveRequest>,
        max_wait: Duration,
    ) -> ActiveGuard {
        let now = Instant::now();
        // Checked and started under one lock, so that the server cannot begin to take turns in between.
        let start_if_free = |queue: &mut ServerQueue| {
            let is_free = !queue.takes_turns();
            if is_free {
                queue.start(request, now);
            }
            is_free
        };
        if !self.with_queue(server, start_if_free) {
            self.wait_for_turn(server, request, (now, max_wait)).await;
        }
        // No `await` between start and guard: a future dropped there would leave the request active forever.
        let (router, request) = (Arc::clone(self), Arc::clone(request));
        ActiveGuard { router, server: server.into(), request, completion: Completion::Unknown }
    }

    async fn wait_for_turn(
        &self,
        server: &str,
        request: &Arc<ActiveRequest>,
        (now, max_wait): (Instant, Duration),
    ) {
        let ticket = self.with_queue(server, |queue| queue.enqueue(request, now));
        let _waiting = QueueGuard { router: self, server, ticket };
        loop {
            // Subscribed before the check, so that a change between check and wait is not missed.
            let mut changes = self.changes.subscribe();
            let turn = self.with_queue(server, |queue| queue.turn(ticket, Instant::now()));
            let Turn::WaitUntil(until) = turn else { break };
            let until = until.min(now + max_wait);
            if Instant::now() >= until {
                break;
            }
            tokio::select! {
                _changed = changes.changed() => {}
                () = sleep_until(until) => {}
            }
        }
        // Started before the ticket is removed: a request behind this one always sees one of the two.
        self.with_queue(server, |queue| queue.start(request, Instant::now()));
    }

    /// Forgets cancelled requests of a server that was restarted.
    pub(crate) fn server_restarted(&self, server: &str) {
        self.with_queue(server, ServerQueue::server_restarted);
    }

    /// Runs `action` on the queue of a server. A queue without state is removed, so that the map does not grow with
    /// every server that was ever used.
    fn with_queue<T>(&self, server: &str, action: impl FnOnce(&mut ServerQueue) -> T) -> T {
        let mut queues = self.queues.lock();
        if let Some(queue) = queues.get_mut(server) {
            let value = action(queue);
            if queue.is_unused() {
                queues.remove(server);
            }
            return value;
        }
        let mut queue = ServerQueue::default();
        let value = action(&mut queue);
        if !queue.is_unused() {
            queues.insert(server.into(), queue);
        }
        value
    }

    /// Registers a legacy session until it is dropped.
    pub(crate) fn add_session(&self, session: &Arc<ClientSession>) {
        let mut sessions = self.sessions.lock();
        sessions.retain(|session| session.strong_count() > 0);
        sessions.push(Arc::downgrade(session));
    }

    /// Whether servers get the roots of the client.
    pub(crate) fn forwards_roots(&self) -> bool {
        self.clients == Clients::One
    }

    fn active_requests(&self, server: &str) -> Vec<Arc<ActiveRequest>> {
        self.queues.lock().get(server).map(ServerQueue::active).unwrap_or_default()
    }

    /// The active requests through which a server request can reach its recipient, the newest first.
    fn candidates(
        &self,
        server: &str,
        recipient: &Recipient,
        (method, params): (&str, Option<&RawJson>),
    ) -> Vec<Arc<ActiveRequest>> {
        let is_candidate = |request: &Arc<ActiveRequest>| {
            recipient.includes(request) && request.client.supports(method, params)
        };
        self.active_requests(server).into_iter().rev().filter(is_candidate).collect()
    }

    /// The open legacy sessions, the newest first.
    fn sessions(&self) -> Vec<Arc<ClientSession>> {
        self.sessions.lock().iter().rev().filter_map(Weak::upgrade).collect()
    }

    /// The lowest log level that any client has requested.
    pub(crate) fn lowest_log_level(&self) -> Option<LogLevel> {
        let (sessions, subscribers) = (self.sessions(), self.log_subscribers());
        let set = sessions.iter().filter_map(|session| *session.log_level().lock());
        set.chain(subscribers.iter().map(|subscriber| subscriber.level)).min()
    }

    /// Registers a subscriber for log messages outside of requests, until it is dropped.
    pub(crate) fn add_log_subscriber(&self, subscriber: &Arc<LogSubscriber>) {
        let mut subscribers = self.log_subscribers.lock();
        subscribers.retain(|subscriber| subscriber.strong_count() > 0);
        subscribers.push(Arc::downgrade(subscriber));
    }

    fn log_subscribers(&self) -> Vec<Arc<LogSubscriber>> {
        self.log_subscribers.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// Sends a server request to its recipient. If the client request that carries it ends first, the server request
    /// was about another request of the same client, which carries it next.
    async fn forward(
        &self,
        server: &str,
        recipient: &Recipient,
        server_request: (&str, Option<&RawJson>),
    ) -> Outcome {
        let mut tried: Vec<Arc<ActiveRequest>> = Vec::new();
        loop {
            let candidates = self.candidates(server, recipient, server_request);
            let is_untried = |candidate: &&Arc<ActiveRequest>| {
                !tried.iter().any(|tried| Arc::ptr_eq(tried, candidate))
            };
            let Some(request) = candidates.iter().find(is_untried) else {
                return Err(internal_error("the client is gone"));
            };
            // Requests of other clients do not wait for a person (`QueueEntry::blocks_until`), so they are woken as
            // soon as this client counts as asked.
            let _awaiting = request.begin_server_request();
            self.notify();
            // Biased to the response: a client that responds and finishes at once has still responded.
            let response = tokio::select! {
                biased;
                response = request.send_to_client(server_request.0, server_request.1) => response,
                () = self.recipient_left(server, recipient) => None,
            };
            match response {
                Some(outcome) => return outcome,
                None => tried.push(Arc::clone(request)),
            }
        }
    }

    fn notify(&self) {
        self.changes.send_modify(|version| *version = version.wrapping_add(1));
    }

    /// Waits until no active request at the server belongs to the recipient.
    async fn recipient_left(&self, server: &str, recipient: &Recipient) {
        loop {
            // Subscribed before the check, as in `wait_for_turn`.
            let mut changes = self.changes.subscribe();
            let is_there =
                self.active_requests(server).iter().any(|request| recipient.includes(request));
            if !is_there || changes.changed().await.is_err() {
                return;
            }
        }
    }
}

impl ActiveGuard {
    /// Ends the request with its completion. A guard that is dropped without it counts as cancelled.
    pub(crate) fn complete(mut self, completion: Completion) {
        self.completion = completion;
    }
}

impl Drop for ActiveGuard {
    fn drop(&mut self) {
        self.router.with_queue(&self.server, |queue| {
            queue.finish(&self.request, self.completion, Instant::now());
        });
        // After the queue is unlocked, because every woken task locks it.
        self.router.notify();
    }
}

impl Drop for QueueGuard<'_> {
    fn drop(&mut self) {
        self.router.with_queue(self.server, |queue| queue.dequeue(self.ticket));
        // Requests behind this one may have waited only for it.
        self.router.notify();
    }
}

/// Whom a server request is for.
enum Recipient {
    /// The client of this request.
    Request(Arc<ActiveRequest>),
    /// This client, through any of its requests.
    Client(ClientId),
}

impl Recipient {
    fn includes(&self, request: &Arc<ActiveRequest>) -> bool {
        match self {
            Recipient::Request(recipient) => Arc::ptr_eq(request, recipient),
            Recipient::Client(client_id) => request.client_id == *client_id,
        }
    }
}

/// Error for a server request that requests of several clients can have caused.
fn ambiguous() -> JsonRpcError {
    internal_error(
        "the server is working for several clients and does not say which one its request is for, \
         so no client was asked; retrying the call may succeed",
    )
}

fn into_raw(outcome: Outcome) -> Result<Box<RawValue>, JsonRpcError> {
    let raw = outcome?;
    let checked = raw.as_raw_value().map(ToOwned::to_owned);
    checked.map_err(|_error| internal_error("the client's response is not valid JSON"))
}

impl ClientHandler for ServerRequestRouter {
    fn capabilities(&self) -> ClientCapabilities {
        let own = self.fallback.as_ref().and_then(|fallback| fallback.capabilities().roots);
        let forwarded = self.forwards_roots().then_some(RootsCapability { list_changed: true });
        ClientCapabilities {
            roots: forwarded.or(own),
            // Declared before any client is known. A request that no client supports gets an error.
            sampling: Some(SamplingCapability { tools: true, context: true }),
            elicitation: Some(ElicitationCapability { form: true, url: true }),
            ..ClientCapabilities::default()
        }
    }

    fn forward_request<'a>(
        &'a self,
        server: &'a str,
        server_request: RawServerRequest<'a>,
    ) -> Option<BoxFuture<'a, Result<Box<RawValue>, JsonRpcError>>> {
        let RawServerRequest { method, params, related_request } = server_request;
        let is_roots = method == Method::ListRoots.as_str();
        if is_roots && !self.forwards_roots() {
            return None;
        }
        // Decided now and not in the future: the cause may have ended by the time the future is polled.
        let owner = self
            .with_queue(server, |queue| queue.owner_of_request(related_request, Instant::now()));
        let recipient = match owner {
            RequestOwner::Request(request) => Some(Recipient::Request(request)),
            RequestOwner::Client(client_id) => Some(Recipient::Client(client_id)),
            RequestOwner::None => None,
            RequestOwner::Ambiguous => return Some(Box::pin(async { Err(ambiguous()) })),
        };
        let request = (method, params);
        let is_reachable =
            |recipient: &Recipient| !self.candidates(server, recipient, request).is_empty();
        if let Some(recipient) = recipient.filter(is_reachable) {
            return Some(Box::pin(async move {
                into_raw(self.forward(server, &recipient, request).await)
            }));
        }
        // `None` passes the request on to the typed methods below, which use the fallback.
        if !is_roots {
            return None;
        }
        // The only client, also while it has no request at this server.
        let mut sessions = self.sessions().into_iter();
        let session =
            sessions.find(|session| session.can_see(server) && session.supports(method))?;
        Some(Box::pin(async move {
            into_raw(session.send_request(session.queue(), method, None).await)
        }))
    }

    fn elicit<'a>(
        &'a self,
        server: &'a str,
        server_request: Elicitation,
    ) -> BoxFuture<'a, ElicitationResult> {
        match &self.fallback {
            Some(fallback) => fallback.elicit(server, server_request),
            // No user saw it, so it is cancelled and not declined.
            None => Box::pin(async { ElicitationResult::Cancel }),
        }
    }

    fn sample<'a>(
        &'a self,
        server: &'a str,
        params: SamplingParams,
    ) -> BoxFuture<'a, Result<SamplingResult, SamplingError>> {
        match &self.fallback {
            Some(fallback) => fallback.sample(server, params),
            None => Box::pin(async {
                Err(SamplingError::Failed(
                    "no client that supports sampling is using this server".to_owned(),
                ))
            }),
        }
    }

    fn roots<'a>(&'a self, server: &'a str) -> BoxFuture<'a, Vec<Root>> {
        match &self.fallback {
            Some(fallback) => fallback.roots(server),
            None => Box::pin(async { Vec::new() }),
        }
    }

    fn log_from(&self, server: &str, message: &LogMessage) {
        let requests = self.active_requests(server);
        // A level that one client set makes a legacy server verbose for all of them. Clients that set none then get
        // only the usual levels.
        let default_level =
            if self.lowest_log_level().is_some() { LogLevel::Info } else { LogLevel::Debug };
        for request in &requests {
            request.send_log(server, message, default_level);
        }
        if requests.is_empty() {
            for session in self.sessions().iter().filter(|session| session.can_see(server)) {
                session.send_log(server, message, default_level);
            }
            for subscriber in self.log_subscribers() {
                subscriber.send(server, message);
            }
        }
        if let Some(fallback) = &self.fallback {
            fallback.log_from(server, message);
        }
    }
}

impl fmt::Debug for ServerRequestRouter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerRequestRouter")
            .field("servers", &self.queues.lock().len())
            .field("sessions", &self.sessions.lock().len())
            .finish_non_exhaustive()
    }
}
