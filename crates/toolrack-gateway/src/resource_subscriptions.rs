//! Resources that clients want to hear of: each is subscribed to once at its server, however many want it.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::sleep;

use toolrack_transport::JsonRpcError;

use crate::error_mapping::{self as failure, Manner};
use crate::gateway::Shared;
use crate::lock::lock;

/// How many clients want to hear of each resource, by server and URI.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions {
    wanted: Mutex<HashMap<(String, String), usize>>,
    /// The servers whose subscriptions a task renews.
    renewing: Mutex<HashSet<Arc<str>>>,
}

/// How often a subscription that is not granted is asked for again, with twice the time between two tries each time.
const MAX_TRIES: u32 = 8;
/// The time before the second try. A gateway behind us may have to start its servers first.
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// The renewal of the subscriptions of one server, of which there is one at a time.
struct Renewing<'a> {
    subscriptions: &'a Subscriptions,
    server: Arc<str>,
}

impl Drop for Renewing<'_> {
    fn drop(&mut self) {
        lock(&self.subscriptions.renewing).remove(&self.server);
    }
}

impl Shared {
    /// One more wants to hear of a resource.
    pub(crate) async fn subscribe(&self, uri: &str, manner: Manner) -> Result<(), JsonRpcError> {
        let server = self.teller(uri).await?;
        let key = (server, uri.to_owned());
        if self.subscriptions.count(&key) == 0 {
            let client = self.borrow(&key.0, manner).await?;
            client
                .subscribe_resource(uri)
                .await
                .map_err(|error| failure::of_call(error, manner))?;
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
            self.resubscribe(&key.0.as_str().into()).await;
        }
    }

    /// Subscribes again to everything that is wanted of a server, after it was started anew or has ended a
    /// subscription. What has changed meanwhile nobody knows, so everything counts as changed.
    pub(crate) async fn resubscribe(&self, server: &Arc<str>) {
        let Some(_renewing) = self.subscriptions.renew(server) else { return };
        let mut done = BTreeSet::new();
        let mut pause = FIRST_PAUSE;
        for _ in 0..MAX_TRIES {
            for uri in self.subscriptions.of(server) {
                if !done.contains(&uri) && self.renew(server, &uri).await {
                    self.audience.updated(&uri);
                    done.insert(uri);
                }
            }
            if self.subscriptions.of(server).iter().all(|it| done.contains(it)) {
                return;
            }
            sleep(pause).await;
            pause *= 2;
        }
        tracing::warn!(server = &**server, "a subscription was lost");
    }

    /// Subscribes again to one resource, if the server is there.
    async fn renew(&self, server: &str, uri: &str) -> bool {
        let Ok(connection) = self.manager.server(server) else { return false };
        let Some(client) = connection.client() else { return false };
        let renewed = client.subscribe_resource(uri).await;
        renewed
            .inspect_err(|error| tracing::debug!(server, %error, "a subscription is not renewed"))
            .is_ok()
    }
}

impl Subscriptions {
    /// Whether a task has to renew what is wanted of a server, and not another one is at it.
    fn renew(&self, server: &Arc<str>) -> Option<Renewing<'_>> {
        let is_first = lock(&self.renewing).insert(Arc::clone(server));
        is_first.then(|| Renewing { subscriptions: self, server: Arc::clone(server) })
    }

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
