//! How much legacy servers write into the log: as much as the most curious of their clients wants.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::timeout;
use toolrack_manager::McpConnection;
use toolrack_mcp::{Era, LogLevel};

use crate::gateway::Shared;

/// How long a server may take to change its level before it is left as it is.
const PATIENCE: Duration = Duration::from_secs(5);

impl Shared {
    /// A client wants messages from `level` on. Modern servers are told with each request instead.
    pub(crate) async fn set_level(&self, level: LogLevel) {
        let lowest = self.switchboard.lowest_level().map_or(level, |it| it.min(level));
        let servers = self.servers();
        join_all(servers.iter().map(|it| set(it, lowest))).await;
    }

    /// The same for a server that was started anew.
    pub(crate) async fn restore_level(&self, server: &str) {
        if let (Some(lowest), Ok(server)) =
            (self.switchboard.lowest_level(), self.manager.server(server))
        {
            set(&server, lowest).await;
        }
    }
}

async fn set(server: &McpConnection, level: LogLevel) {
    let Some(client) = server.client().filter(|it| it.era() == Era::Legacy) else { return };
    if !client.capabilities().logging {
        return;
    }
    match timeout(PATIENCE, client.set_log_level(level)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(server = server.name(), %error, "the log level stays"),
        Err(_elapsed) => tracing::debug!(server = server.name(), "the log level may stay"),
    }
}
