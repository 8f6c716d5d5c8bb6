//! Session restore: log level and subscriptions in a new HTTP session.
//!
//! **Invariant:** a subscription that cannot be restored is reported as [`Event::SubscriptionEnded`].

use toolrack_mcp::{SetLevelParams, SubscribeParams, SubscriptionFilter};

use crate::event::Event;
use crate::session::{Session, lock};

impl Session {
    /// Spec 2025-11-25, transports §Session Management: a new session starts without the state of the old one.
    pub(crate) async fn restore(&self) {
        let level = *lock(&self.log_level);
        if let Some(level) = level
            && let Err(error) = self.call(&SetLevelParams { level }, self.default_timeout()).await
        {
            tracing::warn!(%error, "cannot restore log level");
        }
        let uris: Vec<String> = lock(&self.legacy_subscriptions).iter().cloned().collect();
        let mut lost = Vec::new();
        let mut renewed = Vec::new();
        for uri in uris {
            match self.call(&SubscribeParams { uri: &uri }, self.default_timeout()).await {
                Ok(_) => renewed.push(uri),
                Err(error) => {
                    tracing::warn!(uri, %error, "cannot restore subscription");
                    // Otherwise each further session would try it and report its end again.
                    lock(&self.legacy_subscriptions).remove(&uri);
                    lost.push(uri);
                }
            }
        }
        if !lost.is_empty() {
            self.incoming.events.emit(Event::SubscriptionEnded { uris: lost });
        }
        // Changes between the two sessions were not announced, so everything counts as changed.
        let capabilities = &self.server.capabilities;
        self.incoming.mark_missed(&SubscriptionFilter {
            tools_list_changed: capabilities.tools.is_some(),
            prompts_list_changed: capabilities.prompts.is_some(),
            resources_list_changed: capabilities.resources.is_some(),
            resource_subscriptions: renewed,
        });
    }
}
