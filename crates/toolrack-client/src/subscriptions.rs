//! Subscriptions of the modern era: requests that stay open while the server tells of changes.
//!
//! Spec 2026-07-28, subscriptions: the first message acknowledges what will be told, every message names
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
use crate::request_meta::{Extra, Packed};
use crate::session::{Session, lock};

/// How long a connection waits for the first acknowledgment.
const HEAD_START: Duration = Duration::from_secs(1);

/// The subscriptions that are open, by the id of their request.
#[derive(Debug, Default)]
pub(crate) struct Listens {
    open: Mutex<HashMap<u64, Arc<Listening>>>,
}

/// What is known of one subscription.
#[derive(Debug)]
struct Listening {
    asked: SubscriptionFilter,
    /// From which level on the server may send log messages beside, as long as it is open.
    log_level: Option<LogLevel>,
    news: watch::Sender<News>,
    /// The server has said that it is over.
    over: CancellationToken,
    /// Nobody waited for the acknowledgment any longer, so changes may have come before it.
    is_late: AtomicBool,
}

/// How far a subscription has come.
#[derive(Debug, Clone, PartialEq, Eq)]
enum News {
    /// Not written yet.
    Nothing,
    /// On its way to the server.
    Written,
    /// The server will tell this much.
    Granted(SubscriptionFilter),
    /// It was granted or may have been, the exchange broke, and it is asked for again.
    Broken,
    /// There is none, and it never was.
    Failed,
}

/// An open subscription. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Subscription {
    news: watch::Receiver<News>,
    failure: Arc<Mutex<Option<CallError>>>,
    asked: SubscriptionFilter,
    listening: Arc<Listening>,
    _stop: DropGuard,
}

impl Listens {
    pub(crate) fn has(&self, id: &Token) -> bool {
        self.find(id).is_some()
    }

    /// Gives what may have changed unseen, if the subscription was broken for a while.
    pub(crate) fn acknowledged(
        &self,
        id: &Token,
        granted: SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        let listening = self.find(id)?;
        let missing = listening.asked.without(&granted);
        if missing != SubscriptionFilter::default() {
            tracing::debug!(?missing, "the server does not tell everything that was asked for");
        }
        let before = listening.news.send_replace(News::Granted(granted.clone()));
        if before == News::Broken && !missing.resource_subscriptions.is_empty() {
            // It was granted once, so somebody relies on it and has to learn that it is no more.
            listening.over.cancel();
        }
        let is_late = listening.is_late.swap(false, Ordering::AcqRel);
        (before == News::Broken || is_late).then_some(granted)
    }

    pub(crate) fn cancelled(&self, id: &Token) {
        if let Some(listening) = self.find(id) {
            listening.over.cancel();
        }
    }

    fn find(&self, id: &Token) -> Option<Arc<Listening>> {
        // Spec 2026-07-28, subscriptions: the id comes back in the type in which it was sent.
        let Token::Integer(number) = id else { return None };
        let id = u64::try_from(*number).ok()?;
        lock(&self.open).get(&id).map(Arc::clone)
    }
}

impl Subscription {
    /// Begins a subscription.
    pub(crate) fn open(session: &Arc<Session>, asked: SubscriptionFilter) -> Self {
        Self::open_with(session, asked, None)
    }

    /// The same once more in the place of this one, with log messages from this level on. What changes until the
    /// server has heard of it counts as changed unseen.
    pub(crate) fn anew(&self, session: &Arc<Session>, log_level: LogLevel) -> Self {
        let anew = Self::open_with(session, self.asked.clone(), Some(log_level));
        anew.listening.is_late.store(true, Ordering::Release);
        anew
    }

    fn open_with(
        session: &Arc<Session>,
        asked: SubscriptionFilter,
        log_level: Option<LogLevel>,
    ) -> Self {
        let (news, receiver) = watch::channel(News::Nothing);
        let failure = Arc::default();
        let stop = CancellationToken::new();
        let listening = Arc::new(Listening {
            asked: asked.clone(),
            log_level,
            news,
            over: CancellationToken::new(),
            is_late: AtomicBool::new(false),
        });
        let task = Task {
            session: Arc::clone(session),
            listening: Arc::clone(&listening),
            failure: Arc::clone(&failure),
            stop: stop.clone(),
            id: AtomicU64::new(0),
        };
        session.tracker.spawn(task.run());
        Self { news: receiver, failure, asked, listening, _stop: stop.drop_guard() }
    }

    /// Waits until the request is on the way, or will never be.
    pub(crate) async fn written(&mut self) {
        wait_for(&mut self.news, |news| *news != News::Nothing).await;
    }

    /// Waits until changes cannot be missed: on a stream, what is written first is read first; in exchanges
    /// of their own, the acknowledgment has to come. If that takes long, everything counts as changed when it
    /// does.
    pub(crate) async fn begun(&mut self, medium: Medium) {
        if medium == Medium::Stream {
            return self.written().await;
        }
        let settled = |news: &News| matches!(news, News::Granted(_) | News::Failed);
        if timeout(HEAD_START, wait_for(&mut self.news, settled)).await.is_err() {
            self.listening.is_late.store(true, Ordering::Release);
        }
    }

    /// Waits until the server has said what it will tell, and gives what it will not tell.
    pub(crate) async fn granted(
        &mut self,
        patience: Duration,
    ) -> Result<SubscriptionFilter, CallError> {
        let settled = |news: &News| matches!(news, News::Granted(_) | News::Failed);
        match timeout(patience, wait_for(&mut self.news, settled)).await {
            Ok(News::Granted(granted)) => Ok(self.asked.without(&granted)),
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
struct Task {
    session: Arc<Session>,
    listening: Arc<Listening>,
    failure: Arc<Mutex<Option<CallError>>>,
    stop: CancellationToken,
    id: AtomicU64,
}

/// How a subscription ended.
enum End {
    /// We did not want it any more.
    Stopped,
    /// The client is gone, and the line with it.
    Gone,
    /// The server ended it by a notification.
    Cancelled,
    /// The request was answered.
    Answered(Result<RawJson, CallError>),
}

impl Task {
    async fn run(self) {
        let mut backoff = Backoff::default();
        loop {
            let began = Instant::now();
            let end = self.listen().await;
            let id = self.id.load(Ordering::Relaxed);
            lock(&self.session.mailbox.listens.open).remove(&id);
            match end {
                End::Gone => return,
                // A request that never left has no id, and an exchange ends by being dropped.
                End::Stopped if id == 0 || self.session.is_stateless() => return,
                End::Stopped => return self.tell_server(id).await,
                End::Cancelled | End::Answered(Ok(_)) => return self.ended(None),
                End::Answered(Err(error)) if !self.may_reopen(&error) => {
                    return self.ended(Some(error));
                }
                End::Answered(Err(error)) => tracing::debug!(%error, "a subscription broke"),
            }
            if matches!(*self.listening.news.borrow(), News::Granted(_)) {
                backoff.worked(began);
            }
            self.listening.news.send_replace(News::Broken);
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
        let CallError::Line(LineError { error, .. }) = error else { return false };
        let passes = match error {
            TransportError::Status { code, .. } => matches!(code, 408 | 425 | 429 | 500..),
            TransportError::Io(_)
            | TransportError::Unreachable { .. }
            | TransportError::Parse(_)
            | TransportError::Oversize { .. } => true,
            _ => false,
        };
        let is_awaited = !self.listening.asked.resource_subscriptions.is_empty();
        let never_was = matches!(*self.listening.news.borrow(), News::Nothing | News::Written);
        passes && self.session.is_stateless() && !(is_awaited && never_was)
    }

    async fn listen(&self) -> End {
        let session = &self.session;
        let on_id = |id| {
            self.id.store(id, Ordering::Relaxed);
            lock(&session.mailbox.listens.open).insert(id, Arc::clone(&self.listening));
            self.listening.news.send_if_modified(|news| {
                let is_first = *news == News::Nothing;
                if is_first {
                    *news = News::Written;
                }
                is_first
            });
        };
        let params = ListenParams { notifications: &self.listening.asked };
        let extra =
            Extra { on_id: Some(&on_id), log_level: self.listening.log_level, ..Extra::default() };
        let params = Packed { envelope: &session.envelope, params: &params, extra };
        let request = session.line.request(Outgoing {
            method: Method::Listen.as_str(),
            params: &params,
            patience: Patience::endless(),
            // A subscription that the server has ended must not be cancelled, so this task says
            // itself when there is something to cancel.
            abandon: Abandon::Quietly,
        });
        tokio::select! {
            biased;
            () = session.stop.cancelled() => End::Gone,
            () = self.stop.cancelled() => End::Stopped,
            outcome = request => End::Answered(outcome.map_err(CallError::from)),
            () = self.listening.over.cancelled() => End::Cancelled,
        }
    }

    async fn tell_server(&self, id: u64) {
        let told = self.session.line.notify(CANCELLED, &Cancelled(id)).await;
        told.unwrap_or_else(|error| tracing::trace!(%error, "the server was not told"));
    }

    /// Whoever waits for the acknowledgment learns of the failure; whoever relied on the
    /// subscription learns that it is over.
    fn ended(&self, error: Option<CallError>) {
        let granted = matches!(*self.listening.news.borrow(), News::Granted(_) | News::Broken);
        if let Some(error) = &error {
            tracing::debug!(%error, "a subscription failed");
        }
        *lock(&self.failure) = error;
        self.listening.news.send_replace(News::Failed);
        let uris = self.listening.asked.resource_subscriptions.clone();
        for uri in &uris {
            lock(&self.session.resources).remove(uri);
        }
        if granted && self.session.mailbox.bulletin.ending().is_none() {
            self.session.mailbox.bulletin.tell(Event::SubscriptionEnded { uris });
        }
    }
}

/// The first news that `wanted` accepts. A task that is gone has failed.
async fn wait_for(news: &mut watch::Receiver<News>, wanted: impl FnMut(&News) -> bool) -> News {
    match news.wait_for(wanted).await {
        Ok(news) => news.clone(),
        Err(_gone) => News::Failed,
    }
}
