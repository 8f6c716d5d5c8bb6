//! The prompts and resources of all servers, fetched when somebody asks and kept while they are good.
//!
//! Tools are not here: the manager keeps them.
//!
//! **Invariant:** a list is never used for another launch of its server, nor after the server said that it
//! changed. A server that cannot be asked in time is left out, and the others are shown; one that is alone is not
//! left out, but says why.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, timeout};
use toolrack_client::{CallError, Listing, McpClient};
use toolrack_manager::{McpConnection, McpManager, RackError};
use toolrack_mcp::{Prompt, Resource, ResourceTemplate, ServerCapabilities};
use toolrack_transport::JsonRpcError;
use toolrack_transport::{BoxFuture, Delivery};

use crate::error_mapping::{self as failure, Manner};
use crate::lock::lock;
use crate::scope::Scope;

/// How long one server may take to list something before it is left out.
const LIST_PATIENCE: Duration = Duration::from_secs(10);
/// How long a list tells the way to a server that does not say when it changes.
const WAY_AGE: Duration = Duration::from_secs(30);

/// What a list is wanted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To be shown.
    Show,
    /// To find out whose something is.
    Way,
}

impl Purpose {
    /// How old a list may be if its server does not say when it changes.
    fn age(self) -> Duration {
        match self {
            Purpose::Show => Duration::ZERO,
            Purpose::Way => WAY_AGE,
        }
    }
}

/// The lists of one kind, by server.
#[derive(Debug)]
pub(crate) struct Shelf<T> {
    kept: Mutex<HashMap<String, Kept<T>>>,
}

#[derive(Debug)]
struct Kept<T> {
    launch: Option<u64>,
    fetched: Instant,
    listing: Arc<Listing<T>>,
}

/// The list of one server.
pub(crate) type Part<T> = (String, Arc<Listing<T>>);

/// Everything that is kept.
#[derive(Debug, Default)]
pub(crate) struct Catalogue {
    pub(crate) prompts: Shelf<Prompt>,
    pub(crate) resources: Shelf<Resource>,
    pub(crate) templates: Shelf<ResourceTemplate>,
}

/// Something that servers list.
pub(crate) trait Listable: Sized + Send + Sync + 'static {
    fn fetch(client: &McpClient) -> BoxFuture<'_, Result<Arc<Listing<Self>>, CallError>>;
    /// Whether a server has such, and whether it says when they change.
    fn offer(capabilities: &ServerCapabilities) -> Option<bool>;
}

impl Listable for Prompt {
    fn fetch(client: &McpClient) -> BoxFuture<'_, Result<Arc<Listing<Self>>, CallError>> {
        Box::pin(client.list_prompts())
    }

    fn offer(capabilities: &ServerCapabilities) -> Option<bool> {
        capabilities.prompts.map(|it| it.list_changed)
    }
}

impl Listable for Resource {
    fn fetch(client: &McpClient) -> BoxFuture<'_, Result<Arc<Listing<Self>>, CallError>> {
        Box::pin(client.list_resources())
    }

    fn offer(capabilities: &ServerCapabilities) -> Option<bool> {
        capabilities.resources.map(|it| it.list_changed)
    }
}

impl Listable for ResourceTemplate {
    fn fetch(client: &McpClient) -> BoxFuture<'_, Result<Arc<Listing<Self>>, CallError>> {
        Box::pin(client.list_resource_templates())
    }

    fn offer(capabilities: &ServerCapabilities) -> Option<bool> {
        capabilities.resources.map(|it| it.list_changed)
    }
}

impl<T> Default for Shelf<T> {
    fn default() -> Self {
        Self { kept: Mutex::default() }
    }
}

impl<T: Listable> Shelf<T> {
    /// The lists of all servers that run and have such, in the order of the servers.
    pub(crate) async fn of_all(
        &self,
        manager: &McpManager,
        scope: &Scope,
        purpose: Purpose,
    ) -> Vec<Part<T>> {
        let servers = manager.servers();
        let seen = servers.iter().filter(|it| scope.has(it.name()));
        let parts = join_all(seen.map(|it| async move {
            let part = self.of_one(it, purpose).await;
            part.unwrap_or_else(|error| {
                tracing::warn!(server = it.name(), %error, "a list was left out");
                None
            })
        }));
        parts.await.into_iter().flatten().collect()
    }

    /// The lists that a client is shown. A server that is alone has nobody for whose sake it could be left out.
    pub(crate) async fn to_show(
        &self,
        manager: &McpManager,
        scope: &Scope,
        manner: Manner,
    ) -> Result<Vec<Part<T>>, JsonRpcError> {
        let Scope::Server(name) = scope else {
            return Ok(self.of_all(manager, scope, Purpose::Show).await);
        };
        let server = manager.server(name).map_err(|error| failure::of_rack(error, manner))?;
        if server.state().failure().is_some() {
            let (server, state) = (name.clone(), server.state().clone());
            return Err(failure::of_rack(RackError::NotConnected { server, state }, manner));
        }
        let part = self.of_one(&server, Purpose::Show).await;
        Ok(part.map_err(|error| failure::of_call(error, manner))?.into_iter().collect())
    }

    /// What a server says has changed is fetched again when it is next asked for.
    pub(crate) fn forget(&self, server: &str) {
        lock(&self.kept).remove(server);
    }

    /// The list of a server, if it runs and has such.
    async fn of_one(
        &self,
        server: &McpConnection,
        purpose: Purpose,
    ) -> Result<Option<Part<T>>, CallError> {
        let Some(client) = server.client() else { return Ok(None) };
        let Some(tells) = T::offer(client.capabilities()) else { return Ok(None) };
        let name = server.name().to_owned();
        let most = if tells { Duration::MAX } else { purpose.age() };
        if let Some(kept) = self.kept(&name, server.launch(), most) {
            return Ok(Some((name, kept)));
        }
        let fetched = Instant::now();
        let (waited, delivery) = (LIST_PATIENCE, Delivery::Unknown);
        let listing = timeout(LIST_PATIENCE, T::fetch(client)).await;
        let listing = listing.unwrap_or(Err(CallError::TimedOut { waited, delivery }))?;
        let kept = Kept { launch: server.launch(), fetched, listing: Arc::clone(&listing) };
        lock(&self.kept).insert(name.clone(), kept);
        Ok(Some((name, listing)))
    }

    fn kept(&self, server: &str, launch: Option<u64>, most: Duration) -> Option<Arc<Listing<T>>> {
        let kept = lock(&self.kept);
        let kept = kept.get(server).filter(|it| it.launch == launch)?;
        (kept.fetched.elapsed() < most).then(|| Arc::clone(&kept.listing))
    }
}

/// How much of `uri` is spelled out in `template`, if the one can be made from the other as far as that is told
/// by what stands before the first variable.
pub(crate) fn fits(template: &str, uri: &str) -> Option<usize> {
    let fixed = template.split('{').next().unwrap_or_default();
    uri.starts_with(fixed).then_some(fixed.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_told_apart_by_what_they_spell_out() {
        let check = |template: &str, uri: &str, expected: Option<usize>| {
            assert_eq!(fits(template, uri), expected, "{template} {uri}");
        };
        check("test://template/{id}/data", "test://template/7/data", Some(16));
        check("test://{+any}", "test://x", Some(7));
        check("file:///{path}", "test://x", None);
        check("{all}", "x:", Some(0));
    }
}
