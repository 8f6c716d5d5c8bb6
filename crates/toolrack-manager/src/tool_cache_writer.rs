//! The task that writes down what was learned of servers, one file at a time and in order.

use std::sync::Arc;

use tokio::sync::mpsc;
use toolrack_config::McpServerConfig;

use crate::tool_cache::{Catalog, Memory};

/// What is to be remembered.
#[derive(Debug)]
pub(crate) struct Note {
    pub(crate) config: Arc<McpServerConfig>,
    pub(crate) memory: Memory,
}

/// Writes until nobody has anything to note any more.
pub(crate) async fn write(catalog: Catalog, mut notes: mpsc::Receiver<Note>) {
    while let Some(Note { config, memory }) = notes.recv().await {
        let (catalog, server) = (catalog.clone(), config.name.clone());
        let saved = tokio::task::spawn_blocking(move || catalog.save(&config, &memory)).await;
        match saved {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(server, %error, "the tools cannot be remembered"),
            Err(error) => tracing::warn!(server, %error, "the tools cannot be remembered"),
        }
    }
}
