//! A modern client that wants log messages also while it has no request at work: as long as it listens for changes.

use std::sync::Arc;

use toolrack_mcp::{LogLevel, LogMessage};

use crate::active_request::log_notification;
use crate::gateway::Shared;
use crate::message_queue::Outbox;
use crate::scope::Scope;

/// Where its messages go.
#[derive(Debug)]
pub(crate) struct Ear {
    pub(crate) level: LogLevel,
    out: Arc<Outbox>,
    scope: Scope,
}

impl Ear {
    pub(crate) fn new(shared: &Shared, out: &Arc<Outbox>, level: LogLevel) -> Arc<Self> {
        Arc::new(Self { level, out: Arc::clone(out), scope: shared.scope.clone() })
    }

    pub(crate) fn hear(&self, server: &str, message: &LogMessage) {
        if self.scope.has(server) && message.level >= self.level {
            self.out.tell(log_notification(server, message, self.scope.naming()));
        }
    }
}
