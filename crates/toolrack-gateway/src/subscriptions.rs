//! Subscriptions of clients: to list changes, to resource updates and to log messages.
//!
//! Legacy sessions and `subscriptions/listen` requests are [`Subscriber`]s. A resource is subscribed to once at its
//! server, however many clients want it: [`ResourceSubscriptions`] counts them, and the last one unsubscribes.
//!
//! **Invariant:** a client is counted once for a resource, and uncounted exactly once, also when it cancels,
//! unsubscribes or disconnects while the server has not yet answered. The subscriptions of other clients stay.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::time::sleep;
use toolrack_mcp::{ListKind, LogLevel, LogMessage, Method, SubscriptionFilter};
use toolrack_transport::{JsonRpcError, RequestId};

use crate::encode::{notification, notification_without_params};
use crate::error_mapping::{self, ErrorStyle};
use crate::gateway::{Naming, Scope, Shared};
use crate::message_queue::{LossNotice, MessageQueue};

/// Attempts to renew a subscription, with exponential backoff.
const MAX_RENEW_ATTEMPTS: u32 = 8;
/// Delay before the second attempt. A gateway behind this one may have to start its servers first.
const FIRST_RENEW_DELAY: Duration = Duration::from_millis(500);

/// All clients that are notified of changes.
#[derive(Debug, Default)]
pub(crate) struct Subscribers {
    subscribers: Mutex<Vec<Weak<Subscriber>>>,
}

/// A legacy session or a `subscriptions/listen` request.
#[derive(Debug)]
pub(crate) struct Subscriber {
    queue: Arc<MessageQueue>,
    /// Id of the `subscriptions/listen` request. `None` for a legacy session.
    subscription: Option<RequestId>,
    lists: SubscriptionFilter,
    /// Resources by URI. `None` once the session is closed, so that none is added after its resources were released.
    uris: Mutex<Option<BTreeMap<String, SubscriptionState>>>,
    loss_notice: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SubscriptionState {
    /// The server has not answered yet. The client is not counted.
    Pending,
    /// The client is counted. Removing this entry obliges to uncount it.
    Counted,
}

/// A subscription that the server has not answered yet. Dropping it before [`confirm`](Self::confirm), as a cancelled
/// request does, withdraws it.
#[derive(Debug)]
pub(crate) struct PendingSubscription<'a> {
    subscriber: &'a Subscriber,
    uri: &'a str,
}

impl Drop for PendingSubscription<'_> {
    fn drop(&mut self) {
        if let Some(uris) = self.subscriber.uris.lock().as_mut()
            && uris.get(self.uri) == Some(&SubscriptionState::Pending)
        {
            uris.remove(self.uri);
        }
    }
}

impl PendingSubscription<'_> {
    /// Records that the client is counted. `false` if it has unsubscribed or disconnected meanwhile: the caller then
    /// has to uncount it, because removing a pending entry does not.
    pub(crate) fn confirm(&self) -> bool {
        let mut uris = self.subscriber.uris.lock();
        let state = uris.as_mut().and_then(|uris| uris.get_mut(self.uri));
        state.is_some_and(|state| {
            std::mem::replace(state, SubscriptionState::Counted) == SubscriptionState::Pending
        })
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        self.queue.remove_loss_notice(self.loss_notice);
    }
}

impl Subscriber {
    /// A legacy session, which is notified of all list changes.
    pub(crate) fn for_session(queue: Arc<MessageQueue>) -> Self {
        let loss_notice = queue.add_loss_notice(session_loss_notice());
        let uris = Mutex::new(Some(BTreeMap::new()));
        Self { queue, subscription: None, lists: all_lists(), uris, loss_notice }
    }

    /// A `subscriptions/listen` request with the granted filter, whose resources are counted already.
    pub(crate) fn for_listen(
        queue: Arc<MessageQueue>,
        id: RequestId,
        granted: SubscriptionFilter,
    ) -> Self {
        let uris = granted.resource_subscriptions.iter();
        let uris = uris.map(|uri| (uri.clone(), SubscriptionState::Counted)).collect();
        let notice = listen_loss_notice(id.clone(), granted.clone());
        let loss_notice = queue.add_loss_notice(notice);
        let uris = Mutex::new(Some(uris));
        Self { queue, subscription: Some(id), lists: granted, uris, loss_notice }
    }

    /// Begins to subscribe to a resource. `None` if it is subscribed already or the session is closed.
    pub(crate) fn begin_subscribe<'a>(&'a self, uri: &'a str) -> Option<PendingSubscription<'a>> {
        let mut uris = self.uris.lock();
        let uris = uris.as_mut().filter(|uris| !uris.contains_key(uri))?;
        uris.insert(uri.to_owned(), SubscriptionState::Pending);
        Some(PendingSubscription { subscriber: self, uri })
    }

    /// Removes a resource. `true` if the client was counted for it and has to be uncounted.
    pub(crate) fn unsubscribe(&self, uri: &str) -> bool {
        // A pending entry is removed too: `confirm` of its request then finds it gone.
        let removed = self.uris.lock().as_mut().and_then(|uris| uris.remove(uri));
        removed == Some(SubscriptionState::Counted)
    }

    /// Removes all resources for good, and returns those for which the client has to be uncounted.
    pub(crate) fn close(&self) -> Vec<String> {
        let uris = self.uris.lock().take().unwrap_or_default();
        // Pending ones are left out: their requests find the session closed in `confirm`.
        let counted = uris.into_iter().filter(|(_, state)| *state == SubscriptionState::Counted);
        counted.map(|(uri, _)| uri).collect()
    }

    fn list_changed(&self, kind: ListKind) {
        if includes_list(&self.lists, kind) {
            // Lossy, because the loss notice repeats every change.
            self.queue.push_lossy(list_changed(kind, self.subscription.as_ref()));
        }
    }

    fn resource_updated(&self, uri: &str) {
        // The updated resource may be a sub-resource of the subscribed one.
        let is_part = |subscribed: &String| uri.starts_with(subscribed.as_str());
        if self.uris.lock().iter().flat_map(BTreeMap::keys).any(is_part) {
            self.queue.push_lossy(resource_updated(uri, self.subscription.as_ref()));
        }
    }
}

impl Subscribers {
    /// Notifies this subscriber of changes until it is dropped.
    pub(crate) fn add(&self, subscriber: &Arc<Subscriber>) {
        let mut subscribers = self.subscribers.lock();
        subscribers.retain(|subscriber| subscriber.strong_count() > 0);
        subscribers.push(Arc::downgrade(subscriber));
    }

    pub(crate) fn list_changed(&self, kind: ListKind) {
        self.for_each(|subscriber| subscriber.list_changed(kind));
    }

    pub(crate) fn resource_updated(&self, uri: &str) {
        self.for_each(|subscriber| subscriber.resource_updated(uri));
    }

    fn for_each(&self, notify: impl Fn(&Subscriber)) {
        // Collected first, so that the lock is not held while messages are pushed.
        let subscribers: Vec<_> =
            self.subscribers.lock().iter().filter_map(Weak::upgrade).collect();
        for subscriber in &subscribers {
            notify(subscriber);
        }
    }
}

fn includes_list(filter: &SubscriptionFilter, kind: ListKind) -> bool {
    match kind {
        ListKind::Tools => filter.tools_list_changed,
        ListKind::Prompts => filter.prompts_list_changed,
        ListKind::Resources => filter.resources_list_changed,
    }
}

fn all_lists() -> SubscriptionFilter {
    SubscriptionFilter {
        tools_list_changed: true,
        prompts_list_changed: true,
        resources_list_changed: true,
        ..SubscriptionFilter::default()
    }
}

fn list_changed(kind: ListKind, subscription: Option<&RequestId>) -> Bytes {
    let method = match kind {
        ListKind::Tools => Method::ToolListChanged,
        ListKind::Prompts => Method::PromptListChanged,
        ListKind::Resources => Method::ResourceListChanged,
    };
    match subscription {
        None => notification_without_params(method.as_str()),
        Some(id) => notification(method.as_str(), &json!({ "_meta": subscription_meta(id) })),
    }
}

fn resource_updated(uri: &str, subscription: Option<&RequestId>) -> Bytes {
    let method = Method::ResourceUpdated.as_str();
    match subscription {
        None => notification(method, &json!({ "uri": uri })),
        Some(id) => notification(method, &json!({ "_meta": subscription_meta(id), "uri": uri })),
    }
}

/// Spec 2026-07-28, subscriptions: every message names its subscription.
pub(crate) fn subscription_meta(id: &RequestId) -> serde_json::Value {
    json!({ toolrack_mcp::MetaKey::SUBSCRIPTION_ID: id })
}

/// Loss notice of a legacy session: the number of lost messages, and a change of every list, since any of the lost
/// messages may have been one.
fn session_loss_notice() -> LossNotice {
    Box::new(|n_lost| {
        let lists = [ListKind::Tools, ListKind::Prompts, ListKind::Resources];
        let mut notices = vec![loss_message(n_lost)];
        notices.extend(lists.map(|kind| list_changed(kind, None)));
        notices
    })
}

/// Loss notice of the stream of one response: progress and log messages were lost.
pub(crate) fn response_loss_notice() -> LossNotice {
    Box::new(|n_lost| vec![loss_message(n_lost)])
}

/// Loss notice of a `subscriptions/listen` request: a change of everything that it is subscribed to.
fn listen_loss_notice(id: RequestId, granted: SubscriptionFilter) -> LossNotice {
    Box::new(move |_n_lost| {
        let kinds = [ListKind::Tools, ListKind::Prompts, ListKind::Resources];
        let lists = kinds.into_iter().filter(|kind| includes_list(&granted, *kind));
        let lists = lists.map(|kind| list_changed(kind, Some(&id)));
        let uris = granted.resource_subscriptions.iter();
        lists.chain(uris.map(|uri| resource_updated(uri, Some(&id)))).collect()
    })
}

fn loss_message(n_lost: u64) -> Bytes {
    #[derive(Serialize)]
    struct Params {
        level: LogLevel,
        logger: &'static str,
        data: String,
    }
    let data = format!("{n_lost} notifications were lost because the client read too slowly");
    let params = Params { level: LogLevel::Warning, logger: "toolrack", data };
    notification(Method::LogMessage.as_str(), &params)
}

/// Which log messages a client gets for a request.
#[derive(Debug, Clone)]
pub(crate) enum LogFilter {
    /// From the level that the session has set, or else from a default.
    Session(Arc<Mutex<Option<LogLevel>>>),
    /// From the level that the request names, or else none.
    Request(Option<LogLevel>),
}

impl LogFilter {
    /// Whether a message passes. `default_level` applies to sessions that have set no level.
    pub(crate) fn admits(&self, level: LogLevel, default_level: LogLevel) -> bool {
        match self {
            LogFilter::Session(lowest) => level >= lowest.lock().unwrap_or(default_level),
            LogFilter::Request(lowest) => lowest.is_some_and(|lowest| level >= lowest),
        }
    }

    /// Level to request from a modern server, which sends nothing unless asked. A legacy client that has set no level
    /// gets `info`, as it would from a legacy server.
    pub(crate) fn level_to_request(&self) -> Option<LogLevel> {
        match self {
            LogFilter::Session(lowest) => Some(lowest.lock().unwrap_or(LogLevel::Info)),
            LogFilter::Request(lowest) => *lowest,
        }
    }
}

/// A `subscriptions/listen` request with a log level: it gets log messages also while its client has no other request.
#[derive(Debug)]
pub(crate) struct LogSubscriber {
    pub(crate) level: LogLevel,
    queue: Arc<MessageQueue>,
    scope: Scope,
}

impl LogSubscriber {
    pub(crate) fn new(shared: &Shared, queue: &Arc<MessageQueue>, level: LogLevel) -> Arc<Self> {
        Arc::new(Self { level, queue: Arc::clone(queue), scope: shared.scope.clone() })
    }

    pub(crate) fn send(&self, server: &str, message: &LogMessage) {
        if self.scope.contains(server) && message.level >= self.level {
            self.queue.push_lossy(log_notification(server, message, self.scope.naming()));
        }
    }
}

/// Log message of a server. The logger names the server where clients see several.
pub(crate) fn log_notification(server: &str, message: &LogMessage, naming: Naming) -> Bytes {
    #[derive(Serialize)]
    struct Params<'a> {
        level: LogLevel,
        #[serde(skip_serializing_if = "Option::is_none")]
        logger: Option<String>,
        data: &'a RawValue,
    }
    let logger = match (naming, &message.logger) {
        (Naming::Raw, logger) => logger.clone(),
        (Naming::Public, None) => Some(server.to_owned()),
        (Naming::Public, Some(logger)) => Some(format!("{server}/{logger}")),
    };
    let params = Params { level: message.level, logger, data: &message.data };
    notification(Method::LogMessage.as_str(), &params)
}

/// How many clients are subscribed to each resource, by server and URI.
#[derive(Debug, Default)]
pub(crate) struct ResourceSubscriptions {
    counts: Mutex<HashMap<(String, String), usize>>,
    /// Servers whose subscriptions a task is renewing.
    renewing: Mutex<HashSet<Arc<str>>>,
}

/// Marks the subscriptions of a server as being renewed until dropped. One task at a time renews them.
struct RenewGuard<'a> {
    subscriptions: &'a ResourceSubscriptions,
    server: Arc<str>,
}

impl Drop for RenewGuard<'_> {
    fn drop(&mut self) {
        self.subscriptions.renewing.lock().remove(&self.server);
    }
}

impl ResourceSubscriptions {
    /// `None` if another task is renewing the subscriptions of this server.
    fn begin_renew(&self, server: &Arc<str>) -> Option<RenewGuard<'_>> {
        let is_first = self.renewing.lock().insert(Arc::clone(server));
        is_first.then(|| RenewGuard { subscriptions: self, server: Arc::clone(server) })
    }

    fn count(&self, key: &(String, String)) -> usize {
        self.counts.lock().get(key).copied().unwrap_or_default()
    }

    fn uris(&self, server: &str) -> Vec<String> {
        let counts = self.counts.lock();
        let keys = counts.keys().filter(|(key_server, _)| key_server == server);
        keys.map(|(_, uri)| uri.clone()).collect()
    }

    /// Uncounts one client. Returns server and URI if it was the last one.
    fn release(&self, uri: &str) -> Option<(String, String)> {
        let mut counts = self.counts.lock();
        // By URI alone: a client that unsubscribes does not name the server.
        let key = counts.keys().find(|(_, key_uri)| key_uri == uri)?.clone();
        let count = counts.get_mut(&key)?;
        *count -= 1;
        if *count > 0 {
            return None;
        }
        counts.remove(&key);
        Some(key)
    }
}

impl Shared {
    /// Counts one more subscriber of a resource, and subscribes at the server if it is the first.
    pub(crate) async fn subscribe(&self, uri: &str, style: ErrorStyle) -> Result<(), JsonRpcError> {
        let server = self.subscription_server(uri).await?;
        let key = (server, uri.to_owned());
        // Counted only after the server has agreed, so that a failure leaves no count behind. Two first subscribers
        // may therefore both subscribe at the server.
        if self.subscriptions.count(&key) == 0 {
            let client = self.borrow(&key.0, style).await?;
            client
                .subscribe_resource(uri)
                .await
                .map_err(|error| error_mapping::from_call_error(error, style))?;
        }
        *self.subscriptions.counts.lock().entry(key).or_default() += 1;
        Ok(())
    }

    /// Uncounts one subscriber of a resource. A background task unsubscribes at the server if it was the last.
    pub(crate) fn unsubscribe(self: &Arc<Self>, uri: &str) {
        let Some(key) = self.subscriptions.release(uri) else { return };
        let shared = Arc::clone(self);
        self.spawn(async move { shared.unsubscribe_at_server(&key).await });
    }

    async fn unsubscribe_at_server(&self, key: &(String, String)) {
        let (server, uri) = key;
        // A server that is not connected has lost its subscriptions already.
        let Ok(connection) = self.manager.server(server) else { return };
        let Some(client) = connection.client() else { return };
        // Counted again: another client may have subscribed since `release`.
        if self.subscriptions.count(key) == 0
            && let Err(error) = client.unsubscribe_resource(uri).await
        {
            tracing::debug!(server, %error, "unsubscribe failed");
        }
        // A client that subscribed while the server was unsubscribing has lost its subscription.
        if self.subscriptions.count(key) > 0 {
            self.resubscribe(&server.as_str().into()).await;
        }
    }

    /// Renews all subscriptions at a server that was restarted or has ended one. Updates may have been missed
    /// meanwhile, so every renewed resource is reported as updated.
    pub(crate) async fn resubscribe(&self, server: &Arc<str>) {
        let Some(_renewing) = self.subscriptions.begin_renew(server) else { return };
        let mut done = BTreeSet::new();
        let mut delay = FIRST_RENEW_DELAY;
        for _ in 0..MAX_RENEW_ATTEMPTS {
            for uri in self.subscriptions.uris(server) {
                if !done.contains(&uri) && self.renew(server, &uri).await {
                    self.subscribers.resource_updated(&uri);
                    done.insert(uri);
                }
            }
            // Read again: clients subscribe and unsubscribe while this runs.
            if self.subscriptions.uris(server).iter().all(|uri| done.contains(uri)) {
                return;
            }
            sleep(delay).await;
            delay *= 2;
        }
        tracing::warn!(server = &**server, "resource subscription lost");
    }

    /// Subscribes to one resource again. `false` if the server is not connected or rejects it.
    async fn renew(&self, server: &str, uri: &str) -> bool {
        let Ok(connection) = self.manager.server(server) else { return false };
        let Some(client) = connection.client() else { return false };
        let renewed = client.subscribe_resource(uri).await;
        renewed.inspect_err(|error| tracing::debug!(server, %error, "resubscribe failed")).is_ok()
    }
}

#[cfg(test)]
mod tests;
