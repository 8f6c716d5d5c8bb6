//! Subscriptions of the modern era: `subscriptions/listen` requests that stay open.
//!
//! Spec 2026-07-28, subscriptions: the first message acknowledges the granted notifications, every message
//! carries the request id as subscription id, and the end is a result, a cancellation, or both.
//!
//! **Invariant:** a subscription is in the table exactly as long as its request is open.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};
use toolrack_mcp::{ListenParams, LogLevel, Method, ProgressToken, SubscriptionFilter};
use toolrack_transport::{
    Backoff, CANCELLED, CancelledParams, Delivery, OnCancel, OutgoingRequest, RawJson,
    RequestError, RequestTimeout, TransportError, TransportKind,
};

use crate::error::CallError;
use crate::event::Event;
use crate::request_meta::{PerRequestMeta, RequestWithMeta};
use crate::session::Session;

/// How long connecting waits for the acknowledgment over HTTP.
const ACK_TIMEOUT: Duration = Duration::from_secs(1);

/// Open subscriptions, by request id.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions {
    open: Mutex<HashMap<u64, Arc<SubscriptionEntry>>>,
}

/// State that the task and the message router share.
#[derive(Debug)]
struct SubscriptionEntry {
    requested: SubscriptionFilter,
    /// Minimum level of log messages while the subscription is open.
    log_level: Option<LogLevel>,
    state: watch::Sender<SubscriptionState>,
    /// Cancelled when the server ends the subscription.
    ended: CancellationToken,
    /// The acknowledgment came too late to wait for, so changes before it may be missed.
    is_late: AtomicBool,
    /// Why the state is [`SubscriptionState::Failed`].
    failure: Mutex<Option<CallError>>,
}

/// Lifecycle of a subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
enum SubscriptionState {
    /// Not sent yet.
    NotSent,
    /// Sent, not acknowledged.
    Sent,
    /// Acknowledged, with the granted filter.
    Active(SubscriptionFilter),
    /// The request broke after it may have been granted; it will be sent again.
    Broken,
    /// Rejected or ended for good.
    Failed,
}

/// Handle of a subscription. Dropping it ends the subscription.
#[derive(Debug)]
pub(crate) struct Subscription {
    entry: Arc<SubscriptionEntry>,
    _stop: DropGuard,
}

impl Subscriptions {
    pub(crate) fn contains(&self, id: &ProgressToken) -> bool {
        self.find(id).is_some()
    }

    /// Handles an acknowledgment. Returns the filter of changes that may have been missed in a gap before it.
    pub(crate) fn on_acknowledged(
        &self,
        id: &ProgressToken,
        granted: SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        let entry = self.find(id)?;
        let missing = entry.requested.without(&granted);
        if missing != SubscriptionFilter::default() {
            tracing::debug!(?missing, "subscription granted only in part");
        }
        let before = entry.state.send_replace(SubscriptionState::Active(granted.clone()));
        if before == SubscriptionState::Broken && !missing.resource_subscriptions.is_empty() {
            // It was granted before, so a subscriber relies on it and must get `SubscriptionEnded`.
            entry.ended.cancel();
        }
        // Consumed here: a second acknowledgment must not report the same gap again.
        let is_late = entry.is_late.swap(false, Ordering::AcqRel);
        (before == SubscriptionState::Broken || is_late).then_some(granted)
    }

    pub(crate) fn on_cancelled(&self, id: &ProgressToken) {
        if let Some(entry) = self.find(id) {
            entry.ended.cancel();
        }
    }

    fn find(&self, id: &ProgressToken) -> Option<Arc<SubscriptionEntry>> {
        // Spec 2026-07-28, subscriptions: the id comes back with the type it was sent with, a number.
        let ProgressToken::Integer(number) = id else { return None };
        let id = u64::try_from(*number).ok()?;
        self.open.lock().get(&id).map(Arc::clone)
    }
}

impl Subscription {
    /// Opens a subscription. While it is open, the server sends log messages from `log_level` on.
    pub(crate) fn open(
        session: &Arc<Session>,
        requested: SubscriptionFilter,
        log_level: Option<LogLevel>,
    ) -> Self {
        let stop = CancellationToken::new();
        let entry = Arc::new(SubscriptionEntry {
            requested,
            log_level,
            state: watch::Sender::new(SubscriptionState::NotSent),
            ended: CancellationToken::new(),
            is_late: AtomicBool::new(false),
            failure: Mutex::default(),
        });
        let task = SubscriptionTask {
            session: Arc::clone(session),
            entry: Arc::clone(&entry),
            stop: stop.clone(),
            id: AtomicU64::new(0),
        };
        session.tasks.spawn(task.run());
        Self { entry, _stop: stop.drop_guard() }
    }

    /// Opens the same subscription with a log level, to replace this one. Changes before its acknowledgment count
    /// as missed.
    pub(crate) fn with_log_level(&self, session: &Arc<Session>, log_level: LogLevel) -> Self {
        let replacement = Self::open(session, self.entry.requested.clone(), Some(log_level));
        // The caller drops the old subscription before this one is granted, which leaves a gap.
        replacement.entry.is_late.store(true, Ordering::Release);
        replacement
    }

    /// Waits until no change can be missed. A stream delivers in order, so the sent request suffices; parallel
    /// HTTP requests need the acknowledgment. If that is late, everything counts as changed when it arrives.
    pub(crate) async fn established(&self, kind: TransportKind) {
        if kind == TransportKind::Stream {
            self.wait_for(|state| *state != SubscriptionState::NotSent).await;
            return;
        }
        // A short wait, because the user waits too. A failure ends it as well: a server whose
        // subscriptions do not work still connects.
        if timeout(ACK_TIMEOUT, self.wait_for(SubscriptionState::is_settled)).await.is_err() {
            self.entry.is_late.store(true, Ordering::Release);
        }
    }

    /// Waits for the acknowledgment and returns the part of the filter that was not granted.
    pub(crate) async fn acknowledged(
        &self,
        wait: Duration,
    ) -> Result<SubscriptionFilter, CallError> {
        match timeout(wait, self.wait_for(SubscriptionState::is_settled)).await {
            Ok(SubscriptionState::Active(granted)) => Ok(self.entry.requested.without(&granted)),
            Ok(_) => {
                let early_end = "subscription ended before its acknowledgment";
                let failure = self.entry.failure.lock().take();
                Err(failure
                    .unwrap_or_else(|| CallError::unexpected(Method::Listen, early_end.to_owned())))
            }
            Err(_elapsed) => Err(CallError::TimedOut { waited: wait, delivery: Delivery::Unknown }),
        }
    }

    async fn wait_for(&self, wanted: fn(&SubscriptionState) -> bool) -> SubscriptionState {
        match self.entry.state.subscribe().wait_for(wanted).await {
            Ok(state) => state.clone(),
            // The entry owns the sender, so this does not happen.
            Err(_closed) => SubscriptionState::Failed,
        }
    }
}

impl SubscriptionState {
    fn is_settled(&self) -> bool {
        matches!(self, Self::Active(_) | Self::Failed)
    }
}

/// Background task of one subscription.
struct SubscriptionTask {
    session: Arc<Session>,
    entry: Arc<SubscriptionEntry>,
    stop: CancellationToken,
    id: AtomicU64,
}

/// How a `subscriptions/listen` request ended.
enum ListenEnd {
    /// The handle was dropped.
    Stopped,
    /// The client was closed or dropped.
    SessionClosed,
    /// The server sent `notifications/cancelled`.
    Cancelled,
    /// The request got a response or failed.
    Response(Result<RawJson, CallError>),
}

impl SubscriptionTask {
    async fn run(self) {
        let mut backoff = Backoff::default();
        loop {
            let began = Instant::now();
            let end = self.listen().await;
            // The next attempt registers under a new id.
            let id = self.id.load(Ordering::Relaxed);
            self.session.incoming.subscriptions.open.lock().remove(&id);
            match end {
                ListenEnd::SessionClosed => return,
                // An unsent request has no id, and dropping an HTTP request cancels it.
                ListenEnd::Stopped if id == 0 || self.session.is_stateless() => return,
                ListenEnd::Stopped => return self.send_cancelled(id).await,
                ListenEnd::Cancelled | ListenEnd::Response(Ok(_)) => {
                    return self.finish(None);
                }
                ListenEnd::Response(Err(error)) if !self.may_reopen(&error) => {
                    return self.finish(Some(error));
                }
                ListenEnd::Response(Err(error)) => {
                    tracing::debug!(%error, "subscription interrupted");
                }
            }
            if matches!(*self.entry.state.borrow(), SubscriptionState::Active(_)) {
                // `Backoff` forgets the failures only after a long uptime, so a server that grants
                // and drops each request is asked less and less often.
                backoff.record_success(began);
            }
            self.entry.state.send_replace(SubscriptionState::Broken);
            let wait = backoff.record_failure(Instant::now(), fastrand::f64());
            tokio::select! {
                () = self.session.stop.cancelled() => return,
                () = self.stop.cancelled() => return,
                () = sleep(wait) => {}
            }
        }
    }

    /// Spec 2026-07-28, subscriptions §Ending: a broken stream may be opened again. A resource subscription
    /// that was never granted has a waiting caller, so it fails at once instead.
    fn may_reopen(&self, error: &CallError) -> bool {
        let CallError::Transport(RequestError { error, .. }) = error else { return false };
        let is_transient = match error {
            // The transient statuses. Other 4xx codes reject the request itself, and a repeat gets
            // the same one.
            TransportError::Status { code, .. } => matches!(code, 408 | 425 | 429 | 500..),
            TransportError::Io(_)
            | TransportError::Unreachable { .. }
            | TransportError::Parse(_)
            | TransportError::Oversize { .. } => true,
            _ => false,
        };
        let has_waiter = !self.entry.requested.resource_subscriptions.is_empty();
        let never_active = matches!(
            *self.entry.state.borrow(),
            SubscriptionState::NotSent | SubscriptionState::Sent
        );
        is_transient && self.session.is_stateless() && !(has_waiter && never_active)
    }

    async fn listen(&self) -> ListenEnd {
        let session = &self.session;
        // Runs while the request is serialized, before the server can see the id: the acknowledgment may
        // arrive before `request` is polled again.
        let on_id = |id| {
            self.id.store(id, Ordering::Relaxed);
            session.incoming.subscriptions.open.lock().insert(id, Arc::clone(&self.entry));
            // A repeated request stays `Broken` until its acknowledgment, which then reports the gap.
            self.entry.state.send_if_modified(|state| {
                let is_first = *state == SubscriptionState::NotSent;
                if is_first {
                    *state = SubscriptionState::Sent;
                }
                is_first
            });
        };
        let params = ListenParams { notifications: &self.entry.requested };
        let meta = PerRequestMeta {
            on_id: Some(&on_id),
            log_level: self.entry.log_level,
            ..PerRequestMeta::default()
        };
        let params = RequestWithMeta { template: &session.meta, params: &params, meta };
        let request = session.transport.request(OutgoingRequest {
            method: Method::Listen.as_str(),
            params: &params,
            // The response comes when the subscription ends, so any timeout would cut it off.
            timeout: RequestTimeout::unlimited(),
            // A subscription that the server ended must not be cancelled, so this task sends the
            // cancellation itself when there is something to cancel.
            on_cancel: OnCancel::Silent,
        });
        // Our own stop wins over a response that is ready at the same time, so that a dropped handle does
        // not emit `SubscriptionEnded`.
        tokio::select! {
            biased;
            () = session.stop.cancelled() => ListenEnd::SessionClosed,
            () = self.stop.cancelled() => ListenEnd::Stopped,
            outcome = request => ListenEnd::Response(outcome.map_err(CallError::from)),
            () = self.entry.ended.cancelled() => ListenEnd::Cancelled,
        }
    }

    async fn send_cancelled(&self, id: u64) {
        let sent = self.session.transport.notify(CANCELLED, &CancelledParams(id)).await;
        sent.unwrap_or_else(|error| tracing::trace!(%error, "cancellation not sent"));
    }

    /// Passes the failure to a caller that waits for the acknowledgment, and emits `SubscriptionEnded` if the
    /// subscription had been granted.
    fn finish(&self, error: Option<CallError>) {
        let granted = matches!(
            *self.entry.state.borrow(),
            SubscriptionState::Active(_) | SubscriptionState::Broken
        );
        if let Some(error) = &error {
            tracing::debug!(%error, "subscription failed");
        }
        // Before the state changes: the waiting caller reads the failure when the state wakes it.
        *self.entry.failure.lock() = error;
        self.entry.state.send_replace(SubscriptionState::Failed);
        let uris = self.entry.requested.resource_subscriptions.clone();
        for uri in &uris {
            // An ended subscription must not count against the limit.
            self.session.resource_subscriptions.lock().remove(uri);
        }
        // `Closed` is the last event, so nothing follows a closed transport.
        if granted && self.session.incoming.events.close_reason().is_none() {
            self.session.incoming.events.emit(Event::SubscriptionEnded { uris });
        }
    }
}
