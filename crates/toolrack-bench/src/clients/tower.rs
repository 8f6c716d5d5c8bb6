//! `tower-mcp`.

use std::sync::Arc;

use anyhow::Context as _;
use tower_mcp::client::{McpClient, StdioClientTransport};

use super::{Call, Caller, Contender, MAX_MESSAGE_BYTES, ServerCommand};

#[derive(Clone)]
pub(crate) struct Tower(Arc<McpClient>);

impl Contender for Tower {
    async fn connect(server: &ServerCommand) -> anyhow::Result<Self> {
        let transport = StdioClientTransport::spawn_command(&mut server.tokio()).await?;
        let client = McpClient::connect(transport.max_frame_len(MAX_MESSAGE_BYTES)).await?;
        client.initialize("toolrack-bench", "1.0.0").await?;
        Ok(Self(Arc::new(client)))
    }

    async fn list_tools(&self) -> anyhow::Result<usize> {
        Ok(self.0.list_all_tools().await?.len())
    }
}

impl Caller for Tower {
    async fn call(&self, call: &Call) -> anyhow::Result<usize> {
        let result = self.0.call_tool(call.tool, call.arguments.clone()).await?;
        Ok(result.first_text().context("no text")?.len())
    }

    async fn close(self) -> anyhow::Result<()> {
        if let Some(client) = Arc::into_inner(self.0) {
            client.shutdown().await?;
        }
        Ok(())
    }
}
