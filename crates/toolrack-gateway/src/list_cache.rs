//! Cache of the servers' prompt, resource and resource template lists.
//!
//! Lists are fetched on demand. Tools are not here: the manager caches them.
//!
//! **Invariant:** a cached list is never used for another launch of its server, nor after the server announced a
//! change.
//! **Invariant:** a server that does not list in time is left out, so that clients see the lists of the others. On the
//! endpoint of a single server the error is returned instead.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};
use toolrack_client::{CallError, List, McpClient};
use toolrack_manager::{ManagerError, McpConnection, McpManager};
use toolrack_mcp::{Prompt, Resource, ResourceTemplate, ServerCapabilities};
use toolrack_transport::JsonRpcError;
use toolrack_transport::{BoxFuture, Delivery};

use crate::error_mapping::{self, ErrorStyle};
use crate::gateway::Scope;

/// How long a server may take to list before it is left out.
const LIST_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the list of a server without `list_changed` is used for routing.
const MAX_ROUTING_AGE: Duration = Duration::from_secs(30);

/// What a list is needed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Shown to a client.
    List,
    /// To find the server of a prompt or resource.
    Routing,
}

impl Purpose {
    /// Maximum age of the list of a server without `list_changed`.
    fn max_age(self) -> Duration {
        match self {
            Purpose::List => Duration::ZERO,
            Purpose::Routing => MAX_ROUTING_AGE,
        }
    }
}

/// All cached lists.
#[derive(Debug, Default)]
pub(crate) struct ListCache {
    pub(crate) prompts: CachedLists<Prompt>,
    pub(crate) resources: CachedLists<Resource>,
    pub(crate) templates: CachedLists<ResourceTemplate>,
}

/// Cached lists of one kind, by server.
#[derive(Debug)]
pub(crate) struct CachedLists<T> {
    lists: Mutex<HashMap<String, CachedList<T>>>,
}

#[derive(Debug)]
struct CachedList<T> {
    launch: Option<u64>,
    fetched: Instant,
    list: Arc<List<T>>,
}

/// Name of a server, and its list.
pub(crate) type ServerList<T> = (String, Arc<List<T>>);

/// An entry of a list that the cache holds.
pub(crate) trait Listable: Sized + Send + Sync + 'static {
    fn fetch(client: &McpClient) -> BoxFuture<'_, Result<Arc<List<Self>>, CallError>>;
    /// Whether the server announces list changes. `None` if it has no such list.
    fn announces_changes(capabilities: &ServerCapabilities) -> Option<bool>;
}

impl Listable for Prompt {
    fn fetch(client: &McpClient) -> BoxFuture<'_, Result<Arc<List<Self>>, CallError>> {
        Box::pin(client.list_prompts())
    }

    fn announces_changes(capabilities: &ServerCapabilities) -> Option<bool> {
        capabilities.prompts.map(|prompts| prompts.list_changed)
    }
}

impl Listable for Resource {
    fn fetch(client: &McpClient) -> BoxFuture<'_, Result<Arc<List<Self>>, CallError>> {
        Box::pin(client.list_resources())
    }

    fn announces_changes(capabilities: &ServerCapabilities) -> Option<bool> {
        capabilities.resources.map(|resources| resources.list_changed)
    }
}

impl Listable for ResourceTemplate {
    fn fetch(client: &McpClient) -> BoxFuture<'_, Result<Arc<List<Self>>, CallError>> {
        Box::pin(client.list_resource_templates())
    }

    fn announces_changes(capabilities: &ServerCapabilities) -> Option<bool> {
        capabilities.resources.map(|resources| resources.list_changed)
    }
}

impl<T> Default for CachedLists<T> {
    fn default() -> Self {
        Self { lists: Mutex::default() }
    }
}

impl<T: Listable> CachedLists<T> {
    /// The lists of all connected servers in scope, in the order of the servers. A server that fails is left out.
    pub(crate) async fn all(
        &self,
        manager: &McpManager,
        scope: &Scope,
        purpose: Purpose,
    ) -> Vec<ServerList<T>> {
        let servers = manager.servers();
        let in_scope = servers.iter().filter(|server| scope.contains(server.name()));
        let lists = join_all(in_scope.map(|server| async move {
            let list = self.of_server(server, purpose).await;
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
        manager: &McpManager,
        scope: &Scope,
        style: ErrorStyle,
    ) -> Result<Vec<ServerList<T>>, JsonRpcError> {
        let Scope::Server(name) = scope else {
            return Ok(self.all(manager, scope, Purpose::List).await);
        };
        let to_error = |error: ManagerError| error_mapping::from_manager_error(error, style);
        let server = manager.server(name).map_err(to_error)?;
        if server.state().failure().is_some() {
            let (server, state) = (name.clone(), server.state().clone());
            return Err(to_error(ManagerError::NotConnected { server, state }));
        }
        let list = self.of_server(&server, Purpose::List).await;
        let list = list.map_err(|error| error_mapping::from_call_error(error, style))?;
        Ok(list.into_iter().collect())
    }

    /// Drops the list of a server that announced a change. The next use fetches it.
    pub(crate) fn invalidate(&self, server: &str) {
        self.lists.lock().remove(server);
    }

    /// The list of a server, cached or fetched. `None` if the server is not connected or has no such list.
    async fn of_server(
        &self,
        server: &McpConnection,
        purpose: Purpose,
    ) -> Result<Option<ServerList<T>>, CallError> {
        let Some(client) = server.client() else { return Ok(None) };
        let Some(announces) = T::announces_changes(client.capabilities()) else { return Ok(None) };
        let name = server.name().to_owned();
        // A server that announces changes invalidates its list itself.
        let max_age = if announces { Duration::MAX } else { purpose.max_age() };
        if let Some(list) = self.cached(&name, server.launch(), max_age) {
            return Ok(Some((name, list)));
        }
        // Taken before the request, so that the age of the list is never underestimated.
        let fetched = Instant::now();
        let (waited, delivery) = (LIST_TIMEOUT, Delivery::Unknown);
        let list = timeout(LIST_TIMEOUT, T::fetch(client)).await;
        let list = list.unwrap_or(Err(CallError::TimedOut { waited, delivery }))?;
        let cached = CachedList { launch: server.launch(), fetched, list: Arc::clone(&list) };
        self.lists.lock().insert(name.clone(), cached);
        Ok(Some((name, list)))
    }

    fn cached(&self, server: &str, launch: Option<u64>, max_age: Duration) -> Option<Arc<List<T>>> {
        let lists = self.lists.lock();
        let cached = lists.get(server).filter(|cached| cached.launch == launch)?;
        (cached.fetched.elapsed() < max_age).then(|| Arc::clone(&cached.list))
    }
}

/// Length of the fixed prefix of a URI template, up to its first variable, if `uri` begins with it.
pub(crate) fn template_prefix_len(template: &str, uri: &str) -> Option<usize> {
    let prefix = template.split('{').next().unwrap_or_default();
    uri.starts_with(prefix).then_some(prefix.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_match_by_their_fixed_prefix() {
        let check = |template: &str, uri: &str, expected: Option<usize>| {
            assert_eq!(template_prefix_len(template, uri), expected, "{template} {uri}");
        };
        check("test://template/{id}/data", "test://template/7/data", Some(16));
        check("test://{+any}", "test://x", Some(7));
        check("file:///{path}", "test://x", None);
        check("{all}", "x:", Some(0));
    }
}
