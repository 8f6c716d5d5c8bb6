//! Subscriptions of the modern era: requests that stay open while the server tells of changes.
//!
//! Spec 2026-07-28, subscriptions: the first message acknowledges what will be sent, every message names
//! its subscription by the id of the request, and the end is a result, a cancellation, or both.
//!
//! **Invariant:** a subscription is in the table exactly as long as its task runs.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};
use toolrack_mcp::{ListenParams, LogLevel, Method, SubscriptionFilter, Token};
use toolrack_transport::{
    Abandon, Backoff, CANCELLED, Cancelled, Delivery, LineError, Medium, Outgoing, Patience,
    RawJson, TransportError,
};

use crate::error::CallError;
use crate::event::Event;
use crate::request_meta::{PerRequestMeta, RequestWithMeta};
use crate::session::{Session, lock};

/// How long a connection waits for the first acknowledgment.
const ACK_TIMEOUT: Duration = Duration::from_secs(1);

/// The subscriptions that are open, by the id of their request.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions {
    open: Mutex<HashMap<u64, Arc<SubscriptionEntry>>>,
}

/// What is known of one subscription.
#[derive(Debug)]
struct SubscriptionEntry {
    requested: SubscriptionFilter,
    /// From which level on the server may send log messages beside, as long as it is open.
    log_level: Option<LogLevel>,
    state: watch::Sender<SubscriptionState>,
    /// The server has said that it is over.
    ended: CancellationToken,
    /// Nobody waited for the acknowledgment any longer, so changes may have come before it.
    is_late: AtomicBool,
}

/// How far a subscription has come.
#[derive(Debug, Clone, PartialEq, Eq)]
enum SubscriptionState {
    /// Not written yet.
    NotSent,
    /// On its way to the server.
    Sent,
    /// The server will tell this much.
    Active(SubscriptionFilter),
    /// It was granted or may have been, the exchange broke, and it is requested for again.
    Broken,
    /// There is none, and it never was.
    Failed,
}

/// An open subscription. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Subscription {
    state: watch::Receiver<SubscriptionState>,
    failure: Arc<Mutex<Option<CallError>>>,
    requested: SubscriptionFilter,
    entry: Arc<SubscriptionEntry>,
    _stop: DropGuard,
}

impl Subscriptions {
    pub(crate) fn contains(&self, id: &Token) -> bool {
        self.find(id).is_some()
    }

    /// Gives what may have changed mark_missed, if the subscription was broken for a while.
    pub(crate) fn on_acknowledged(
        &self,
        id: &Token,
        granted: SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        let entry = self.find(id)?;
        let missing = entry.requested.without(&granted);
        if missing != SubscriptionFilter::default() {
            tracing::debug!(?missing, "the server does not tell everything that was requested for");
        }
        let before = entry.state.send_replace(SubscriptionState::Active(granted.clone()));
        if before == SubscriptionState::Broken && !missing.resource_subscriptions.is_empty() {
            // It was granted once, so somebody relies on it and has to learn that it is no more.
            entry.ended.cancel();
        }
        let is_late = entry.is_late.swap(false, Ordering::AcqRel);
        (before == SubscriptionState::Broken || is_late).then_some(granted)
    }

    pub(crate) fn on_cancelled(&self, id: &Token) {
        if let Some(entry) = self.find(id) {
            entry.ended.cancel();
        }
    }

    fn find(&self, id: &Token) -> Option<Arc<SubscriptionEntry>> {
        // Spec 2026-07-28, subscriptions: the id comes back in the type in which it was sent.
        let Token::Integer(number) = id else { return None };
        let id = u64::try_from(*number).ok()?;
        lock(&self.open).get(&id).map(Arc::clone)
    }
}

impl Subscription {
    /// Begins a subscription.
    pub(crate) fn open(session: &Arc<Session>, requested: SubscriptionFilter) -> Self {
        Self::open_with(session, requested, None)
    }

    /// The same once more in the place of this one, with log messages from this level on. What changes until the
    /// server has heard of it counts as changed mark_missed.
    pub(crate) fn with_log_level(&self, session: &Arc<Session>, log_level: LogLevel) -> Self {
        let replacement = Self::open_with(session, self.requested.clone(), Some(log_level));
        replacement.entry.is_late.store(true, Ordering::Release);
        replacement
    }

    fn open_with(
        session: &Arc<Session>,
        requested: SubscriptionFilter,
        log_level: Option<LogLevel>,
    ) -> Self {
        let (state, receiver) = watch::channel(SubscriptionState::NotSent);
        let failure = Arc::default();
        let stop = CancellationToken::new();
        let entry = Arc::new(SubscriptionEntry {
            requested: requested.clone(),
            log_level,
            state,
            ended: CancellationToken::new(),
            is_late: AtomicBool::new(false),
        });
        let task = SubscriptionTask {
            session: Arc::clone(session),
            entry: Arc::clone(&entry),
            failure: Arc::clone(&failure),
            stop: stop.clone(),
            id: AtomicU64::new(0),
        };
        session.tasks.spawn(task.run());
        Self { state: receiver, failure, requested, entry, _stop: stop.drop_guard() }
    }

    /// Waits until the request is on the way, or will never be.
    pub(crate) async fn sent(&mut self) {
        wait_for(&mut self.state, |state| *state != SubscriptionState::NotSent).await;
    }

    /// Waits until changes cannot be missed: on a stream, what is written first is read first; in exchanges
    /// of their own, the acknowledgment has to come. If that takes long, everything counts as changed when it
    /// does.
    pub(crate) async fn established(&mut self, medium: Medium) {
        if medium == Medium::Stream {
            return self.sent().await;
        }
        let is_settled = |state: &SubscriptionState| {
            matches!(state, SubscriptionState::Active(_) | SubscriptionState::Failed)
        };
        if timeout(ACK_TIMEOUT, wait_for(&mut self.state, is_settled)).await.is_err() {
            self.entry.is_late.store(true, Ordering::Release);
        }
    }

    /// Waits until the server has said what it will tell, and gives what it will not tell.
    pub(crate) async fn acknowledged(
        &mut self,
        patience: Duration,
    ) -> Result<SubscriptionFilter, CallError> {
        let is_settled = |state: &SubscriptionState| {
            matches!(state, SubscriptionState::Active(_) | SubscriptionState::Failed)
        };
        match timeout(patience, wait_for(&mut self.state, is_settled)).await {
            Ok(SubscriptionState::Active(granted)) => Ok(self.requested.without(&granted)),
            Ok(_) => {
                let failure = lock(&self.failure).take();
                Err(failure.unwrap_or_else(|| {
                    CallError::unexpected(Method::Listen, "it ended before it began".to_owned())
                }))
            }
            Err(_elapsed) => {
                Err(CallError::TimedOut { waited: patience, delivery: Delivery::Unknown })
            }
        }
    }
}

/// The task behind one subscription.
struct SubscriptionTask {
    session: Arc<Session>,
    entry: Arc<SubscriptionEntry>,
    failure: Arc<Mutex<Option<CallError>>>,
    stop: CancellationToken,
    id: AtomicU64,
}

/// How a subscription ended.
enum ListenEnd {
    /// We did not want it any more.
    Stopped,
    /// The client is gone, and the transport with it.
    SessionClosed,
    /// The server ended it by a notification.
    Cancelled,
    /// The request was answered.
    Response(Result<RawJson, CallError>),
}

impl SubscriptionTask {
    async fn run(self) {
        let mut backoff = Backoff::default();
        loop {
            let began = Instant::now();
            let end = self.listen().await;
            let id = self.id.load(Ordering::Relaxed);
            lock(&self.session.incoming.subscriptions.open).remove(&id);
            match end {
                ListenEnd::SessionClosed => return,
                // A request that never left has no id, and an exchange ends by being dropped.
                ListenEnd::Stopped if id == 0 || self.session.is_stateless() => return,
                ListenEnd::Stopped => return self.send_cancelled(id).await,
                ListenEnd::Cancelled | ListenEnd::Response(Ok(_)) => return self.finish(None),
                ListenEnd::Response(Err(error)) if !self.may_reopen(&error) => {
                    return self.finish(Some(error));
                }
                ListenEnd::Response(Err(error)) => tracing::debug!(%error, "a subscription broke"),
            }
            if matches!(*self.entry.state.borrow(), SubscriptionState::Active(_)) {
                backoff.worked(began);
            }
            self.entry.state.send_replace(SubscriptionState::Broken);
            let wait = backoff.failed(Instant::now(), fastrand::f64());
            tokio::select! {
                () = self.session.stop.cancelled() => return,
                () = self.stop.cancelled() => return,
                () = sleep(wait) => {}
            }
        }
    }

    /// Spec 2026-07-28, subscriptions §Ending: a stream that breaks may be opened again. One that was never
    /// granted and that somebody waits for fails at once instead.
    fn may_reopen(&self, error: &CallError) -> bool {
        let CallError::Transport(LineError { error, .. }) = error else { return false };
        let is_transient = match error {
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
        let on_id = |id| {
            self.id.store(id, Ordering::Relaxed);
            lock(&session.incoming.subscriptions.open).insert(id, Arc::clone(&self.entry));
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
        let request = session.transport.request(Outgoing {
            method: Method::Listen.as_str(),
            params: &params,
            patience: Patience::endless(),
            // A subscription that the server has ended must not be cancelled, so this task says
            // itself when there is something to cancel.
            abandon: Abandon::Quietly,
        });
        tokio::select! {
            biased;
            () = session.stop.cancelled() => ListenEnd::SessionClosed,
            () = self.stop.cancelled() => ListenEnd::Stopped,
            outcome = request => ListenEnd::Response(outcome.map_err(CallError::from)),
            () = self.entry.ended.cancelled() => ListenEnd::Cancelled,
        }
    }

    async fn send_cancelled(&self, id: u64) {
        let sent = self.session.transport.notify(CANCELLED, &Cancelled(id)).await;
        sent.unwrap_or_else(|error| tracing::trace!(%error, "the server was not sent"));
    }

    /// Whoever waits for the acknowledgment learns of the failure; whoever relied on the
    /// subscription learns that it is over.
    fn finish(&self, error: Option<CallError>) {
        let granted = matches!(
            *self.entry.state.borrow(),
            SubscriptionState::Active(_) | SubscriptionState::Broken
        );
        if let Some(error) = &error {
            tracing::debug!(%error, "a subscription failed");
        }
        *lock(&self.failure) = error;
        self.entry.state.send_replace(SubscriptionState::Failed);
        let uris = self.entry.requested.resource_subscriptions.clone();
        for uri in &uris {
            lock(&self.session.resource_subscriptions).remove(uri);
        }
        if granted && self.session.incoming.events.close_reason().is_none() {
            self.session.incoming.events.emit(Event::SubscriptionEnded { uris });
        }
    }
}

/// The first state that `wanted` accepts. A task that is gone has failed.
async fn wait_for(
    state: &mut watch::Receiver<SubscriptionState>,
    wanted: impl FnMut(&SubscriptionState) -> bool,
) -> SubscriptionState {
    match state.wait_for(wanted).await {
        Ok(state) => state.clone(),
        Err(_gone) => SubscriptionState::Failed,
    }
}
