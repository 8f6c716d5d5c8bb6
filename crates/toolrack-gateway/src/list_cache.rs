//! Cache of the servers' prompt, resource and resource template lists.
//!
//! Lists are fetched on demand. Tools are not here: the manager caches them.
//!
//! **Invariant:** a cached list is never used for another launch of its server, nor after the server announced a
//! change.
//! **Invariant:** a server that does not list is asked once in [`MAX_ROUTING_AGE`] to find the server of a prompt or
//! resource.
//! **Invariant:** a server that does not list in time is left out, so that clients see the lists of the others. On the
//! endpoint of a single server the error is returned instead.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};
use toolrack_client::{CallError, List, McpClient};
use toolrack_manager::{ManagerError, McpConnection};
use toolrack_mcp::{ErrorCode, Prompt, Resource, ResourceTemplate, ServerCapabilities};
use toolrack_transport::{BoxFuture, Delivery, JsonRpcError};

use crate::error_mapping::{self, ErrorStyle};
use crate::gateway::{Scope, Shared};

/// How long a server may take to list before it is left out.
const LIST_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the list of a server without `list_changed` is used to find the server of a prompt or resource.
pub(crate) const MAX_ROUTING_AGE: Duration = Duration::from_secs(30);

/// All cached lists.
#[derive(Debug)]
pub(crate) struct ListCache {
    pub(crate) prompts: CachedLists<Prompt>,
    pub(crate) resources: CachedLists<Resource>,
    pub(crate) templates: CachedLists<ResourceTemplate>,
}

impl Default for ListCache {
    fn default() -> Self {
        let announces_resources =
            |offered: &ServerCapabilities| offered.resources.map(|list| list.list_changed);
        Self {
            prompts: CachedLists::new(
                |client| Box::pin(client.list_prompts()),
                |offered| offered.prompts.map(|list| list.list_changed),
            ),
            resources: CachedLists::new(
                |client| Box::pin(client.list_resources()),
                announces_resources,
            ),
            templates: CachedLists::new(
                |client| Box::pin(client.list_resource_templates()),
                announces_resources,
            ),
        }
    }
}

impl ListCache {
    /// Drops all lists of a server.
    pub(crate) fn invalidate(&self, server: &str) {
        self.prompts.invalidate(server);
        self.resources.invalidate(server);
        self.templates.invalidate(server);
    }
}

type Fetch<T> = fn(&McpClient) -> BoxFuture<'_, Result<Arc<List<T>>, CallError>>;

/// Cached lists of one kind, by server.
#[derive(Debug)]
pub(crate) struct CachedLists<T> {
    fetch: Fetch<T>,
    /// Whether the server announces list changes. `None` if it has no such list.
    announces_changes: fn(&ServerCapabilities) -> Option<bool>,
    lists: Mutex<HashMap<String, CachedList<T>>>,
}

/// The number of changes that a server has announced, and its list.
type CachedList<T> = (u64, Option<FetchedList<T>>);

/// A list, when it was fetched, and the launch of the server that it is from. `None` if the server did not list.
type FetchedList<T> = (Option<Arc<List<T>>>, Instant, Option<u64>);

/// Name of a server, and its list.
pub(crate) type ServerList<T> = (String, Arc<List<T>>);

impl<T> CachedLists<T> {
    fn new(fetch: Fetch<T>, announces_changes: fn(&ServerCapabilities) -> Option<bool>) -> Self {
        Self { fetch, announces_changes, lists: Mutex::default() }
    }

    /// The lists of all connected servers in scope, in the order of the servers. A server that fails is left out. A
    /// list is at most `max_age` old, unless its server announces changes.
    pub(crate) async fn all(&self, shared: &Shared, max_age: Duration) -> Vec<ServerList<T>> {
        let servers = shared.servers();
        let lists = join_all(servers.iter().map(|server| async move {
            let list = self.of_server(server, max_age).await;
            list.unwrap_or_else(|error| {
                tracing::warn!(server = server.name(), %error, "list left out");
                None
            })
        }));
        lists.await.into_iter().flatten().collect()
    }

    /// The lists to show to a client. On the endpoint of a single server, its failure is the error.
    pub(crate) async fn for_client(
        &self,
        shared: &Shared,
        style: ErrorStyle,
    ) -> Result<Vec<ServerList<T>>, JsonRpcError> {
        let Scope::Server(name) = &*shared.scope else {
            return Ok(self.all(shared, Duration::ZERO).await);
        };
        let to_error = |error: ManagerError| error_mapping::from_manager_error(error, style);
        let server = shared.manager.server(name).map_err(to_error)?;
        if server.state().failure().is_some() {
            let (server, state) = (name.clone(), server.state().clone());
            return Err(to_error(ManagerError::NotConnected { server, state }));
        }
        let list = self.of_server(&server, Duration::ZERO).await;
        let list = list.map_err(|error| error_mapping::from_call_error(error, style))?;
        Ok(list.into_iter().collect())
    }

    /// Drops the list of a server that announced a change. The next use fetches it.
    pub(crate) fn invalidate(&self, server: &str) {
        let mut lists = self.lists.lock();
        let (n_changes, list) = lists.entry(server.to_owned()).or_default();
        *n_changes += 1;
        *list = None;
    }

    /// The list of a server, cached or fetched. `None` if the server is not connected, has no such list, or has failed
    /// to list less than `max_age` ago.
    async fn of_server(
        &self,
        server: &McpConnection,
        max_age: Duration,
    ) -> Result<Option<ServerList<T>>, CallError> {
        let Some(client) = server.client() else { return Ok(None) };
        let Some(announces_changes) = (self.announces_changes)(client.capabilities()) else {
            return Ok(None);
        };
        // A server that announces changes invalidates its list itself.
        let max_list_age = if announces_changes { Duration::MAX } else { max_age };
        let (name, launch) = (server.name().to_owned(), server.launch());
        let (cached, n_changes) = self.cached(&name, launch, [max_list_age, max_age]);
        if let Some(list) = cached {
            return Ok(list.map(|list| (name, list)));
        }
        // Taken before the request, so that the age of the list is never underestimated.
        let fetched = Instant::now();
        let (waited, delivery) = (LIST_TIMEOUT, Delivery::Unknown);
        let list = timeout(LIST_TIMEOUT, (self.fetch)(client)).await;
        let list = match list.unwrap_or(Err(CallError::TimedOut { waited, delivery })) {
            // Servers that declare resources often have no templates, and do not know the method.
            Err(CallError::Refused(error)) if error.code == ErrorCode::METHOD_NOT_FOUND.0 => {
                Ok(Arc::default())
            }
            list => list,
        };
        self.store(&name, n_changes, (list.as_ref().ok().map(Arc::clone), fetched, launch));
        list.map(|list| Some((name, list)))
    }

    /// The cached list of a server, and how many changes the server has announced. A list and a failure have different
    /// greatest ages.
    fn cached(
        &self,
        server: &str,
        launch: Option<u64>,
        [max_list_age, max_failure_age]: [Duration; 2],
    ) -> (Option<Option<Arc<List<T>>>>, u64) {
        let lists = self.lists.lock();
        let Some((n_changes, list)) = lists.get(server) else { return (None, 0) };
        let is_valid = |(list, fetched, of_launch): &&FetchedList<T>| {
            let max_age = if list.is_some() { max_list_age } else { max_failure_age };
            *of_launch == launch && fetched.elapsed() < max_age
        };
        (list.as_ref().filter(is_valid).map(|(list, ..)| list.clone()), *n_changes)
    }

    /// Stores a list, unless the server has announced a change since the list was requested.
    fn store(&self, server: &str, n_changes: u64, fetched: FetchedList<T>) {
        let mut lists = self.lists.lock();
        let (n_announced, list) = lists.entry(server.to_owned()).or_default();
        if *n_announced == n_changes {
            *list = Some(fetched);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_fetched_before_a_change_is_not_cached() {
        let ListCache { prompts, .. } = ListCache::default();
        let store = |n_changes| {
            prompts.store("s", n_changes, (Some(Arc::default()), Instant::now(), Some(1)));
        };
        let cached = |launch| prompts.cached("s", Some(launch), [Duration::MAX; 2]);
        let (_, n_changes) = cached(1);
        prompts.invalidate("s");
        store(n_changes);
        let (list, n_changes) = cached(1);
        assert!(list.is_none(), "the server announced a change while it was fetched");
        store(n_changes);
        assert!(cached(1).0.is_some());
        assert!(cached(2).0.is_none(), "another launch");
        prompts.invalidate("s");
        assert!(cached(1).0.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn failure_to_list_is_remembered_for_a_while() {
        let ListCache { prompts, .. } = ListCache::default();
        prompts.store("s", 0, (None, Instant::now(), Some(1)));
        let cached = |max_age| prompts.cached("s", Some(1), [Duration::MAX, max_age]).0;
        assert!(matches!(cached(MAX_ROUTING_AGE), Some(None)));
        assert!(cached(Duration::ZERO).is_none(), "a client that lists asks again");
        tokio::time::advance(MAX_ROUTING_AGE).await;
        assert!(cached(MAX_ROUTING_AGE).is_none());
    }
}
