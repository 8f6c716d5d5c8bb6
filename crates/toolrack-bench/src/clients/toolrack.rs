//! Toolrack's client, over stdio and HTTP.

use anyhow::{Context as _, ensure};
use toolrack_client::{CallOptions, McpClient};
use toolrack_http::{HttpOptions, HttpServerDef};
use toolrack_mcp::Arguments;
use toolrack_stdio::{Guardian, McpServerDef, StdioOptions};

use super::{BenchClient, Call, text_bytes};
use crate::server_process::ServerCommand;

/// A client with decoded or raw results.
#[derive(Debug)]
pub(crate) struct Toolrack<const RAW: bool>(McpClient);

impl<const RAW: bool> Toolrack<RAW> {
    /// Starts a stdio server without a guardian.
    pub(crate) async fn start(server: &ServerCommand) -> anyhow::Result<Self> {
        Self::start_with(server, Guardian::None).await
    }

    pub(crate) async fn start_guarded(server: &ServerCommand) -> anyhow::Result<Self> {
        Self::start_with(server, Guardian::Auto).await
    }

    async fn start_with(server: &ServerCommand, guardian: Guardian) -> anyhow::Result<Self> {
        let (command, args) = (server.program_text()?, server.args.clone());
        let definition = McpServerDef { command, args, ..McpServerDef::default() };
        let options = StdioOptions { guardian, ..StdioOptions::default() };
        Ok(Self(McpClient::builder("bench").connect_stdio(definition, options).await?))
    }

    pub(crate) async fn connect_http(url: &str) -> anyhow::Result<Self> {
        let definition = HttpServerDef::new(url);
        let builder = McpClient::builder("bench");
        Ok(Self(builder.connect_http(definition, HttpOptions::default()).await?))
    }
}

/// Calls a tool and returns the length of the text in its decoded or raw result.
pub(super) async fn call<const RAW: bool>(
    client: &McpClient,
    call: &Call,
) -> anyhow::Result<usize> {
    if RAW {
        let options = CallOptions::default();
        let result =
            client.call_tool_raw(call.tool, Arguments::Raw(&call.raw_arguments), &options).await?;
        return text_bytes(result.as_bytes()).context("unexpected result");
    }
    let result = client.call_tool(call.tool, &call.arguments).await?;
    ensure!(!result.is_error, "the tool failed: {}", result.content);
    Ok(result.content.len())
}

impl<const RAW: bool> BenchClient for Toolrack<RAW> {
    async fn call(&self, prepared: &Call) -> anyhow::Result<usize> {
        call::<RAW>(&self.0, prepared).await
    }

    async fn close(self) -> anyhow::Result<()> {
        self.0.shutdown().await;
        Ok(())
    }

    async fn list_tools(&self) -> anyhow::Result<usize> {
        Ok(self.0.list_tools().await?.items.len())
    }

    async fn initial_tools(&self) -> anyhow::Result<usize> {
        Ok(self.0.tools().items.len())
    }
}
