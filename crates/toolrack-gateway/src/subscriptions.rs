//! Subscriptions of clients to list changes and resource updates.
//!
//! Legacy sessions and `subscriptions/listen` requests are [`Subscriber`]s. A resource is subscribed to once at its
//! server, however many clients want it: [`ResourceSubscriptions`] counts them, and the last one unsubscribes.
//!
//! **Invariant:** a client is counted once for a resource, and uncounted exactly once, also when it cancels,
//! unsubscribes or disconnects while the server has not yet answered. The subscriptions of other clients stay.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::sleep;
use toolrack_mcp::{ListKind, LogLevel, Method, SubscriptionFilter};
use toolrack_transport::{JsonRpcError, RequestId};

use crate::encode::notification;
use crate::error_mapping::{self, ErrorStyle};
use crate::gateway::Shared;
use crate::message_queue::{LossNotice, MessageQueue};

/// Attempts to renew a subscription, with exponential backoff.
const MAX_RENEW_ATTEMPTS: u32 = 8;
/// Delay before the second attempt. A gateway behind this one may have to start its servers first.
const FIRST_RENEW_DELAY: Duration = Duration::from_millis(500);

/// Objects that leave the list when they are dropped, the oldest first.
#[derive(Debug)]
pub(crate) struct WeakList<T>(Mutex<Vec<Weak<T>>>);

impl<T> Default for WeakList<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> WeakList<T> {
    pub(crate) fn add(&self, object: &Arc<T>) {
        let mut objects = self.0.lock();
        objects.retain(|object| object.strong_count() > 0);
        objects.push(Arc::downgrade(object));
    }

    /// The objects as a copy, so that no lock is held while they are used.
    pub(crate) fn to_vec(&self) -> Vec<Arc<T>> {
        self.0.lock().iter().filter_map(Weak::upgrade).collect()
    }
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
    /// The server has not answered the subscription with this number yet. The client is not counted.
    Pending(u64),
    /// The client is counted. Removing this entry obliges to uncount it.
    Counted,
}

/// A subscription that the server has not answered yet. Dropping it before [`confirm`](Self::confirm), as a cancelled
/// request does, withdraws it.
#[derive(Debug)]
pub(crate) struct PendingSubscription<'a> {
    subscriber: &'a Subscriber,
    uri: &'a str,
    /// Tells it from a later subscription of the same client to the same resource.
    number: u64,
}

impl Drop for PendingSubscription<'_> {
    fn drop(&mut self) {
        if let Some(uris) = self.subscriber.uris.lock().as_mut()
            && uris.get(self.uri) == Some(&SubscriptionState::Pending(self.number))
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
        match state.filter(|state| **state == SubscriptionState::Pending(self.number)) {
            Some(state) => {
                *state = SubscriptionState::Counted;
                true
            }
            None => false,
        }
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        self.queue.remove_loss_notice(self.loss_notice);
    }
}

impl Subscriber {
    /// A legacy session, which is notified of all list changes.
    pub(crate) fn for_session(queue: Arc<MessageQueue>) -> Arc<Self> {
        let all_lists = SubscriptionFilter {
            tools_list_changed: true,
            prompts_list_changed: true,
            resources_list_changed: true,
            ..SubscriptionFilter::default()
        };
        Self::new(queue, None, all_lists)
    }

    /// A legacy session, or the `subscriptions/listen` request with this id. Its resources are counted already.
    pub(crate) fn new(
        queue: Arc<MessageQueue>,
        subscription: Option<RequestId>,
        lists: SubscriptionFilter,
    ) -> Arc<Self> {
        let uris = lists.resource_subscriptions.iter();
        let uris = uris.map(|uri| (uri.clone(), SubscriptionState::Counted)).collect();
        let uris = Mutex::new(Some(uris));
        let loss_notice = queue.add_loss_notice(loss_notice(subscription.clone(), lists.clone()));
        Arc::new(Self { queue, subscription, lists, uris, loss_notice })
    }

    /// Begins to subscribe to a resource. `None` if it is subscribed already or the session is closed.
    pub(crate) fn begin_subscribe<'a>(&'a self, uri: &'a str) -> Option<PendingSubscription<'a>> {
        static N_PENDING: AtomicU64 = AtomicU64::new(0);
        let mut uris = self.uris.lock();
        let uris = uris.as_mut().filter(|uris| !uris.contains_key(uri))?;
        let number = N_PENDING.fetch_add(1, Ordering::Relaxed);
        uris.insert(uri.to_owned(), SubscriptionState::Pending(number));
        Some(PendingSubscription { subscriber: self, uri, number })
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

    pub(crate) fn list_changed(&self, kind: ListKind) {
        if includes_list(&self.lists, kind) {
            // Lossy, because the loss notice repeats every change.
            self.queue.push_lossy(list_changed(kind, self.subscription.as_ref()));
        }
    }

    pub(crate) fn resource_updated(&self, uri: &str) {
        let is_part = |subscribed: &String| is_same_or_below(uri, subscribed);
        if self.uris.lock().iter().flat_map(BTreeMap::keys).any(is_part) {
            self.queue.push_lossy(resource_updated(uri, self.subscription.as_ref()));
        }
    }
}

/// Whether an updated resource is the subscribed one, or a sub-resource of it.
fn is_same_or_below(uri: &str, subscribed: &str) -> bool {
    let below = uri.strip_prefix(subscribed);
    below.is_some_and(|below| {
        below.is_empty() || subscribed.ends_with('/') || below.starts_with(['/', '?', '#'])
    })
}

fn includes_list(filter: &SubscriptionFilter, kind: ListKind) -> bool {
    match kind {
        ListKind::Tools => filter.tools_list_changed,
        ListKind::Prompts => filter.prompts_list_changed,
        ListKind::Resources => filter.resources_list_changed,
    }
}

fn list_changed(kind: ListKind, subscription: Option<&RequestId>) -> Bytes {
    let method = match kind {
        ListKind::Tools => Method::ToolListChanged,
        ListKind::Prompts => Method::PromptListChanged,
        ListKind::Resources => Method::ResourceListChanged,
    };
    let params = subscription.map(|id| json!({ "_meta": subscription_meta(id) }));
    notification(method.as_str(), params.as_ref())
}

fn resource_updated(uri: &str, subscription: Option<&RequestId>) -> Bytes {
    let params = match subscription {
        None => json!({ "uri": uri }),
        Some(id) => json!({ "_meta": subscription_meta(id), "uri": uri }),
    };
    notification(Method::ResourceUpdated.as_str(), Some(&params))
}

/// Spec 2026-07-28, subscriptions: every message names its subscription.
pub(crate) fn subscription_meta(id: &RequestId) -> serde_json::Value {
    json!({ toolrack_mcp::MetaKey::SUBSCRIPTION_ID: id })
}

/// Loss notice of a subscriber: a change of everything that it is subscribed to, since any of the lost messages may have
/// been one. A legacy session also gets the number of lost messages.
fn loss_notice(subscription: Option<RequestId>, granted: SubscriptionFilter) -> LossNotice {
    Box::new(move |n_lost| {
        let subscription = subscription.as_ref();
        let kinds = [ListKind::Tools, ListKind::Prompts, ListKind::Resources];
        let lists = kinds.into_iter().filter(|kind| includes_list(&granted, *kind));
        let lists = lists.map(|kind| list_changed(kind, subscription));
        let uris = granted.resource_subscriptions.iter();
        let uris = uris.map(|uri| resource_updated(uri, subscription));
        let number = subscription.is_none().then(|| loss_message(n_lost));
        number.into_iter().chain(lists).chain(uris).collect()
    })
}

/// Loss notice of the stream of one response: progress and log messages were lost.
pub(crate) fn response_loss_notice() -> LossNotice {
    Box::new(|n_lost| vec![loss_message(n_lost)])
}

fn loss_message(n_lost: u64) -> Bytes {
    let data = format!("{n_lost} notifications were lost because the client read too slowly");
    let params = json!({ "level": LogLevel::Warning, "logger": "toolrack", "data": data });
    notification(Method::LogMessage.as_str(), Some(&params))
}

/// How many clients are subscribed to each resource, by server and URI.
#[derive(Debug, Default)]
pub(crate) struct ResourceSubscriptions {
    counts: Mutex<HashMap<(String, String), usize>>,
    /// Servers whose subscriptions a task is renewing, and whether it has to start over.
    renewing: Mutex<HashMap<Arc<str>, bool>>,
}

impl ResourceSubscriptions {
    /// `false` if another task is renewing the subscriptions of this server. That task then starts over: the server may
    /// have been restarted since it began.
    fn begin_renew(&self, server: &Arc<str>) -> bool {
        match self.renewing.lock().entry(Arc::clone(server)) {
            Entry::Occupied(mut starts_over) => {
                starts_over.insert(true);
                false
            }
            Entry::Vacant(entry) => {
                entry.insert(false);
                true
            }
        }
    }

    /// Whether the task that renews the subscriptions has to start over.
    fn starts_over(&self, server: &str) -> bool {
        self.renewing.lock().get_mut(server).is_some_and(std::mem::take)
    }

    /// Ends the task that renews the subscriptions. `false` if it has to start over instead.
    fn end_renew(&self, server: &Arc<str>) -> bool {
        let mut renewing = self.renewing.lock();
        let starts_over = renewing.remove(server) == Some(true);
        if starts_over {
            renewing.insert(Arc::clone(server), false);
        }
        !starts_over
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

/// Counts one more subscriber of a resource, and subscribes at the server if it is the first.
pub(crate) async fn subscribe(
    shared: &Shared,
    uri: &str,
    style: ErrorStyle,
) -> Result<(), JsonRpcError> {
    let server = shared.subscription_server(uri).await?;
    let key = (server, uri.to_owned());
    // Counted only after the server has agreed, so that a failure leaves no count behind. Two first subscribers may
    // therefore both subscribe at the server.
    if shared.subscriptions.count(&key) == 0 {
        let client = shared.manager.acquire_client(&key.0).await;
        let client = client.map_err(|error| error_mapping::from_manager_error(error, style))?;
        let subscribed = client.subscribe_resource(uri).await;
        subscribed.map_err(|error| error_mapping::from_call_error(error, style))?;
    }
    *shared.subscriptions.counts.lock().entry(key).or_default() += 1;
    Ok(())
}

/// Uncounts one subscriber of a resource. A background task unsubscribes at the server if it was the last.
pub(crate) fn unsubscribe(shared: &Arc<Shared>, uri: &str) {
    if let Some(key) = shared.subscriptions.release(uri) {
        let this = Arc::clone(shared);
        shared.spawn(async move { unsubscribe_at_server(&this, &key).await });
    }
}

async fn unsubscribe_at_server(shared: &Shared, key: &(String, String)) {
    let (server, uri) = key;
    // A server that is not connected has lost its subscriptions already.
    let Ok(connection) = shared.manager.server(server) else { return };
    let Some(client) = connection.client() else { return };
    // Counted again: another client may have subscribed since `release`.
    if shared.subscriptions.count(key) == 0
        && let Err(error) = client.unsubscribe_resource(uri).await
    {
        tracing::debug!(server, %error, "unsubscribe failed");
    }
    // A client that subscribed while the server was unsubscribing has lost its subscription.
    if shared.subscriptions.count(key) > 0 {
        resubscribe(shared, &server.as_str().into()).await;
    }
}

/// Renews all subscriptions at a server that was restarted or has ended one. Updates may have been missed meanwhile, so
/// every renewed resource is reported as updated.
pub(crate) async fn resubscribe(shared: &Shared, server: &Arc<str>) {
    let subscriptions = &shared.subscriptions;
    if !subscriptions.begin_renew(server) {
        return;
    }
    let (mut done, mut n_attempts) = (BTreeSet::new(), 0);
    loop {
        for uri in subscriptions.uris(server) {
            if !done.contains(&uri) && renew(shared, server, &uri).await {
                shared.resource_updated(&uri);
                done.insert(uri);
            }
        }
        n_attempts += 1;
        // Read again: clients subscribe and unsubscribe while this runs.
        let is_complete = subscriptions.uris(server).iter().all(|uri| done.contains(uri));
        let is_done = is_complete || n_attempts == MAX_RENEW_ATTEMPTS;
        if is_done && subscriptions.end_renew(server) {
            if !is_complete {
                tracing::warn!(server = &**server, "resource subscription lost");
            }
            return;
        }
        if is_done || subscriptions.starts_over(server) {
            (done, n_attempts) = (BTreeSet::new(), 0);
        } else {
            sleep(FIRST_RENEW_DELAY * 2_u32.pow(n_attempts - 1)).await;
        }
    }
}

/// Subscribes to one resource again. `false` if the server is not connected or rejects it.
async fn renew(shared: &Shared, server: &str, uri: &str) -> bool {
    let Ok(connection) = shared.manager.server(server) else { return false };
    let Some(client) = connection.client() else { return false };
    let renewed = client.subscribe_resource(uri).await;
    renewed.inspect_err(|error| tracing::debug!(server, %error, "resubscribe failed")).is_ok()
}

#[cfg(test)]
mod tests;
