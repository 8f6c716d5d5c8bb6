//! Toolrack's client: with decoded results, with raw results, with a guardian, and in a legacy session.

use std::sync::Arc;

use anyhow::{Context as _, ensure};
use toolrack_client::{CallOptions, McpClient};
use toolrack_http::{HttpOptions, HttpServerDef};
use toolrack_stdio::{Guardian, McpServerDef, StdioOptions};

use super::{BenchClient, Call, HttpClient, StdioClient, text_bytes};
use crate::server::http::Eras;
use crate::server_process::{HttpServer, ServerCommand};

/// Decoded results, servers without guardian.
#[derive(Debug, Clone)]
pub(crate) struct Toolrack(Arc<McpClient>);

/// The same with raw results.
#[derive(Debug, Clone)]
pub(crate) struct ToolrackRaw(Arc<McpClient>);

/// [`Toolrack`] with a guardian for each server.
#[derive(Debug, Clone)]
pub(crate) struct ToolrackGuarded(Toolrack);

/// [`Toolrack`] over HTTP with a legacy server.
#[derive(Debug, Clone)]
pub(crate) struct ToolrackSession(Toolrack);

async fn connect_stdio(
    server: &ServerCommand,
    guardian: Guardian,
) -> anyhow::Result<Arc<McpClient>> {
    let command = server.program.to_str().context("the program path is not UTF-8")?.to_owned();
    let args = server.args.clone();
    let definition = McpServerDef { command, args, ..McpServerDef::default() };
    let options = StdioOptions { guardian, ..StdioOptions::default() };
    Ok(Arc::new(McpClient::builder("bench").connect_stdio(definition, options).await?))
}

async fn connect_http(server: &HttpServer, eras: Eras) -> anyhow::Result<Arc<McpClient>> {
    let definition = HttpServerDef::new(server.url(eras));
    let builder = McpClient::builder("bench");
    Ok(Arc::new(builder.connect_http(definition, HttpOptions::default()).await?))
}

/// Calls a tool and returns the length of the decoded text.
pub(super) async fn call_text(client: &McpClient, call: &Call) -> anyhow::Result<usize> {
    let result = client.call_tool(call.tool, &call.arguments).await?;
    ensure!(!result.is_error, "the tool failed");
    Ok(result.content.len())
}

/// Calls a tool and returns the length of the text in the raw result.
pub(super) async fn call_raw(client: &McpClient, call: &Call) -> anyhow::Result<usize> {
    let options = CallOptions::default();
    let result = client.call_tool_raw(call.tool, &call.raw_arguments, &options).await?;
    text_bytes(result.as_bytes()).context("unexpected result")
}

async fn close_last(client: Arc<McpClient>) {
    if let Some(client) = Arc::into_inner(client) {
        client.shutdown().await;
    }
}

impl StdioClient for Toolrack {
    async fn connect(server: &ServerCommand) -> anyhow::Result<Self> {
        connect_stdio(server, Guardian::None).await.map(Self)
    }

    async fn list_tools(&self) -> anyhow::Result<usize> {
        Ok(self.0.list_tools().await?.items.len())
    }

    async fn initial_tools(&self) -> anyhow::Result<usize> {
        Ok(self.0.tools().items.len())
    }
}

impl BenchClient for Toolrack {
    async fn call(&self, call: &Call) -> anyhow::Result<usize> {
        call_text(&self.0, call).await
    }

    async fn close(self) -> anyhow::Result<()> {
        close_last(self.0).await;
        Ok(())
    }
}

impl StdioClient for ToolrackRaw {
    async fn connect(server: &ServerCommand) -> anyhow::Result<Self> {
        connect_stdio(server, Guardian::None).await.map(Self)
    }

    async fn list_tools(&self) -> anyhow::Result<usize> {
        Ok(self.0.list_tools().await?.items.len())
    }
}

impl BenchClient for ToolrackRaw {
    async fn call(&self, call: &Call) -> anyhow::Result<usize> {
        call_raw(&self.0, call).await
    }

    async fn close(self) -> anyhow::Result<()> {
        close_last(self.0).await;
        Ok(())
    }
}

impl StdioClient for ToolrackGuarded {
    async fn connect(server: &ServerCommand) -> anyhow::Result<Self> {
        let client = connect_stdio(server, Guardian::Auto).await?;
        Ok(Self(Toolrack(client)))
    }

    async fn list_tools(&self) -> anyhow::Result<usize> {
        self.0.list_tools().await
    }

    async fn initial_tools(&self) -> anyhow::Result<usize> {
        self.0.initial_tools().await
    }
}

impl BenchClient for ToolrackGuarded {
    async fn call(&self, call: &Call) -> anyhow::Result<usize> {
        self.0.call(call).await
    }

    async fn close(self) -> anyhow::Result<()> {
        self.0.close().await
    }
}

impl HttpClient for Toolrack {
    async fn connect(server: &HttpServer) -> anyhow::Result<Self> {
        connect_http(server, Eras::Both).await.map(Self)
    }
}

impl HttpClient for ToolrackRaw {
    async fn connect(server: &HttpServer) -> anyhow::Result<Self> {
        connect_http(server, Eras::Both).await.map(Self)
    }
}

impl HttpClient for ToolrackSession {
    async fn connect(server: &HttpServer) -> anyhow::Result<Self> {
        let client = connect_http(server, Eras::Legacy).await?;
        Ok(Self(Toolrack(client)))
    }
}

impl BenchClient for ToolrackSession {
    async fn call(&self, call: &Call) -> anyhow::Result<usize> {
        self.0.call(call).await
    }

    async fn close(self) -> anyhow::Result<()> {
        self.0.close().await
    }
}
