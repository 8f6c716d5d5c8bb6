//! `subscriptions/listen`: a modern client is told of changes until it has enough.
//!
//! Spec 2026-07-28, subscriptions: the first message says what will be told, and every message names the
//! subscription.

use std::sync::Arc;

use serde_json::json;
use toolrack_mcp::{Method, SubscriptionFilter};

use crate::ear::Ear;
use crate::encode::{Outcome, invalid_params, invalid_request, notification, result};
use crate::gateway::Shared;
use crate::message_queue::Carries;
use crate::params::Params;
use crate::request::Exchange;
use crate::subscriptions::{Listener, tag};

/// Resources of one subscription. More are not granted.
const MAX_URIS: usize = 256;

/// The resources that a subscription holds, until it ends.
struct Held {
    shared: Arc<Shared>,
    uris: Vec<String>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.uris.iter().for_each(|uri| self.shared.unsubscribe(uri));
    }
}

impl Exchange {
    /// Goes on until the client cancels it, which drops it, or the gateway is
    /// about to be closed.
    pub(crate) async fn listen(&self, params: &Params<'_>) -> Outcome {
        if self.out.carries() == Carries::Answers {
            return Err(invalid_request("a subscription is told as text/event-stream"));
        }
        let asked =
            params.notifications.ok_or_else(|| invalid_params("`notifications` is missing"))?;
        let asked: SubscriptionFilter = serde_json::from_str(asked.get())
            .map_err(|fault| invalid_params(format!("`notifications` is bad: {fault}")))?;
        let mut held = Held { shared: Arc::clone(&self.shared), uris: Vec::new() };
        for uri in asked.resource_subscriptions.iter().take(MAX_URIS) {
            match self.shared.subscribe(uri, self.manner()).await {
                Ok(()) => held.uris.push(uri.clone()),
                Err(error) => tracing::debug!(%error, "a subscription is not granted"),
            }
        }
        let granted = SubscriptionFilter { resource_subscriptions: held.uris.clone(), ..asked };
        let acknowledged = json!({ "_meta": tag(&self.id), "notifications": granted });
        let method = Method::SubscriptionAcknowledged.as_str();
        self.out.put(notification(method, &acknowledged));
        let (out, id) = (Arc::clone(&self.out), self.id.clone());
        let listener = Arc::new(Listener::subscription(out, id, granted));
        self.shared.audience.admit(&listener);
        let ear = params.log_level()?.map(|level| Ear::new(&self.shared, &self.out, level));
        if let Some(ear) = &ear {
            self.shared.switchboard.lend(ear);
            self.shared.set_level(ear.level).await;
        }
        self.shared.farewell.cancelled().await;
        result(&json!({ "resultType": "complete", "_meta": tag(&self.id) }))
    }
}
