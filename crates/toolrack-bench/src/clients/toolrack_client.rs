//! Toolrack's own client: results decoded, results as they came, each server under a guardian, and in a
//! session of the era before.

use std::sync::Arc;

use anyhow::{Context as _, ensure};
use toolrack_client::{CallOptions, McpClient};
use toolrack_http::{HttpOptions, HttpServerDef};
use toolrack_stdio::{Guardian, McpServerDef, StdioOptions};

use super::{Call, Caller, Contender, HttpContender, text_bytes};
use crate::server::http::Eras;
use crate::server_process::{RemoteServer, ServerCommand};

/// Servers are started directly, and a result is given as text.
#[derive(Debug, Clone)]
pub(crate) struct Toolrack(Arc<McpClient>);

/// The same, but a result is handed over undecoded.
#[derive(Debug, Clone)]
pub(crate) struct ToolrackRaw(Arc<McpClient>);

/// The same as [`Toolrack`], with a guardian between us and each server.
#[derive(Debug, Clone)]
pub(crate) struct ToolrackGuarded(Toolrack);

/// The same as [`Toolrack`] over HTTP, with a server that knows nothing newer than sessions.
#[derive(Debug, Clone)]
pub(crate) struct ToolrackSession(Toolrack);

async fn connected(server: &ServerCommand, guardian: Guardian) -> anyhow::Result<Arc<McpClient>> {
    let command = server.program.to_str().context("the program has no name in UTF-8")?.to_owned();
    let args = server.args.clone();
    let definition = McpServerDef { command, args, ..McpServerDef::default() };
    let options = StdioOptions { guardian, ..StdioOptions::default() };
    Ok(Arc::new(McpClient::builder("bench").connect_stdio(definition, options).await?))
}

async fn reached(server: &RemoteServer, eras: Eras) -> anyhow::Result<Arc<McpClient>> {
    let definition = HttpServerDef::new(server.url(eras));
    let builder = McpClient::builder("bench");
    Ok(Arc::new(builder.connect_http(definition, HttpOptions::default()).await?))
}

/// Calls a tool and says how long the text is that the caller gets.
pub(super) async fn text_of(client: &McpClient, call: &Call) -> anyhow::Result<usize> {
    let result = client.call_tool(call.tool, &call.arguments).await?;
    ensure!(!result.is_error, "the tool failed");
    Ok(result.content.len())
}

/// Calls a tool and says how long the text is that stands in the undecoded result.
pub(super) async fn raw_text_of(client: &McpClient, call: &Call) -> anyhow::Result<usize> {
    let options = CallOptions::default();
    let result = client.call_tool_raw(call.tool, &call.raw_arguments, &options).await?;
    text_bytes(result.as_bytes()).context("another result than the server sends")
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

    async fn list_tools(&self) -> anyhow::Result<usize> {
        Ok(self.0.list_tools().await?.items.len())
    }

    async fn known_tools(&self) -> anyhow::Result<usize> {
        Ok(self.0.tools().items.len())
    }
}

impl Caller for Toolrack {
    async fn call(&self, call: &Call) -> anyhow::Result<usize> {
        text_of(&self.0, call).await
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

    async fn list_tools(&self) -> anyhow::Result<usize> {
        Ok(self.0.list_tools().await?.items.len())
    }
}

impl Caller for ToolrackRaw {
    async fn call(&self, call: &Call) -> anyhow::Result<usize> {
        raw_text_of(&self.0, call).await
    }

    async fn close(self) -> anyhow::Result<()> {
        closed(self.0).await;
        Ok(())
    }
}

impl Contender for ToolrackGuarded {
    async fn connect(server: &ServerCommand) -> anyhow::Result<Self> {
        let client = connected(server, Guardian::Auto).await?;
        Ok(Self(Toolrack(client)))
    }

    async fn list_tools(&self) -> anyhow::Result<usize> {
        self.0.list_tools().await
    }

    async fn known_tools(&self) -> anyhow::Result<usize> {
        self.0.known_tools().await
    }
}

impl Caller for ToolrackGuarded {
    async fn call(&self, call: &Call) -> anyhow::Result<usize> {
        self.0.call(call).await
    }

    async fn close(self) -> anyhow::Result<()> {
        self.0.close().await
    }
}

impl HttpContender for Toolrack {
    async fn connect(server: &RemoteServer) -> anyhow::Result<Self> {
        reached(server, Eras::Both).await.map(Self)
    }
}

impl HttpContender for ToolrackRaw {
    async fn connect(server: &RemoteServer) -> anyhow::Result<Self> {
        reached(server, Eras::Both).await.map(Self)
    }
}

impl HttpContender for ToolrackSession {
    async fn connect(server: &RemoteServer) -> anyhow::Result<Self> {
        let client = reached(server, Eras::Legacy).await?;
        Ok(Self(Toolrack(client)))
    }
}

impl Caller for ToolrackSession {
    async fn call(&self, call: &Call) -> anyhow::Result<usize> {
        self.0.call(call).await
    }

    async fn close(self) -> anyhow::Result<()> {
        self.0.close().await
    }
}
