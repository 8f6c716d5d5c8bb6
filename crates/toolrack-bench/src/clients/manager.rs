//! Toolrack's manager, and the client that it has of one of its servers.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use toolrack_client::{CallOptions, McpClient};
use toolrack_config::{EnvValue, McpServerConfig, McpTransport};
use toolrack_manager::{ManagerBuilder, McpConnection, McpManager};
use toolrack_stdio::{Guardian, StdioOptions};

use super::toolrack::{call_raw, call_text};
use super::{BenchClient, Call, StdioClient, text_bytes};
use crate::server_process::ServerCommand;

/// Calls the first server through the manager, with decoded results.
#[derive(Debug, Clone)]
pub(crate) struct ManagerClient(pub(crate) Arc<McpManager>);

/// The same with raw results.
#[derive(Debug, Clone)]
pub(crate) struct ManagerClientRaw(Arc<McpManager>);

/// The manager's client of its first server, called directly.
#[derive(Debug, Clone)]
pub(crate) struct UnderlyingClient(Arc<McpConnection>);

/// The same with raw results.
#[derive(Debug, Clone)]
pub(crate) struct UnderlyingClientRaw(Arc<McpConnection>);

/// Name of the server with this index.
pub(crate) fn server_name(n: usize) -> String {
    format!("server-{n:03}")
}

const FIRST: &str = "server-000";

/// Less than the time limit of a scenario.
const READY_TIMEOUT: Duration = Duration::from_secs(12);

/// Configs of equal servers. The environment variable gives each its own entry in the tool cache.
pub(crate) fn configs(
    server: &ServerCommand,
    numbers: std::ops::Range<usize>,
) -> anyhow::Result<Vec<McpServerConfig>> {
    let command = server.program.to_str().context("the program path is not UTF-8")?;
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

/// Builder with a timeout that is long enough to start many servers on a busy machine.
pub(crate) fn builder() -> ManagerBuilder {
    McpManager::builder().ready_wait(READY_TIMEOUT)
}

/// A manager with one server without guardian, like the clients it is compared with.
async fn with_one_server(server: &ServerCommand) -> anyhow::Result<Arc<McpManager>> {
    let options = StdioOptions { guardian: Guardian::None, ..StdioOptions::default() };
    let manager = builder().stdio(options).build(configs(server, 0..1)?);
    connect_all(&manager).await?;
    Ok(Arc::new(manager))
}

/// Connects all servers; fails if one is not connected.
pub(crate) async fn connect_all(manager: &McpManager) -> anyhow::Result<()> {
    let servers = manager.connect_all().await?;
    if let Some(failed) = servers.iter().find(|server| !server.is_connected()) {
        anyhow::bail!("{} is {:?}", failed.name(), failed.state());
    }
    Ok(())
}

impl ManagerClient {
    /// The manager's own client of the server.
    pub(crate) fn underlying_client(&self) -> anyhow::Result<UnderlyingClient> {
        Ok(UnderlyingClient(self.0.server(FIRST)?))
    }
}

impl ManagerClientRaw {
    /// The manager's own client of the server.
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
        let result = self
            .0
            .call((FIRST, call.tool))
            .args(&*call.raw_arguments)
            .options(options)
            .send_raw()
            .await?;
        text_bytes(result.as_bytes()).context("unexpected result")
    }

    async fn close(self) -> anyhow::Result<()> {
        close_last(self.0).await;
        Ok(())
    }
}

/// The manager owns the connection and closes it.
impl BenchClient for UnderlyingClient {
    async fn call(&self, call: &Call) -> anyhow::Result<usize> {
        call_text(client(&self.0)?, call).await
    }

    async fn close(self) -> anyhow::Result<()> {
        Ok(())
    }
}

/// The manager owns the connection and closes it.
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
