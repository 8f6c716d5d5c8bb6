//! Server-initiated requests (sampling, elicitation, roots) and log messages: which client gets them, and how.
//!
//! A legacy server sends requests while it works. Over HTTP they arrive on the response stream of our request and so
//! name it. Over stdio they do not say which of our requests they belong to. While the server works for one client
//! only, the answer is clear. So once a server has sent such an unattributed request, the requests of different clients
//! are sent to it one client at a time ([`ServerQueue`]), if any of them supports server requests. A server that never
//! does this is not slowed down. A request that has waited [`MAX_TURN`] proceeds anyway; a server request that is
//! ambiguous then is rejected. A modern server puts its requests into results, which never come here.
//!
//! Roots are different: a legacy server keeps them for all later work, of any client. So they are forwarded only where
//! the gateway serves a single client.
//!
//! **Invariant:** a server request reaches a client only about a request of that client, only from a server in the
//! client's scope, and only with a capability that the client declared.
//! **Invariant:** a server request that names our request belongs to that request, or to none.
//! **Invariant:** an unattributed server request belongs to a client only if no request of another client can have
//! caused it, not even a request cancelled less than [`GRACE`] ago. Otherwise it is [`RequestOwner::Ambiguous`]: it
//! reaches no client, and the server gets an error.
//! **Invariant:** a request whose client has been asked something more than [`GRACE`] ago is no cause of further
//! server requests while others are active: its server waits for that response.
//! **Invariant:** a request waits at most [`MAX_TURN`] for its turn, and never for a person who is being asked.
//! **Invariant:** no client decides on the roots of a server that other clients use too.
//!
//! [`ServerQueue`] is pure: no clock, no waiting. [`ServerRequestRouter`] acts on it.
//!
//! Lock order: `queues` before the locks of an [`ActiveRequest`]. No lock is held across an `await`.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until};
use toolrack_client::{ClientHandler, Limits, RawServerRequest, SamplingError};
use toolrack_mcp::{
    ClientCapabilities, ElicitationCapability, LogLevel, LogMessage, Method, Progress,
    ProgressToken, RootsCapability, SamplingCapability, SamplingParams, SamplingResult,
};
use toolrack_transport::{
    BoxFuture, Delivery, JsonRpcError, RawJson, strip_hidden, strip_hidden_json,
};

use crate::client_session::ClientSession;
use crate::encode::{Outcome, internal_error, into_raw, notification};
use crate::gateway::Scope;
use crate::message_queue::MessageQueue;
use crate::params::ClientInfo;
use crate::question::{QuestionBudgets, Review, declined, is_question, review};
use crate::subscriptions::WeakList;

/// How long an active request delays the requests of other clients. Longer calls are not worth waiting for: at worst
/// the server's own request is rejected.
pub(crate) const MAX_TURN: Duration = Duration::from_secs(5);
/// How long a server may still send requests because of a request that was cancelled, until it has processed the
/// cancellation; also how long it may send a second request along with a first one.
const GRACE: Duration = Duration::from_millis(250);
/// Clients remembered for cancelled requests. Two are enough to tell whether there is one other than a given client.
const MAX_CANCELLED: usize = 2;
/// Unanswered requests of one server. Many clients share it, so the limit is far above that of a single person.
const MAX_SERVER_REQUESTS: usize = 512;

/// Identity of a client, by which its requests are recognized as belonging together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ClientId {
    Number(u64),
    /// Client of another gateway, under the name that this gateway sends.
    Forwarded(Arc<str>),
}

impl ClientId {
    /// Id of a client that connects to this process.
    pub(crate) fn new() -> Self {
        static N_CLIENTS: AtomicU64 = AtomicU64::new(0);
        ClientId::Number(N_CLIENTS.fetch_add(1, Ordering::Relaxed))
    }
}

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientId::Number(number) => write!(f, "{number}"),
            ClientId::Forwarded(name) => f.write_str(name),
        }
    }
}

/// A request that a legacy server sends while it works on a request of a modern client.
#[derive(Debug)]
pub(crate) struct ServerRequest {
    pub(crate) method: String,
    pub(crate) params: Option<RawJson>,
    pub(crate) response: oneshot::Sender<Outcome>,
}

/// Which log messages a client gets.
#[derive(Debug, Clone)]
pub(crate) enum LogFilter {
    /// From the level that the session has set, or else from a default.
    Session(Arc<Mutex<Option<LogLevel>>>),
    /// From the level that the request names, or else none.
    Request(Option<LogLevel>),
}

impl LogFilter {
    /// The lowest level that the client has requested.
    fn lowest(&self) -> Option<LogLevel> {
        match self {
            LogFilter::Session(lowest) => *lowest.lock(),
            LogFilter::Request(lowest) => *lowest,
        }
    }

    /// The lowest level that the client gets. `default_level` applies to sessions that have set none.
    pub(crate) fn lowest_or(&self, default_level: LogLevel) -> Option<LogLevel> {
        let is_session = matches!(self, LogFilter::Session(_));
        self.lowest().or(is_session.then_some(default_level))
    }
}

/// Destination of notifications to a client: those about one request, or those outside of requests. A request that the
/// client repeats gets a new one.
#[derive(Debug, Clone)]
pub(crate) struct NotificationSink {
    pub(crate) queue: Arc<MessageQueue>,
    pub(crate) scope: Arc<Scope>,
    pub(crate) progress_token: Option<ProgressToken>,
    pub(crate) log_filter: LogFilter,
}

impl NotificationSink {
    fn send_log(&self, server: &str, message: &LogMessage, default_level: LogLevel) {
        let lowest = self.log_filter.lowest_or(default_level);
        if self.scope.contains(server) && lowest.is_some_and(|lowest| message.level >= lowest) {
            self.queue.push_lossy(log_notification(server, message, &self.scope));
        }
    }
}

/// Log message of a server. The logger names the server where clients see several.
fn log_notification(server: &str, message: &LogMessage, scope: &Scope) -> Bytes {
    #[derive(Serialize)]
    struct Params<'a> {
        level: LogLevel,
        #[serde(skip_serializing_if = "Option::is_none")]
        logger: Option<String>,
        data: &'a RawValue,
    }
    let logger = match (scope, &message.logger) {
        (Scope::Server(_), logger) => logger.clone(),
        (Scope::All, None) => Some(server.to_owned()),
        (Scope::All, Some(logger)) => Some(format!("{server}/{logger}")),
    };
    let logger = logger.map(|logger| strip_hidden(&logger).into_owned());
    let stripped = strip_hidden_json(message.data.get().as_bytes());
    let stripped = stripped.and_then(|json| serde_json::from_slice::<Box<RawValue>>(&json).ok());
    let data = stripped.as_deref().unwrap_or(&message.data);
    let params = Params { level: message.level, logger, data };
    notification(Method::LogMessage.as_str(), Some(&params))
}

/// How server requests reach the client.
#[derive(Debug)]
pub(crate) enum ClientChannel {
    /// As a JSON-RPC request in its session.
    Session(Arc<ClientSession>),
    /// Through the task that forwards the request, which returns an `input_required` result.
    InputRequired(mpsc::Sender<ServerRequest>),
}

/// A forwarded request while a server works on it.
#[derive(Debug)]
pub(crate) struct ActiveRequest {
    pub(crate) client: Arc<ClientInfo>,
    pub(crate) client_id: ClientId,
    pub(crate) sink: Mutex<NotificationSink>,
    channel: ClientChannel,
    /// Number of server requests that the client has not answered, and when it last rose from zero.
    awaiting: Mutex<(usize, Instant)>,
    /// JSON-RPC id of the request at the server, and its position in the order of all requests sent.
    sent: Mutex<Option<(u64, u64)>>,
    /// Number of questions to the client because of this request.
    n_questions: AtomicU32,
}

/// Counts a server request as unanswered until it is dropped.
struct AwaitingClient<'a>(&'a ActiveRequest);

impl Drop for AwaitingClient<'_> {
    fn drop(&mut self) {
        self.0.awaiting.lock().0 -= 1;
    }
}

impl ActiveRequest {
    pub(crate) fn new(
        (client, client_id): (Arc<ClientInfo>, ClientId),
        sink: NotificationSink,
        channel: ClientChannel,
    ) -> Arc<Self> {
        Arc::new(Self {
            client,
            client_id,
            sink: Mutex::new(sink),
            channel,
            awaiting: Mutex::new((0, Instant::now())),
            sent: Mutex::default(),
            n_questions: AtomicU32::new(0),
        })
    }

    pub(crate) fn sink(&self) -> NotificationSink {
        self.sink.lock().clone()
    }

    /// Records the JSON-RPC id under which the request is sent to the server.
    pub(crate) fn record_sent(&self, id: u64) {
        static N_SENT: AtomicU64 = AtomicU64::new(0);
        *self.sent.lock() = Some((id, N_SENT.fetch_add(1, Ordering::Relaxed)));
    }

    /// Marks the request as waiting for its client until the guard is dropped.
    fn begin_server_request(&self) -> AwaitingClient<'_> {
        let mut awaiting = self.awaiting.lock();
        if awaiting.0 == 0 {
            awaiting.1 = Instant::now();
        }
        awaiting.0 += 1;
        AwaitingClient(self)
    }

    /// Since when the request has been waiting for its client.
    fn awaiting_client_since(&self) -> Option<Instant> {
        let (n_awaiting, since) = *self.awaiting.lock();
        (n_awaiting > 0).then_some(since)
    }

    /// Sends a server request to the client and waits for the response. `None` if it cannot be delivered, or the
    /// client's request ends first.
    async fn send_to_client(&self, method: &str, params: Option<&RawJson>) -> Option<Outcome> {
        match &self.channel {
            ClientChannel::Session(session) => {
                Some(session.send_request(&self.sink().queue, method, params).await)
            }
            ClientChannel::InputRequired(sender) => {
                let (response, received) = oneshot::channel();
                let (method, params) = (method.to_owned(), params.cloned());
                // A full queue and a request that has ended look alike: the router tries another
                // request.
                sender.try_send(ServerRequest { method, params, response }).ok()?;
                received.await.ok()
            }
        }
    }

    /// Forwards progress under the client's own token.
    pub(crate) fn send_progress(&self, progress: &Progress) {
        let NotificationSink { queue, progress_token, .. } = self.sink();
        let Some(progress_token) = progress_token else { return };
        let message = self.client.revision.has_progress_message().then_some(&progress.message);
        let params = ProgressParams {
            progress_token: &progress_token,
            progress: number(progress.progress),
            total: progress.total.map(number),
            message: message.and_then(Option::as_deref).map(strip_hidden),
        };
        queue.push_lossy(notification(Method::Progress.as_str(), Some(&params)));
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ProgressParams<'a> {
    progress_token: &'a ProgressToken,
    progress: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    total: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<Cow<'a, str>>,
}

/// A number that is written without a fraction if it is whole. Most servers count in integers, and some clients parse
/// only those.
fn number(value: f64) -> Value {
    // 2^53: every integer below it is exact in an `f64`.
    const MAX_EXACT: f64 = 9_007_199_254_740_992.0;
    if value.fract() == 0.0 && value.abs() < MAX_EXACT {
        #[expect(clippy::cast_possible_truncation, reason = "whole and small, checked above")]
        return (value as i64).into();
    }
    value.into()
}

/// The requests at one server.
#[derive(Debug, Default)]
struct ServerQueue {
    /// Whether the server has ever sent a request without naming ours. From then on clients take turns.
    sends_unattributed: bool,
    /// Active requests in the order in which they became active, among waiting ones in the order of their arrival.
    entries: Vec<QueueEntry>,
    /// Clients whose requests were cancelled and when, the latest last.
    cancelled: Vec<(ClientId, Instant)>,
    n_tickets: u64,
}

#[derive(Debug, Clone)]
struct QueueEntry {
    ticket: u64,
    request: Arc<ActiveRequest>,
    /// When the request arrived, or became active.
    since: Instant,
    /// Whether the request may be at the server, as opposed to waiting for its turn.
    is_active: bool,
}

impl QueueEntry {
    /// Until when the request delays those of other clients. A person may take minutes to answer, so once the client
    /// is asked only the grace period remains.
    fn blocks_until(&self) -> Instant {
        let asked = self.request.awaiting_client_since().map(|since| since + GRACE);
        // A client that is asked late does not prolong the turn.
        asked.unwrap_or(self.since + MAX_TURN).min(self.since + MAX_TURN)
    }

    /// Whether a server request could reach the wrong one of the two clients. If neither supports server requests,
    /// none can reach either.
    fn could_be_confused_with(&self, other: &ActiveRequest) -> bool {
        let request = &self.request;
        let is_reachable =
            request.client.accepts_server_requests() || other.client.accepts_server_requests();
        request.client_id != other.client_id && is_reachable
    }
}

/// What a server request belongs to.
#[derive(Debug)]
enum RequestOwner {
    Request(Arc<ActiveRequest>),
    /// One of the requests of this client.
    Client(ClientId),
    /// No active request.
    None,
    /// Requests of several clients can have caused it.
    Ambiguous,
}

impl RequestOwner {
    fn includes(&self, request: &Arc<ActiveRequest>) -> bool {
        match self {
            RequestOwner::Request(owner) => Arc::ptr_eq(request, owner),
            RequestOwner::Client(client_id) => request.client_id == *client_id,
            RequestOwner::None | RequestOwner::Ambiguous => false,
        }
    }
}

impl ServerQueue {
    /// Whether the queue equals a new one and need not be kept. A server that sends unattributed requests keeps its
    /// queue, so that clients still take turns.
    fn is_unused(&self) -> bool {
        !self.sends_unattributed && self.entries.is_empty() && self.cancelled.is_empty()
    }

    fn active(&self) -> impl DoubleEndedIterator<Item = &QueueEntry> {
        self.entries.iter().filter(|entry| entry.is_active)
    }

    /// Adds a request and returns its ticket. It is active at once, unless clients take turns.
    fn add(&mut self, request: &Arc<ActiveRequest>, since: Instant) -> u64 {
        self.n_tickets += 1;
        let (ticket, request) = (self.n_tickets, Arc::clone(request));
        let is_active = !self.sends_unattributed;
        self.entries.push(QueueEntry { ticket, request, since, is_active });
        ticket
    }

    /// Until when a request has to wait for its turn, unless a request ahead of it ends before. `None` if it is active
    /// or its turn has come.
    fn wait_until(&self, ticket: u64, now: Instant) -> Option<Instant> {
        let index = self.entries.iter().position(|entry| entry.ticket == ticket)?;
        let own = self.entries.get(index).filter(|own| !own.is_active)?;
        // A client that is being asked may have to call this very server to find its answer, so it does not queue
        // behind requests that wait for it.
        let is_asked = self.active().any(|entry| {
            entry.request.client_id == own.request.client_id
                && entry.request.awaiting_client_since().is_some()
        });
        let n_ahead = if is_asked { 0 } else { index };
        let others = self.entries.iter().enumerate().filter(|(index, entry)| {
            (entry.is_active || *index < n_ahead) && entry.could_be_confused_with(&own.request)
        });
        others.map(|(_, entry)| entry.blocks_until()).filter(|until| *until > now).max()
    }

    /// Makes a request active. Its entry moves behind those that are active already.
    fn activate(&mut self, ticket: u64, now: Instant) {
        if let Some(index) = self.entries.iter().position(|entry| entry.ticket == ticket) {
            let entry = self.entries.remove(index);
            self.entries.push(QueueEntry { since: now, is_active: true, ..entry });
        }
    }

    /// Removes a request that has ended for us. With an unknown delivery the server may still be working on it.
    fn remove(&mut self, ticket: u64, delivery: Delivery, now: Instant) {
        let Some(index) = self.entries.iter().position(|entry| entry.ticket == ticket) else {
            return;
        };
        let QueueEntry { request, is_active, .. } = self.entries.remove(index);
        if is_active && delivery == Delivery::Unknown {
            // One entry per client, with its latest cancellation.
            self.cancelled.retain(|(client_id, since)| {
                *client_id != request.client_id && is_recent(*since, now)
            });
            self.cancelled.push((request.client_id.clone(), now));
            let n_excess = self.cancelled.len().saturating_sub(MAX_CANCELLED);
            self.cancelled.drain(..n_excess);
        }
    }

    /// Decides what a server request belongs to. `about` is the id of our request that it names. If it names none,
    /// requests to this server are serialized from then on.
    fn owner_of_request(&mut self, about: Option<u64>, now: Instant) -> RequestOwner {
        if let Some(id) = about {
            let sent = self.active().filter_map(|entry| {
                let (sent_id, order) = (*entry.request.sent.lock())?;
                (sent_id == id).then_some((order, &entry.request))
            });
            // Ids restart with a new connection, and a request of the old one may still be unwinding: the latest wins.
            let latest = sent.max_by_key(|(order, _)| *order);
            let owner = latest.map(|(_, request)| RequestOwner::Request(Arc::clone(request)));
            return owner.unwrap_or(RequestOwner::None);
        }
        self.sends_unattributed = true;
        self.cancelled.retain(|(_, since)| is_recent(*since, now));
        // A server sends several requests at once, or waits for each response. So a request whose client was asked a
        // while ago is idle at the server, and cannot be the cause while another one is being worked on.
        let is_idle = |entry: &&QueueEntry| {
            entry.request.awaiting_client_since().is_some_and(|since| !is_recent(since, now))
        };
        let (idle, busy): (Vec<&QueueEntry>, Vec<&QueueEntry>) = self.active().partition(is_idle);
        let causes = if busy.is_empty() { idle } else { busy };
        let Some(first) = causes.first().map(|entry| entry.request.client_id.clone()) else {
            return RequestOwner::None;
        };
        let cancelled = self.cancelled.iter().map(|(client_id, _)| client_id);
        let mut clients = causes.iter().map(|entry| &entry.request.client_id).chain(cancelled);
        if clients.all(|client_id| *client_id == first) {
            RequestOwner::Client(first)
        } else {
            RequestOwner::Ambiguous
        }
    }
}

fn is_recent(since: Instant, now: Instant) -> bool {
    now.duration_since(since) < GRACE
}

/// Routes requests and log messages of servers to clients. Pass it to the manager as its handler, and to every gateway
/// in front of that manager.
#[derive(Debug, Default)]
pub struct ServerRequestRouter {
    /// Whether servers get the roots of the client: the gateway serves a single one in its life.
    pub(crate) forwards_roots: bool,
    /// Whether the only server is another gateway, which names its servers and limits their questions itself.
    is_bridge: bool,
    pub(crate) budgets: QuestionBudgets,
    queues: Mutex<HashMap<Box<str>, ServerQueue>>,
    /// Notified when a request leaves a queue or a client is asked: the moments at which a waiting request may get its
    /// turn.
    changes: watch::Sender<()>,
    /// The open legacy sessions.
    pub(crate) sessions: WeakList<ClientSession>,
    /// Clients that get log messages outside of requests.
    pub(crate) log_sinks: WeakList<NotificationSink>,
}

/// Keeps a request in its server's queue until dropped.
pub(crate) struct QueueGuard {
    router: Arc<ServerRequestRouter>,
    server: Box<str>,
    ticket: u64,
    delivery: Delivery,
}

impl QueueGuard {
    /// Ends the request. A guard that is dropped without this call counts as cancelled.
    pub(crate) fn complete(mut self, delivery: Delivery) {
        self.delivery = delivery;
    }
}

impl Drop for QueueGuard {
    fn drop(&mut self) {
        self.router.with_queue(&self.server, |queue| {
            queue.remove(self.ticket, self.delivery, Instant::now());
        });
        // After the queue is unlocked, because every woken task locks it.
        self.router.changes.send_replace(());
    }
}

impl ServerRequestRouter {
    /// Router for a gateway with any number of clients.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Router for a gateway that serves a single client in its life. The servers get the roots of that client.
    pub fn for_one_client() -> Arc<Self> {
        Arc::new(Self { forwards_roots: true, ..Self::default() })
    }

    /// Router for a gateway that serves a single client in its life and has another gateway as its only server. That
    /// gateway names its servers in their questions, and limits how many they ask.
    pub fn for_bridge() -> Arc<Self> {
        Arc::new(Self { forwards_roots: true, is_bridge: true, ..Self::default() })
    }

    /// The name under which the questions of a server are shown. `None` if they name their server already.
    pub(crate) fn shown_name<'a>(&self, server: &'a str) -> Option<&'a str> {
        (!self.is_bridge).then_some(server)
    }

    /// Takes questions out of the budget of a server, or says why they are not forwarded.
    pub(crate) fn take_budget(
        &self,
        server: &str,
        request: &ActiveRequest,
        n_questions: u32,
    ) -> Result<(), JsonRpcError> {
        if self.is_bridge || n_questions == 0 {
            return Ok(());
        }
        self.budgets.take(server, n_questions, &request.n_questions)
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
    ) -> QueueGuard {
        let deadline = Instant::now() + max_wait;
        let ticket = self.with_queue(server, |queue| queue.add(request, Instant::now()));
        // No `await` between ticket and guard: a future dropped there would leave the request queued forever.
        let (router, delivery) = (Arc::clone(self), Delivery::Unknown);
        let guard = QueueGuard { router, server: server.into(), ticket, delivery };
        loop {
            // Subscribed before the check, so that a change between check and wait is not missed.
            let mut changes = self.changes.subscribe();
            // Checked and activated under one lock: a request behind this one always sees it waiting or active.
            let wait_until = self.with_queue(server, |queue| {
                let now = Instant::now();
                let until = queue.wait_until(ticket, now).map(|until| until.min(deadline));
                let until = until.filter(|until| *until > now);
                if until.is_none() {
                    queue.activate(ticket, now);
                }
                until
            });
            let Some(until) = wait_until else { return guard };
            tokio::select! {
                _changed = changes.changed() => {}
                () = sleep_until(until) => {}
            }
        }
    }

    /// Forgets cancelled requests of a server that was restarted: its new process knows nothing of them. That the
    /// server sends unattributed requests stays true.
    pub(crate) fn server_restarted(&self, server: &str) {
        self.with_queue(server, |queue| queue.cancelled.clear());
    }

    /// Runs `action` on the queue of a server. A queue without state is removed, so that the map does not grow with
    /// every server that was ever used.
    fn with_queue<T>(&self, server: &str, action: impl FnOnce(&mut ServerQueue) -> T) -> T {
        let mut queues = self.queues.lock();
        let found = queues.remove_entry(server);
        let (server, mut queue) = found.unwrap_or_else(|| (server.into(), ServerQueue::default()));
        let value = action(&mut queue);
        if !queue.is_unused() {
            queues.insert(server, queue);
        }
        value
    }

    /// The active requests at a server, the newest first.
    fn active_requests(&self, server: &str) -> Vec<Arc<ActiveRequest>> {
        let queues = self.queues.lock();
        let active = queues.get(server).into_iter().flat_map(|queue| queue.active().rev());
        active.map(|entry| Arc::clone(&entry.request)).collect()
    }

    /// The active requests through which a server request can reach its owner, the newest first.
    fn candidates(
        &self,
        server: &str,
        owner: &RequestOwner,
        (method, params): (&str, Option<&RawJson>),
    ) -> Vec<Arc<ActiveRequest>> {
        let mut requests = self.active_requests(server);
        requests
            .retain(|request| owner.includes(request) && request.client.supports(method, params));
        requests
    }

    /// The lowest log level that any client has requested.
    pub(crate) fn lowest_log_level(&self) -> Option<LogLevel> {
        self.log_sinks.to_vec().iter().filter_map(|sink| sink.log_filter.lowest()).min()
    }

    /// Sends a server request to its owner. If the client request that carries it ends first, the server request was
    /// about another request of the same client, which carries it next.
    async fn forward(
        &self,
        server: &str,
        owner: &RequestOwner,
        server_request: (&str, Option<&RawJson>),
    ) -> Outcome {
        let mut tried: Vec<Arc<ActiveRequest>> = Vec::new();
        loop {
            let candidates = self.candidates(server, owner, server_request);
            let is_untried = |candidate: &Arc<ActiveRequest>| {
                !tried.iter().any(|tried| Arc::ptr_eq(tried, candidate))
            };
            let Some(request) = candidates.into_iter().find(is_untried) else {
                return Err(internal_error("the client is gone"));
            };
            // Requests of other clients do not wait for a person (`QueueEntry::blocks_until`), so they are woken as
            // soon as this client counts as asked.
            let awaiting = request.begin_server_request();
            self.changes.send_replace(());
            // Biased to the response: a client that responds and finishes at once has still responded.
            let response = tokio::select! {
                biased;
                response = request.send_to_client(server_request.0, server_request.1) => response,
                () = self.owner_left(server, owner) => None,
            };
            drop(awaiting);
            match response {
                Some(outcome) => return outcome,
                None => tried.push(request),
            }
        }
    }

    /// Waits until no active request at the server belongs to the owner.
    async fn owner_left(&self, server: &str, owner: &RequestOwner) {
        let is_left = |_change: &()| {
            !self.active_requests(server).iter().any(|request| owner.includes(request))
        };
        drop(self.changes.subscribe().wait_for(is_left).await);
    }
}

impl ClientHandler for ServerRequestRouter {
    fn capabilities(&self) -> ClientCapabilities {
        ClientCapabilities {
            roots: self.forwards_roots.then_some(RootsCapability { list_changed: true }),
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
        if is_roots && !self.forwards_roots {
            return None;
        }
        // Decided now and not in the future: the cause may have ended by the time the future is polled.
        let owner = self
            .with_queue(server, |queue| queue.owner_of_request(related_request, Instant::now()));
        if let RequestOwner::Ambiguous = owner {
            return Some(Box::pin(async {
                Err(internal_error(
                    "the server is working for several clients and does not say which one its \
                     request is for, so no client was asked; retrying the call may succeed",
                ))
            }));
        }
        let params = match review(method, params, self.shown_name(server)) {
            Ok(Review::Forward(params)) => params,
            Ok(Review::Decline(problem)) => {
                self.budgets.record_refused_url(server, problem);
                return Some(Box::pin(async { Ok(declined()) }));
            }
            Err(error) => return Some(Box::pin(async { Err(error) })),
        };
        let candidates = self.candidates(server, &owner, (method, params.as_ref()));
        if let Some(request) = candidates.first() {
            if is_question(method)
                && let Err(error) = self.take_budget(server, request, 1)
            {
                return Some(Box::pin(async { Err(error) }));
            }
            return Some(Box::pin(async move {
                into_raw(self.forward(server, &owner, (method, params.as_ref())).await)
            }));
        }
        // `None` passes the request on to the typed methods, which refuse it.
        if !is_roots {
            return None;
        }
        // The only client, also while it has no request at this server.
        let session = self.sessions.to_vec().into_iter().rev().find(|session| {
            session.shared.scope.contains(server)
                && session.client().is_some_and(|client| client.supports(method, None))
        })?;
        Some(Box::pin(
            async move { into_raw(session.send_request(&session.queue, method, None).await) },
        ))
    }

    fn sample<'a>(
        &'a self,
        _server: &'a str,
        _params: SamplingParams,
    ) -> BoxFuture<'a, Result<SamplingResult, SamplingError>> {
        let message = "no client that supports sampling is using this server".to_owned();
        Box::pin(async { Err(SamplingError::Failed(message)) })
    }

    fn log_from(&self, server: &str, message: &LogMessage) {
        let requests = self.active_requests(server);
        // A level that one client set makes a legacy server verbose for all of them. Clients that set none then get
        // only the usual levels.
        let default_level =
            if self.lowest_log_level().is_some() { LogLevel::Info } else { LogLevel::Debug };
        for request in &requests {
            request.sink().send_log(server, message, default_level);
        }
        if requests.is_empty() {
            for sink in self.log_sinks.to_vec() {
                sink.send_log(server, message, default_level);
            }
        }
    }
}

#[cfg(test)]
mod tests;
