//! Where a transport puts what its server says unasked, sorted by who needs it.
//!
//! Progress goes to the call it is related_request, changes raise a counter, events go to listeners, and what has
//! to be answered waits in a short queue for the client's own task.
//!
//! **Invariant:** nothing here waits, answers or decides; it runs in whichever task received the message.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use tokio::sync::Notify;
use toolrack_mcp::{
    Cancelled, ListKind, LogMessage, Method, Progress, ServerNotification, SubscriptionFilter,
    Token, subscription_id,
};
use toolrack_transport::{Ending, Inbox, Line, RawJson, RequestId};

use crate::event::{Event, EventSender};
use crate::progress::ProgressRoutes;
use crate::server_requests::ClientHandler;
use crate::session::lock;
use crate::subscriptions::Subscriptions;

/// Requests of the server that wait for the client's task, which takes them without waiting itself. When
/// it is full, a server is flooding us: what comes is dropped and counted.
const CAPACITY: usize = 256;

/// Pages that the user was sent to and whose end may still be told. The oldest goes when it is full.
const MAX_OPEN_URLS: usize = 64;

/// The inbox of one transport.
#[derive(Default)]
pub(crate) struct IncomingRouter {
    transport: OnceLock<Weak<dyn Line>>,
    phase: AtomicU8,
    requests: Mutex<VecDeque<IncomingRequest>>,
    /// Rung when there is something for the client's task.
    pub(crate) wakeup: Notify,
    /// A transport came that is no message.
    saw_noise: AtomicBool,
    /// One of our own requests came back.
    saw_echo: AtomicBool,
    /// How often each list has changed.
    changes: [AtomicU64; 3],
    /// How often the server has forgotten us.
    session_renewals: AtomicU64,
    /// Requests of the server that were not answered, because they must not be or there were too many.
    ignored: AtomicU64,
    /// The open_urls that the user was sent to, as the server named them.
    open_urls: Mutex<Vec<String>>,
    pub(crate) progress: ProgressRoutes,
    pub(crate) subscriptions: Subscriptions,
    pub(crate) events: EventSender,
    server: Box<str>,
    handler: Option<Arc<dyn ClientHandler>>,
}

/// Something for the client's task.
#[derive(Debug)]
pub(crate) enum IncomingRequest {
    /// The server asks; related_request which of our requests, if that is known.
    Request { id: RequestId, method: String, params: Option<RawJson>, related_request: Option<u64> },
    /// The server no longer wants the answer.
    Cancelled(RequestId),
}

/// How far the conversation has come, which says what may be taken from the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum ProtocolPhase {
    /// The era is not known: everything unasked is ignored.
    Probing = 0,
    /// From `initialize` on.
    Legacy = 1,
    /// The server must not ask.
    Modern = 2,
}

impl IncomingRouter {
    pub(crate) fn new(server: &str, handler: Option<Arc<dyn ClientHandler>>) -> Self {
        Self { server: server.into(), handler, ..Self::default() }
    }

    /// Tells the inbox which transport it belongs to, for renewing patience.
    pub(crate) fn set_transport(&self, transport: &Arc<dyn Line>) {
        self.transport.get_or_init(|| Arc::downgrade(transport));
    }

    pub(crate) fn set_phase(&self, phase: ProtocolPhase) {
        self.phase.store(phase as u8, Ordering::Release);
    }

    pub(crate) fn next_request(&self) -> Option<IncomingRequest> {
        let mut requests = lock(&self.requests);
        let next = requests.pop_front();
        if requests.is_empty() {
            // An idle connection holds no buffer.
            *requests = VecDeque::new();
        }
        next
    }

    /// Takes the pings out of the queue, which may be answered before anything else.
    pub(crate) fn take_pings(&self) -> Vec<RequestId> {
        let mut pings = Vec::new();
        lock(&self.requests).retain(|request| match request {
            IncomingRequest::Request { id, method, .. } if method == Method::Ping.as_str() => {
                pings.push(id.clone());
                false
            }
            _ => true,
        });
        pings
    }

    pub(crate) fn saw_echo(&self) -> bool {
        self.saw_echo.load(Ordering::Acquire)
    }

    pub(crate) fn saw_noise(&self) -> bool {
        self.saw_noise.load(Ordering::Acquire)
    }

    /// How often the server has said that a list changed.
    pub(crate) fn changes(&self, kind: ListKind) -> u64 {
        self.counter(kind).load(Ordering::Acquire)
    }

    /// How often the transport has begun a new session.
    pub(crate) fn session_renewals(&self) -> u64 {
        self.session_renewals.load(Ordering::Acquire)
    }

    /// Nobody has told of changes for a while, so everything `missed` speaks of may be another now.
    pub(crate) fn mark_missed(&self, missed: &SubscriptionFilter) {
        let lists = [
            (missed.tools_list_changed, ListKind::Tools),
            (missed.prompts_list_changed, ListKind::Prompts),
            (missed.resources_list_changed, ListKind::Resources),
        ];
        for (_, kind) in lists.into_iter().filter(|(is_missed, _)| *is_missed) {
            self.on_list_changed(kind);
        }
        for uri in &missed.resource_subscriptions {
            self.events.emit(Event::ResourceUpdated { uri: uri.clone() });
        }
    }

    pub(crate) fn ignored(&self) -> u64 {
        self.ignored.load(Ordering::Relaxed)
    }

    /// The user has agreed to open a page.
    pub(crate) fn url_opened(&self, id: String) {
        let mut open_urls = lock(&self.open_urls);
        if open_urls.len() >= MAX_OPEN_URLS {
            open_urls.remove(0);
        }
        open_urls.push(id);
    }

    fn enqueue(&self, request: IncomingRequest) {
        let mut requests = lock(&self.requests);
        if requests.len() >= CAPACITY {
            drop(requests);
            self.ignore("too many requests are waiting");
            return;
        }
        requests.push_back(request);
        drop(requests);
        self.wakeup.notify_one();
    }

    fn ignore(&self, reason: &str) {
        self.ignored.fetch_add(1, Ordering::Relaxed);
        tracing::debug!(reason, "a request of the server was ignored");
    }

    fn counter(&self, kind: ListKind) -> &AtomicU64 {
        let [tools, prompts, resources] = &self.changes;
        match kind {
            ListKind::Tools => tools,
            ListKind::Prompts => prompts,
            ListKind::Resources => resources,
        }
    }

    fn on_list_changed(&self, kind: ListKind) {
        self.counter(kind).fetch_add(1, Ordering::Release);
        match kind {
            // The client's task fetches them first and then tells.
            ListKind::Tools => self.wakeup.notify_one(),
            ListKind::Prompts => self.events.emit(Event::PromptsChanged),
            ListKind::Resources => self.events.emit(Event::ResourcesChanged),
        }
    }

    /// Spec 2026-07-28, progress: tokens that nobody waits for are ignored.
    fn on_progress(&self, progress: Progress) {
        let Token::Integer(token) = progress.token else { return };
        let Ok(id) = u64::try_from(token) else { return };
        if let Some(transport) = self.transport.get().and_then(Weak::upgrade) {
            transport.touch(id);
        }
        if !self.progress.is_empty() {
            self.progress.report(id, progress);
        }
    }

    /// The program's own code runs here in a task that serves others too, and must survive it.
    fn forward_log(&self, message: &LogMessage) {
        let Some(handler) = &self.handler else { return };
        if catch_unwind(AssertUnwindSafe(|| handler.log_from(&self.server, message))).is_err() {
            tracing::error!("the program crashed over a log message");
        }
    }

    /// Legacy: the server takes back a request. Modern: it ends a subscription, and nothing else.
    fn on_cancelled(&self, cancelled: Cancelled) {
        let Some(id) = cancelled.request_id else { return };
        if self.is_modern() {
            self.subscriptions.on_cancelled(&id);
        } else {
            self.enqueue(IncomingRequest::Cancelled(request_id(id)));
        }
    }

    fn is_modern(&self) -> bool {
        self.phase.load(Ordering::Acquire) == ProtocolPhase::Modern as u8
    }

    fn is_probing(&self) -> bool {
        self.phase.load(Ordering::Acquire) == ProtocolPhase::Probing as u8
    }

    /// Spec 2025-11-25, elicitation §URL mode: open_urls that are unknown or done are ignored.
    fn url_completed(&self, id: String) {
        let mut open_urls = lock(&self.open_urls);
        let Some(index) = open_urls.iter().position(|open| *open == id) else { return };
        open_urls.swap_remove(index);
        drop(open_urls);
        self.events.emit(Event::ElicitationComplete { id });
    }
}

impl IncomingRouter {
    fn on_request(
        &self,
        related_request: Option<u64>,
        id: RequestId,
        method: &str,
        params: Option<RawJson>,
    ) {
        // No server asks these: our own words have come back.
        if matches!(Method::parse(method), Some(Method::Initialize | Method::Discover)) {
            self.saw_echo.store(true, Ordering::Release);
            self.wakeup.notify_one();
        }
        if self.is_probing() {
            self.ignore("the era is not known yet");
        } else if self.is_modern() {
            // Spec 2026-07-28, basic §Responses: clients never answer, and servers never ask.
            self.ignore("servers do not ask in this era");
        } else {
            self.enqueue(IncomingRequest::Request {
                id,
                method: method.to_owned(),
                params,
                related_request,
            });
        }
    }
}

impl Inbox for IncomingRouter {
    fn request(&self, id: RequestId, method: &str, params: Option<RawJson>) {
        self.on_request(None, id, method, params);
    }

    fn request_about(
        &self,
        related_request: u64,
        id: RequestId,
        method: &str,
        params: Option<RawJson>,
    ) {
        self.on_request(Some(related_request), id, method, params);
    }

    fn notification(&self, method: &str, params: Option<RawJson>) {
        if self.is_probing() {
            return;
        }
        let params = params.as_ref().map_or(&b""[..], RawJson::as_bytes);
        let notification = match ServerNotification::parse(method, params) {
            Ok(notification) => notification,
            Err(error) => {
                tracing::debug!(method, %error, "a notification could not be read");
                return;
            }
        };
        match notification {
            ServerNotification::Progress(progress) => return self.on_progress(progress),
            ServerNotification::LogMessage(message) => {
                self.forward_log(&message);
                return self.events.emit(Event::Log(message));
            }
            ServerNotification::Cancelled(cancelled) => return self.on_cancelled(cancelled),
            _ => {}
        }
        // Spec 2026-07-28, subscriptions §Demultiplexing: what names a subscription that is not open
        // is for nobody.
        let subscription = subscription_id(params);
        if subscription.as_ref().is_some_and(|id| !self.subscriptions.contains(id)) {
            return;
        }
        match notification {
            ServerNotification::ListChanged(kind) => self.on_list_changed(kind),
            ServerNotification::ResourceUpdated(updated) => {
                self.events.emit(Event::ResourceUpdated { uri: updated.uri });
            }
            ServerNotification::ElicitationComplete(complete) => {
                self.url_completed(complete.elicitation_id);
            }
            ServerNotification::SubscriptionAcknowledged(acknowledged) => {
                let granted = acknowledged.notifications;
                let missed =
                    subscription.and_then(|id| self.subscriptions.on_acknowledged(&id, granted));
                if let Some(missed) = missed {
                    self.mark_missed(&missed);
                }
            }
            _ => tracing::trace!(method, "a notification of no use"),
        }
    }

    fn unreadable(&self, sample: &str) {
        tracing::debug!(sample, "line is not a message");
        self.saw_noise.store(true, Ordering::Release);
        self.wakeup.notify_one();
    }

    fn renewed(&self) {
        self.session_renewals.fetch_add(1, Ordering::Release);
        self.wakeup.notify_one();
    }

    fn ended(&self, ending: &Ending) {
        self.events.close(ending);
        self.wakeup.notify_one();
    }
}

fn request_id(token: Token) -> RequestId {
    match token {
        Token::Integer(number) => RequestId::Number(number),
        Token::Text(text) => RequestId::Text(text.into()),
    }
}
