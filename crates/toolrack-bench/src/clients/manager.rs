//! Toolrack's manager, and the client that it has of one of its servers.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use toolrack_client::CallOptions;
use toolrack_config::{EnvValue, McpServerConfig, McpTransport};
use toolrack_manager::{ManagerBuilder, McpConnection, McpManager};
use toolrack_stdio::{Guardian, StdioOptions};

use super::{BenchClient, Call, text_bytes, toolrack};
use crate::server_process::ServerCommand;

/// Calls the first server through the manager, with decoded or raw results.
#[derive(Debug)]
pub(crate) struct ManagerClient<const RAW: bool>(pub(crate) McpManager);

/// The manager's client of its first server, called directly. The manager closes its connection.
#[derive(Debug)]
pub(crate) struct UnderlyingClient<const RAW: bool>(Arc<McpConnection>);

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
    let command = server.program_text()?;
    let args: Vec<&str> = server.args.iter().map(String::as_str).collect();
    let config = |n| {
        let mut config = McpServerConfig::stdio(server_name(n), &command, &args);
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

/// Connects all servers; fails if one is not connected.
pub(crate) async fn connect_all(manager: &McpManager) -> anyhow::Result<()> {
    let servers = manager.connect_all().await?;
    if let Some(failed) = servers.iter().find(|server| !server.is_connected()) {
        anyhow::bail!("{} is {:?}", failed.name(), failed.state());
    }
    Ok(())
}

impl<const RAW: bool> ManagerClient<RAW> {
    /// A manager with one server without guardian, like the clients it is compared with.
    pub(crate) async fn start(server: &ServerCommand) -> anyhow::Result<Self> {
        let options = StdioOptions { guardian: Guardian::None, ..StdioOptions::default() };
        let manager = builder().stdio(options).build(configs(server, 0..1)?);
        connect_all(&manager).await?;
        Ok(Self(manager))
    }

    /// The manager's own client of the server.
    pub(crate) fn underlying_client(&self) -> anyhow::Result<UnderlyingClient<RAW>> {
        Ok(UnderlyingClient(self.0.server(FIRST)?))
    }
}

impl<const RAW: bool> BenchClient for ManagerClient<RAW> {
    async fn call(&self, call: &Call) -> anyhow::Result<usize> {
        if RAW {
            let call = self.0.call((FIRST, call.tool)).args(&call.raw_arguments);
            let result = call.options(CallOptions::default()).send_raw();
            return text_bytes(result.await?.as_bytes()).context("unexpected result");
        }
        let result = self.0.call_tool(FIRST, call.tool, &call.arguments).await?;
        ensure!(!result.is_error, "the tool failed");
        Ok(result.content.len())
    }

    async fn close(self) -> anyhow::Result<()> {
        self.0.close().await;
        Ok(())
    }

    async fn list_tools(&self) -> anyhow::Result<usize> {
        Ok(self.0.all_tools().len())
    }
}

impl<const RAW: bool> BenchClient for UnderlyingClient<RAW> {
    async fn call(&self, call: &Call) -> anyhow::Result<usize> {
        let client = self.0.client().context("the server is not connected")?;
        toolrack::call::<RAW>(client, call).await
    }
}
