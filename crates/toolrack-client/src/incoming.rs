//! Router of incoming messages: notifications and requests from the server.
//!
//! Progress goes to its call, list changes increment a counter, events go to subscribers, and requests wait
//! in a bounded queue for the session task.
//!
//! **Invariant:** nothing here blocks, responds or decides: it runs in the transport's reader task.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use tokio::sync::Notify;
use toolrack_mcp::{
    Cancelled, ListKind, LogMessage, Method, Progress, ProgressToken, ServerNotification,
    SubscriptionFilter, subscription_id,
};
use toolrack_transport::{CloseReason, IncomingHandler, RawJson, RequestId, Transport};

use crate::event::{Event, EventSender};
use crate::progress::ProgressRoutes;
use crate::server_requests::ClientHandler;
use crate::subscriptions::Subscriptions;

/// Server requests that wait for the session task, which takes them without blocking. When full, the server
/// is flooding: further requests are dropped and counted.
const CAPACITY: usize = 256;

/// URL elicitations that may still complete. When full, the oldest is dropped.
const MAX_OPEN_URLS: usize = 64;

/// Routes the incoming messages of one transport.
#[derive(Default)]
pub(crate) struct IncomingRouter {
    /// Its request deadlines are extended by progress. Weak, because the transport owns this router.
    pub(crate) transport: OnceLock<Weak<dyn Transport>>,
    phase: AtomicU8,
    requests: Mutex<VecDeque<IncomingRequest>>,
    /// Wakes the session task, or the handshake before there is one.
    pub(crate) wakeup: Notify,
    /// A line arrived that is not a message.
    pub(crate) saw_noise: AtomicBool,
    /// One of our own requests came back.
    pub(crate) saw_echo: AtomicBool,
    /// Number of changes per list.
    changes: [AtomicU64; 3],
    /// Number of new HTTP sessions after the server forgot the old one.
    pub(crate) session_renewals: AtomicU64,
    /// Server requests left unanswered: not allowed in this era, or queue full.
    pub(crate) ignored: AtomicU64,
    /// Ids of opened URL elicitations.
    open_urls: Mutex<Vec<String>>,
    pub(crate) progress: ProgressRoutes,
    pub(crate) subscriptions: Subscriptions,
    pub(crate) events: EventSender,
    server: Box<str>,
    handler: Option<Arc<dyn ClientHandler>>,
}

/// Work for the session task.
#[derive(Debug)]
pub(crate) enum IncomingRequest {
    /// A server request, with the id of the client request it belongs to, if known.
    Request { id: RequestId, method: String, params: Option<RawJson>, related_request: Option<u64> },
    /// The server cancelled one of its requests.
    Cancelled(RequestId),
}

/// Protocol phase, which determines the messages to accept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum ProtocolPhase {
    /// The era is unknown: ignore everything.
    Probing = 0,
    /// From `initialize` on.
    Legacy = 1,
    /// The server must not send requests.
    Modern = 2,
}

impl IncomingRouter {
    pub(crate) fn new(server: &str, handler: Option<Arc<dyn ClientHandler>>) -> Self {
        Self { server: server.into(), handler, ..Self::default() }
    }

    pub(crate) fn set_phase(&self, phase: ProtocolPhase) {
        self.phase.store(phase as u8, Ordering::Release);
    }

    pub(crate) fn next_request(&self) -> Option<IncomingRequest> {
        let mut requests = self.requests.lock();
        let next = requests.pop_front();
        if requests.is_empty() {
            // An idle connection keeps no buffer.
            *requests = VecDeque::new();
        }
        next
    }

    /// Removes the pings from the queue; they may be answered during the handshake.
    pub(crate) fn take_pings(&self) -> Vec<RequestId> {
        let mut pings = Vec::new();
        self.requests.lock().retain(|request| match request {
            IncomingRequest::Request { id, method, .. } if method == Method::Ping.as_str() => {
                pings.push(id.clone());
                false
            }
            _ => true,
        });
        pings
    }

    /// Number of `list_changed` notifications for a list.
    pub(crate) fn changes(&self, kind: ListKind) -> u64 {
        self.counter(kind).load(Ordering::Acquire)
    }

    /// Treats everything in `missed` as changed, after a gap in the subscription.
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

    /// Records that the user agreed to open a URL.
    pub(crate) fn url_opened(&self, id: String) {
        let mut open_urls = self.open_urls.lock();
        // Completion is optional for the server, so entries may stay forever.
        if open_urls.len() >= MAX_OPEN_URLS {
            open_urls.remove(0);
        }
        open_urls.push(id);
    }

    fn enqueue(&self, request: IncomingRequest) {
        let mut requests = self.requests.lock();
        if requests.len() >= CAPACITY {
            // The lock ends before logging: the session task must not wait for a slow log writer.
            drop(requests);
            self.ignore("queue full");
            return;
        }
        requests.push_back(request);
        drop(requests);
        self.wakeup.notify_one();
    }

    fn ignore(&self, reason: &str) {
        self.ignored.fetch_add(1, Ordering::Relaxed);
        tracing::debug!(reason, "server request ignored");
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
            // The session task fetches the tools first and emits the event afterwards.
            ListKind::Tools => self.wakeup.notify_one(),
            ListKind::Prompts => self.events.emit(Event::PromptsChanged),
            ListKind::Resources => self.events.emit(Event::ResourcesChanged),
        }
    }

    /// Spec 2026-07-28, progress: unknown progress tokens are ignored.
    fn on_progress(&self, progress: Progress) {
        let ProgressToken::Integer(token) = progress.token else { return };
        let Ok(id) = u64::try_from(token) else { return };
        // Also without a callback: progress shows that the server works on the request, so it must
        // not time out.
        if let Some(transport) = self.transport.get().and_then(Weak::upgrade) {
            transport.extend_deadline(Some(id));
        }
        self.progress.report(id, progress);
    }

    /// The handler runs in the transport's reader task, which all calls share, so it must not panic through.
    fn forward_log(&self, message: &LogMessage) {
        let Some(handler) = &self.handler else { return };
        if catch_unwind(AssertUnwindSafe(|| handler.log_from(&self.server, message))).is_err() {
            tracing::error!("log handler panicked");
        }
    }

    /// Legacy: the server cancels its request. Modern: the server ends a subscription.
    fn on_cancelled(&self, cancelled: Cancelled) {
        let Some(id) = cancelled.request_id else { return };
        if self.is_in(ProtocolPhase::Modern) {
            self.subscriptions.on_cancelled(&id);
        } else {
            self.enqueue(IncomingRequest::Cancelled(request_id(id)));
        }
    }

    fn is_in(&self, phase: ProtocolPhase) -> bool {
        self.phase.load(Ordering::Acquire) == phase as u8
    }

    /// Spec 2025-11-25, elicitation §URL mode: ignore unknown and completed ids.
    fn url_completed(&self, id: String) {
        let mut open_urls = self.open_urls.lock();
        let Some(index) = open_urls.iter().position(|open| *open == id) else { return };
        open_urls.swap_remove(index);
        drop(open_urls);
        self.events.emit(Event::ElicitationComplete { id });
    }

    fn on_request(
        &self,
        related_request: Option<u64>,
        id: RequestId,
        method: &str,
        params: Option<RawJson>,
    ) {
        // Only clients send these methods, so the program echoes our own requests.
        if matches!(Method::parse(method), Some(Method::Initialize | Method::Discover)) {
            self.saw_echo.store(true, Ordering::Release);
            self.wakeup.notify_one();
        }
        if self.is_in(ProtocolPhase::Probing) {
            self.ignore("era not detected yet");
        } else if self.is_in(ProtocolPhase::Modern) {
            // Spec 2026-07-28, basic §Responses: servers send no requests, and clients no responses.
            self.ignore("not allowed in the modern era");
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

impl IncomingHandler for IncomingRouter {
    fn on_request(&self, id: RequestId, method: &str, params: Option<RawJson>) {
        self.on_request(None, id, method, params);
    }

    fn on_related_request(
        &self,
        related_request: u64,
        id: RequestId,
        method: &str,
        params: Option<RawJson>,
    ) {
        self.on_request(Some(related_request), id, method, params);
    }

    fn on_notification(&self, method: &str, params: Option<RawJson>) {
        if self.is_in(ProtocolPhase::Probing) {
            return;
        }
        let params = params.as_ref().map_or(&b""[..], RawJson::as_bytes);
        let notification = match ServerNotification::parse(method, params) {
            Ok(notification) => notification,
            Err(error) => {
                tracing::debug!(method, %error, "malformed notification");
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
        // Spec 2026-07-28, subscriptions §Demultiplexing: ignore notifications of subscriptions that are
        // not open.
        let subscription = subscription_id(params);
        // Legacy notifications carry no subscription id and always pass.
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
            _ => tracing::trace!(method, "notification ignored"),
        }
    }

    fn on_unreadable(&self, sample: &str) {
        tracing::debug!(sample, "line is not a message");
        self.saw_noise.store(true, Ordering::Release);
        self.wakeup.notify_one();
    }

    fn on_session_renewed(&self) {
        self.session_renewals.fetch_add(1, Ordering::Release);
        self.wakeup.notify_one();
    }

    fn on_close(&self, ending: &CloseReason) {
        // Before the wake-up: the session task checks the close reason when it wakes.
        self.events.close(ending);
        self.wakeup.notify_one();
    }
}

fn request_id(token: ProgressToken) -> RequestId {
    match token {
        ProgressToken::Integer(number) => RequestId::Number(number),
        ProgressToken::Text(text) => RequestId::Text(text.into()),
    }
}
