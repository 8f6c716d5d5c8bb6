//! Subscriptions of clients to list changes and resource updates.
//!
//! Legacy sessions and `subscriptions/listen` requests are [`Subscriber`]s. A resource is subscribed to once at its
//! server, however many clients want it: [`ResourceSubscriptions`] counts them, and the last one unsubscribes.
//!
//! **Invariant:** a client is counted once for a resource, and uncounted exactly once, also when it cancels,
//! unsubscribes or disconnects while the server has not yet answered. The subscriptions of other clients stay.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use tokio::runtime::Handle;
use tokio::time::sleep;
use toolrack_mcp::{ListKind, LogLevel, Method, SubscriptionFilter};
use toolrack_transport::{JsonRpcError, RequestId, strip_hidden};

use crate::encode::notification;
use crate::error_mapping::{self, ErrorStyle};
use crate::gateway::Shared;
use crate::message_queue::MessageQueue;

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
    uris: Mutex<Option<BTreeMap<String, Slot>>>,
}

/// A subscription, once its server has answered. Its request holds the slot until then, so a slot that is empty and has
/// no other owner belongs to a request that has failed or was cancelled.
type Slot = Arc<OnceLock<CountedSubscription>>;

fn is_used(slot: &Slot) -> bool {
    slot.get().is_some() || Arc::strong_count(slot) > 1
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
        queue.report_losses();
        Self::new(queue, None, all_lists, Vec::new())
    }

    /// A legacy session, or the `subscriptions/listen` request with this id.
    pub(crate) fn new(
        queue: Arc<MessageQueue>,
        subscription: Option<RequestId>,
        lists: SubscriptionFilter,
        resources: Vec<CountedSubscription>,
    ) -> Arc<Self> {
        let resources = resources.into_iter();
        let uris =
            resources.map(|counted| (counted.uri.clone(), Arc::new(counted.into()))).collect();
        let uris = Mutex::new(Some(uris));
        let subscriber = Arc::new(Self { queue, subscription, lists, uris });
        subscriber.queue.subscribers.add(&subscriber);
        subscriber
    }

    /// Subscribes to a resource, unless it is subscribed already or the session is closed.
    pub(crate) async fn subscribe(
        &self,
        shared: &Arc<Shared>,
        uri: &str,
        style: ErrorStyle,
    ) -> Result<(), JsonRpcError> {
        if let Some(slot) = self.begin_subscribe(uri) {
            let counted = CountedSubscription::open(shared, uri, style).await?;
            // Under the lock: `is_used` must not see the slot empty and then without this request.
            let uris = self.uris.lock();
            slot.get_or_init(|| counted);
            // If the client has unsubscribed or disconnected meanwhile, the slot is dropped here, and so uncounts.
            drop(uris);
        }
        Ok(())
    }

    fn begin_subscribe(&self, uri: &str) -> Option<Slot> {
        let mut uris = self.uris.lock();
        let uris = uris.as_mut()?;
        uris.retain(|_, slot| is_used(slot));
        if uris.contains_key(uri) {
            return None;
        }
        let slot = Slot::default();
        uris.insert(uri.to_owned(), Arc::clone(&slot));
        Some(slot)
    }

    pub(crate) fn unsubscribe(&self, uri: &str) {
        let removed = self.uris.lock().as_mut().and_then(|uris| uris.remove(uri));
        // Without the lock, as in `close`: the last subscriber of a resource starts a task.
        drop(removed);
    }

    /// Unsubscribes from all resources for good.
    pub(crate) fn close(&self) {
        let removed = self.uris.lock().take();
        drop(removed);
    }

    /// Changes of everything that the filter names.
    pub(crate) fn all_changes(&self) -> impl Iterator<Item = Bytes> {
        let lists = included_lists(&self.lists);
        let lists = lists.map(|(_, method)| self.change_message(method, None));
        let uris = self.lists.resource_subscriptions.iter();
        lists.chain(uris.map(|uri| self.change_message(Method::ResourceUpdated, Some(uri))))
    }

    /// Announces the change of a list, or of the resource at `uri`.
    fn change_message(&self, method: Method, uri: Option<&str>) -> Bytes {
        let mut params = Map::new();
        let subscription = self.subscription.as_ref();
        params.extend(subscription.map(|id| ("_meta".to_owned(), subscription_meta(id))));
        params.extend(uri.map(|uri| ("uri".to_owned(), uri.into())));
        notification(method.as_str(), (!params.is_empty()).then_some(&params))
    }

    pub(crate) fn list_changed(&self, kind: ListKind) {
        for (_, method) in included_lists(&self.lists).filter(|(included, _)| *included == kind) {
            // Lossy, because every change is repeated after a loss.
            self.queue.push_lossy(self.change_message(method, None));
        }
    }

    pub(crate) fn resource_updated(&self, uri: &str) {
        let shown = |(subscribed, slot): (&String, &Slot)| {
            let below = path_below(uri, subscribed).filter(|_| is_used(slot))?;
            // The client knows the subscribed URI. The server has chosen the rest, and a model may read it.
            Some(format!("{subscribed}{}", strip_hidden(below)))
        };
        let shown = self.uris.lock().iter().flatten().find_map(shown);
        if let Some(uri) = shown {
            self.queue.push_lossy(self.change_message(Method::ResourceUpdated, Some(&uri)));
        }
    }
}

/// What follows the subscribed URI in that of an updated resource. `None` if it is neither the subscribed resource nor a
/// sub-resource of it.
fn path_below<'a>(uri: &'a str, subscribed: &str) -> Option<&'a str> {
    let below = uri.strip_prefix(subscribed)?;
    let is_below =
        below.is_empty() || subscribed.ends_with('/') || below.starts_with(['/', '?', '#']);
    is_below.then_some(below)
}

/// The lists whose changes the filter includes, with the methods that announce them.
fn included_lists(filter: &SubscriptionFilter) -> impl Iterator<Item = (ListKind, Method)> {
    let tools = (ListKind::Tools, Method::ToolListChanged);
    let prompts = (ListKind::Prompts, Method::PromptListChanged);
    let resources = (ListKind::Resources, Method::ResourceListChanged);
    let tools = filter.tools_list_changed.then_some(tools);
    let prompts = filter.prompts_list_changed.then_some(prompts);
    let resources = filter.resources_list_changed.then_some(resources);
    [tools, prompts, resources].into_iter().flatten()
}

/// Spec 2026-07-28, subscriptions: every message names its subscription.
pub(crate) fn subscription_meta(id: &RequestId) -> Value {
    json!({ toolrack_mcp::MetaKey::SUBSCRIPTION_ID: id })
}

/// Tells a client how many notifications it lost.
pub(crate) fn loss_message(n_lost: u64) -> Bytes {
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
        let mut renewing = self.renewing.lock();
        let is_first = !renewing.contains_key(server);
        renewing.insert(Arc::clone(server), !is_first);
        is_first
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
}

/// One client's part in the subscription to a resource at a server. Dropping it uncounts the client, and a background
/// task unsubscribes at the server if it was the last one.
pub(crate) struct CountedSubscription {
    shared: Arc<Shared>,
    server: String,
    pub(crate) uri: String,
}

impl fmt::Debug for CountedSubscription {
    /// Without `shared`, which has subscriptions of its own.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CountedSubscription({}, {})", self.server, self.uri)
    }
}

impl CountedSubscription {
    /// Counts one more subscriber of a resource, and subscribes at the server if it is the first.
    pub(crate) async fn open(
        shared: &Arc<Shared>,
        uri: &str,
        style: ErrorStyle,
    ) -> Result<Self, JsonRpcError> {
        let server = shared.first_resource_server(uri).await?;
        let key = (server.clone(), uri.to_owned());
        // Counted only after the server has agreed, so that a failure leaves no count behind. Two first subscribers may
        // therefore both subscribe at the server.
        if shared.subscriptions.count(&key) == 0 {
            let client = shared.manager.acquire_client(&server).await;
            let client = client.map_err(|error| error_mapping::from_manager_error(error, style))?;
            let subscribed = client.subscribe_resource(uri).await;
            subscribed.map_err(|error| error_mapping::from_call_error(error, style))?;
        }
        *shared.subscriptions.counts.lock().entry(key).or_default() += 1;
        Ok(Self { shared: Arc::clone(shared), server, uri: uri.to_owned() })
    }
}

impl Drop for CountedSubscription {
    fn drop(&mut self) {
        let key = (std::mem::take(&mut self.server), std::mem::take(&mut self.uri));
        if let Entry::Occupied(mut count) = self.shared.subscriptions.counts.lock().entry(key) {
            *count.get_mut() -= 1;
            if *count.get() > 0 {
                return;
            }
            let (key, _) = count.remove_entry();
            // The runtime may be gone when the last session is dropped, and with it every server.
            if Handle::try_current().is_ok() {
                let shared = Arc::clone(&self.shared);
                self.shared.spawn(async move { unsubscribe_at_server(&shared, &key).await });
            }
        }
    }
}

async fn unsubscribe_at_server(shared: &Shared, key: &(String, String)) {
    let (server, uri) = key;
    // A server that is not connected has lost its subscriptions already.
    let Ok(connection) = shared.manager.server(server) else { return };
    let Some(client) = connection.client() else { return };
    // Counted again: another client may have subscribed meanwhile.
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
