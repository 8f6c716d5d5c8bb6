//! Resources that clients want to hear of: each is subscribed to once at its server, however many want it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use toolrack_mcp::Era;
use toolrack_rpc::JsonRpcError;

use crate::failure;
use crate::gateway::Shared;
use crate::lock::lock;

/// How many clients want to hear of each resource, by server and URI.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions {
    wanted: Mutex<HashMap<(String, String), usize>>,
}

impl Shared {
    /// One more wants to hear of a resource.
    pub(crate) async fn subscribe(&self, uri: &str, era: Era) -> Result<(), JsonRpcError> {
        let server = self.owner(uri).await?;
        let key = (server, uri.to_owned());
        if self.subscriptions.count(&key) == 0 {
            let client = self.borrow(&key.0, era).await?;
            client.subscribe_resource(uri).await.map_err(|error| failure::of_call(error, era))?;
        }
        *lock(&self.subscriptions.wanted).entry(key).or_default() += 1;
        Ok(())
    }

    /// One less wants to hear of a resource. The server is told by a task of the gateway when it was the last.
    pub(crate) fn unsubscribe(self: &Arc<Self>, uri: &str) {
        let Some(key) = self.subscriptions.release(uri) else { return };
        let shared = Arc::clone(self);
        self.tracker.spawn(async move {
            tokio::select! {
                biased;
                () = shared.stop.cancelled() => {}
                () = shared.let_go(&key) => {}
            }
        });
    }

    async fn let_go(&self, key: &(String, String)) {
        let Ok(connection) = self.manager.server(&key.0) else { return };
        let Some(client) = connection.client() else { return };
        if self.subscriptions.count(key) == 0
            && let Err(error) = client.unsubscribe_resource(&key.1).await
        {
            tracing::debug!(server = key.0, %error, "a subscription could not be ended");
        }
        // Somebody may have come meanwhile.
        if self.subscriptions.count(key) > 0 {
            self.resubscribe(&key.0).await;
        }
    }

    /// Subscribes again to everything that is wanted of a server, after it was started anew.
    pub(crate) async fn resubscribe(&self, server: &str) {
        let Ok(connection) = self.manager.server(server) else { return };
        let Some(client) = connection.client() else { return };
        for uri in self.subscriptions.of(server) {
            if let Err(error) = client.subscribe_resource(&uri).await {
                tracing::warn!(server, %error, "a subscription was lost");
            }
        }
    }
}

impl Subscriptions {
    fn count(&self, key: &(String, String)) -> usize {
        lock(&self.wanted).get(key).copied().unwrap_or_default()
    }

    fn of(&self, server: &str) -> Vec<String> {
        let wanted = lock(&self.wanted);
        wanted.keys().filter(|it| it.0 == server).map(|it| it.1.clone()).collect()
    }

    /// Counts one less, and gives the server and the URI if that was the last.
    fn release(&self, uri: &str) -> Option<(String, String)> {
        let mut wanted = lock(&self.wanted);
        let key = wanted.keys().find(|it| it.1 == uri)?.clone();
        let count = wanted.get_mut(&key)?;
        *count -= 1;
        if *count > 0 {
            return None;
        }
        wanted.remove(&key);
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_one_lets_go() {
        let subscriptions = Subscriptions::default();
        let key = ("s".to_owned(), "u:".to_owned());
        lock(&subscriptions.wanted).insert(key.clone(), 2);
        assert_eq!(subscriptions.release("u:"), None);
        assert_eq!(subscriptions.of("s"), ["u:"]);
        assert_eq!(subscriptions.release("u:"), Some(key.clone()));
        assert_eq!(subscriptions.release("u:"), None);
        assert_eq!(subscriptions.count(&key), 0);
    }
}
