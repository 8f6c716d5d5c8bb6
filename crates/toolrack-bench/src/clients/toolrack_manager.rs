//! Toolrack's manager, and the client of one of its servers as it is without the manager.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use toolrack_client::{CallOptions, McpClient};
use toolrack_config::{EnvValue, McpServerConfig, McpTransport};
use toolrack_manager::{McpConnection, McpManager, RackBuilder};
use toolrack_stdio::{Guardian, StdioOptions};

use super::toolrack_client::{call_raw, call_text};
use super::{BenchClient, Call, StdioClient, text_bytes};
use crate::server_process::ServerCommand;

/// A manager whose first server is called, and a result is given as text.
#[derive(Debug, Clone)]
pub(crate) struct ManagerClient(pub(crate) Arc<McpManager>);

/// The same, but a result is handed over undecoded.
#[derive(Debug, Clone)]
pub(crate) struct ManagerClientRaw(Arc<McpManager>);

/// The client that a manager has of a server, called past the manager.
#[derive(Debug, Clone)]
pub(crate) struct UnderlyingClient(Arc<McpConnection>);

/// The same, but a result is handed over undecoded.
#[derive(Debug, Clone)]
pub(crate) struct UnderlyingClientRaw(Arc<McpConnection>);

/// What the manager calls its servers.
pub(crate) fn server_name(n: usize) -> String {
    format!("server-{n:03}")
}

const FIRST: &str = "server-000";

/// Less than a scenario may take.
const READY_TIMEOUT: Duration = Duration::from_secs(12);

/// The configs of servers that are started alike. Each is its own for the catalogue.
pub(crate) fn configs(
    server: &ServerCommand,
    numbers: std::ops::Range<usize>,
) -> anyhow::Result<Vec<McpServerConfig>> {
    let command = server.program.to_str().context("the program has no name in UTF-8")?;
    let args: Vec<&str> = server.args.iter().map(String::as_str).collect();
    let config = |n| {
        let mut config = McpServerConfig::stdio(server_name(n), command, &args);
        if let McpTransport::Stdio { env, .. } = &mut config.transport {
            env.insert("BENCH_SERVER".to_owned(), EnvValue::from(n.to_string()));
        }
        config
    };
    Ok(numbers.map(config).collect())
}

/// A manager that waits until many servers have started on a busy machine too.
pub(crate) fn builder() -> RackBuilder {
    McpManager::builder().ready_wait(READY_TIMEOUT)
}

/// A manager of one server that is started directly, as the clients it is compared with start theirs.
async fn with_one_server(server: &ServerCommand) -> anyhow::Result<Arc<McpManager>> {
    let options = StdioOptions { guardian: Guardian::Nobody, ..StdioOptions::default() };
    let manager = builder().stdio(options).build(configs(server, 0..1)?);
    connect_all(&manager).await?;
    Ok(Arc::new(manager))
}

/// Connects all servers, or says that one is not.
pub(crate) async fn connect_all(manager: &McpManager) -> anyhow::Result<()> {
    let servers = manager.connect_all().await?;
    if let Some(failed) = servers.iter().find(|server| !server.is_connected()) {
        anyhow::bail!("{} is {:?}", failed.name(), failed.state());
    }
    Ok(())
}

impl ManagerClient {
    /// The same server without the manager.
    pub(crate) fn underlying_client(&self) -> anyhow::Result<UnderlyingClient> {
        Ok(UnderlyingClient(self.0.server(FIRST)?))
    }
}

impl ManagerClientRaw {
    /// The same server without the manager.
    pub(crate) fn underlying_client(&self) -> anyhow::Result<UnderlyingClientRaw> {
        Ok(UnderlyingClientRaw(self.0.server(FIRST)?))
    }
}

fn client(connection: &McpConnection) -> anyhow::Result<&McpClient> {
    connection.client().context("the server is not connected")
}

async fn close_last(manager: Arc<McpManager>) {
    if let Some(manager) = Arc::into_inner(manager) {
        manager.close().await;
    }
}

impl BenchClient for ManagerClient {
    async fn call(&self, call: &Call) -> anyhow::Result<usize> {
        let result = self.0.call_tool(FIRST, call.tool, &call.arguments).await?;
        ensure!(!result.is_error, "the tool failed");
        Ok(result.content.len())
    }

    async fn close(self) -> anyhow::Result<()> {
        close_last(self.0).await;
        Ok(())
    }
}

impl BenchClient for ManagerClientRaw {
    async fn call(&self, call: &Call) -> anyhow::Result<usize> {
        let options = CallOptions::default();
        let result = self.0.call_tool_raw(FIRST, call.tool, &call.raw_arguments, &options).await?;
        text_bytes(result.as_bytes()).context("another result than the server sends")
    }

    async fn close(self) -> anyhow::Result<()> {
        close_last(self.0).await;
        Ok(())
    }
}

/// The line belongs to the manager, which ends it.
impl BenchClient for UnderlyingClient {
    async fn call(&self, call: &Call) -> anyhow::Result<usize> {
        call_text(client(&self.0)?, call).await
    }

    async fn close(self) -> anyhow::Result<()> {
        Ok(())
    }
}

/// The line belongs to the manager, which ends it.
impl BenchClient for UnderlyingClientRaw {
    async fn call(&self, call: &Call) -> anyhow::Result<usize> {
        call_raw(client(&self.0)?, call).await
    }

    async fn close(self) -> anyhow::Result<()> {
        Ok(())
    }
}

impl StdioClient for ManagerClient {
    async fn connect(server: &ServerCommand) -> anyhow::Result<Self> {
        with_one_server(server).await.map(Self)
    }

    async fn list_tools(&self) -> anyhow::Result<usize> {
        Ok(self.0.all_tools().len())
    }
}

impl StdioClient for ManagerClientRaw {
    async fn connect(server: &ServerCommand) -> anyhow::Result<Self> {
        with_one_server(server).await.map(Self)
    }

    async fn list_tools(&self) -> anyhow::Result<usize> {
        Ok(self.0.all_tools().len())
    }
}
