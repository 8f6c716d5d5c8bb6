//! Session restore: log level and subscriptions in a new HTTP session.
//!
//! **Invariant:** a subscription that cannot be restored is reported as [`Event::SubscriptionEnded`].

use toolrack_mcp::{SetLevelParams, SubscribeParams, SubscriptionFilter};

use crate::client::CallOptions;
use crate::event::Event;
use crate::session::Session;

impl Session {
    /// Spec 2025-11-25, transports §Session Management: a new session starts without the state of the old one.
    pub(crate) async fn restore(&self) {
        let level = *self.log_level.lock();
        if let Some(level) = level
            && let Err(error) = self.call(&SetLevelParams { level }, &CallOptions::default()).await
        {
            tracing::warn!(%error, "cannot restore log level");
        }
        let uris: Vec<String> = self.legacy_subscriptions.lock().iter().cloned().collect();
        let mut lost = Vec::new();
        let mut renewed = Vec::new();
        for uri in uris {
            match self.call(&SubscribeParams { uri: &uri }, &CallOptions::default()).await {
                Ok(_) => renewed.push(uri),
                Err(error) => {
                    tracing::warn!(uri, %error, "cannot restore subscription");
                    // Otherwise each further session would try it and report its end again.
                    self.legacy_subscriptions.lock().remove(&uri);
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
