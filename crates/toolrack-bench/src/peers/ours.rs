//! Toolrack's own client: results decoded, results as they came, and each server under a guardian.

use std::sync::Arc;

use anyhow::{Context as _, ensure};
use toolrack_client::{CallOptions, McpClient};
use toolrack_stdio::{Guardian, McpServerDef, StdioOptions};

use super::{Call, Contender, ServerCommand};

/// Servers are started directly, and a result is given as text.
#[derive(Debug, Clone)]
pub(crate) struct Toolrack(Arc<McpClient>);

/// The same, but a result is handed over undecoded.
#[derive(Debug, Clone)]
pub(crate) struct ToolrackRaw(Arc<McpClient>);

/// The same as [`Toolrack`], with a guardian between us and each server.
#[derive(Debug, Clone)]
pub(crate) struct ToolrackGuarded(Toolrack);

async fn connected(server: &ServerCommand, guardian: Guardian) -> anyhow::Result<Arc<McpClient>> {
    let command = server.program.to_str().context("the program has no name in UTF-8")?.to_owned();
    let args = server.args.clone();
    let definition = McpServerDef { command, args, ..McpServerDef::default() };
    let options = StdioOptions { guardian, ..StdioOptions::default() };
    Ok(Arc::new(McpClient::builder("bench").connect_stdio(definition, options).await?))
}

async fn closed(client: Arc<McpClient>) {
    if let Some(client) = Arc::into_inner(client) {
        client.shutdown().await;
    }
}

impl Contender for Toolrack {
    async fn connect(server: &ServerCommand) -> anyhow::Result<Self> {
        connected(server, Guardian::Nobody).await.map(Self)
    }

    async fn call(&self, call: &Call) -> anyhow::Result<usize> {
        let result = self.0.call_tool(call.tool, &call.arguments).await?;
        ensure!(!result.is_error, "the tool failed");
        Ok(result.content.len())
    }

    async fn list_tools(&self) -> anyhow::Result<usize> {
        Ok(self.0.list_tools().await?.items.len())
    }

    async fn known_tools(&self) -> anyhow::Result<usize> {
        Ok(self.0.tools().items.len())
    }

    async fn close(self) -> anyhow::Result<()> {
        closed(self.0).await;
        Ok(())
    }
}

impl Contender for ToolrackRaw {
    async fn connect(server: &ServerCommand) -> anyhow::Result<Self> {
        connected(server, Guardian::Nobody).await.map(Self)
    }

    async fn call(&self, call: &Call) -> anyhow::Result<usize> {
        let options = CallOptions::default();
        let result = self.0.call_tool_raw(call.tool, &call.raw_arguments, &options).await?;
        text_bytes(result.as_bytes()).context("another result than the server sends")
    }

    async fn list_tools(&self) -> anyhow::Result<usize> {
        Ok(self.0.list_tools().await?.items.len())
    }

    async fn close(self) -> anyhow::Result<()> {
        closed(self.0).await;
        Ok(())
    }
}

/// How long the text in an undecoded result is.
fn text_bytes(result: &[u8]) -> Option<usize> {
    let text = result.strip_prefix(br#"{"content":[{"type":"text","text":""#)?;
    Some(text.strip_suffix(br#""}],"isError":false}"#)?.len())
}

impl Contender for ToolrackGuarded {
    async fn connect(server: &ServerCommand) -> anyhow::Result<Self> {
        let client = connected(server, Guardian::Auto).await?;
        Ok(Self(Toolrack(client)))
    }

    async fn call(&self, call: &Call) -> anyhow::Result<usize> {
        self.0.call(call).await
    }

    async fn list_tools(&self) -> anyhow::Result<usize> {
        self.0.list_tools().await
    }

    async fn known_tools(&self) -> anyhow::Result<usize> {
        self.0.known_tools().await
    }

    async fn close(self) -> anyhow::Result<()> {
        self.0.close().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_raw_result_is_measured_where_it_stands() {
        let result = br#"{"content":[{"type":"text","text":"hello"}],"isError":false}"#;
        assert_eq!(text_bytes(result), Some(5));
        assert_eq!(text_bytes(br#"{"content":[]}"#), None);
    }
}
