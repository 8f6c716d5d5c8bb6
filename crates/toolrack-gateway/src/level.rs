//! How much legacy servers write into the log: as much as the most curious of their clients wants. Modern ones are told
//! with each request; only a gateway behind this one is told for the time between requests, too.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::timeout;
use toolrack_client::McpClient;
use toolrack_manager::McpConnection;
use toolrack_mcp::{Era, LogLevel};

use crate::gateway::{Behind, Shared};

/// How long a server may take to change its level before it is left as it is.
const PATIENCE: Duration = Duration::from_secs(5);

impl Shared {
    /// A client wants messages from `level` on.
    pub(crate) async fn set_level(&self, level: LogLevel) {
        let lowest = self.switchboard.lowest_level().map_or(level, |it| it.min(level));
        let servers = self.servers();
        join_all(servers.iter().map(|it| self.set(it, lowest))).await;
    }

    /// The same for a server that was started anew.
    pub(crate) async fn restore_level(&self, server: &str) {
        if let (Some(lowest), Ok(server)) =
            (self.switchboard.lowest_level(), self.manager.server(server))
        {
            self.set(&server, lowest).await;
        }
    }

    async fn set(&self, server: &McpConnection, level: LogLevel) {
        let Some(client) = server.client().filter(|it| it.capabilities().logging) else { return };
        match (client.era(), self.options.behind) {
            (Era::Legacy, _) => tell(server, client, level).await,
            (Era::Modern, Behind::Gateway) => client.listen_to_log(level),
            (Era::Modern, Behind::Servers) => {}
        }
    }
}

async fn tell(server: &McpConnection, client: &McpClient, level: LogLevel) {
    match timeout(PATIENCE, client.set_log_level(level)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(server = server.name(), %error, "the log level stays"),
        Err(_elapsed) => tracing::debug!(server = server.name(), "the log level may stay"),
    }
}
