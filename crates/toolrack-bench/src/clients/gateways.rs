//! Measured gateways: their commands, and a client that calls through them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{bail, ensure};
use toolrack_client::McpClient;
use toolrack_http::{HttpOptions, HttpServerDef};
use toolrack_stdio::{Guardian, McpServerDef, StdioOptions};

use super::cli_programs::installed_path;
use super::{BenchClient, Call, ClientName};
use crate::server_process::ServerCommand;

const PYTHON: &str = "tests/servers/python/fastmcp/venv/bin/python";
const PROXY: &str = "tests/bench/proxy.py";

/// Name of the server behind our gateway, and the resulting public tool name.
const SERVER: &str = "bench";
const TOOL: &str = "bench_echo";

/// Transport between a gateway and its clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GatewayTransport {
    Stdio,
    Http,
}

/// Command of a gateway with one server.
pub(crate) fn with_one_server(
    client: ClientName,
    transport: GatewayTransport,
) -> anyhow::Result<ServerCommand> {
    let server = ServerCommand::with_tools(10)?;
    match client {
        ClientName::Gateway => Ok(toolrack_gateway(transport, &[(SERVER.to_owned(), server)])?),
        ClientName::FastMcp => {
            let transport = if transport == GatewayTransport::Http { "http" } else { "stdio" };
            let mut args =
                vec![path_to_string(&installed_path(Path::new(PROXY))?)?, transport.to_owned()];
            args.push(path_to_string(&server.program)?);
            args.extend(server.args);
            Ok(ServerCommand { program: installed_path(Path::new(PYTHON))?, args })
        }
        other => bail!("{other:?} is not a gateway"),
    }
}

/// Command of our gateway over HTTP with `n_servers`.
pub(crate) fn with_servers(n_servers: usize) -> anyhow::Result<ServerCommand> {
    let server = ServerCommand::with_tools(10)?;
    let servers: Vec<_> =
        (0..n_servers).map(|n| (format!("{SERVER}-{n}"), server.clone())).collect();
    toolrack_gateway(GatewayTransport::Http, &servers)
}

fn toolrack_gateway(
    transport: GatewayTransport,
    servers: &[(String, ServerCommand)],
) -> anyhow::Result<ServerCommand> {
    let mut args = Vec::new();
    if transport == GatewayTransport::Http {
        args.extend(["--http", "127.0.0.1:0"].map(str::to_owned));
    }
    for (name, server) in servers {
        args.extend(["--server".to_owned(), name.clone(), path_to_string(&server.program)?]);
        args.extend(server.args.iter().cloned());
    }
    Ok(ServerCommand { program: endpoint_path()?, args })
}

/// Path of `toolrack-endpoint`, which is built beside this program.
fn endpoint_path() -> anyhow::Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name("toolrack-endpoint");
    ensure!(path.exists(), "`toolrack-endpoint` is not built: run `cargo xtask bench gateway`");
    Ok(path)
}

fn path_to_string(path: &Path) -> anyhow::Result<String> {
    let not_utf8 = |path: OsString| anyhow::anyhow!("{} is not UTF-8", path.display());
    path.as_os_str().to_owned().into_string().map_err(not_utf8)
}

/// Our client, connected to a gateway or directly to the server.
#[derive(Debug, Clone)]
pub(crate) struct GatewayClient {
    client: Arc<McpClient>,
    tool: &'static str,
}

impl GatewayClient {
    /// Starts a gateway or the server and connects over stdio.
    pub(crate) async fn start(name: ClientName, server: ServerCommand) -> anyhow::Result<Self> {
        let ServerCommand { program, args } = server;
        let definition =
            McpServerDef { command: path_to_string(&program)?, args, ..McpServerDef::default() };
        let options = StdioOptions { guardian: Guardian::None, ..StdioOptions::default() };
        let client = McpClient::builder("bench").connect_stdio(definition, options).await?;
        Ok(Self { client: Arc::new(client), tool: tool_name(name) })
    }

    /// Connects to a running gateway.
    pub(crate) async fn connect_http(name: ClientName, url: &str) -> anyhow::Result<Self> {
        let definition = HttpServerDef::new(url);
        let builder = McpClient::builder("bench");
        let client = builder.connect_http(definition, HttpOptions::default()).await?;
        Ok(Self { client: Arc::new(client), tool: tool_name(name) })
    }
}

impl BenchClient for GatewayClient {
    async fn call(&self, call: &Call) -> anyhow::Result<usize> {
        let result = self.client.call_tool(self.tool, &call.arguments).await?;
        ensure!(!result.is_error, "the tool failed: {}", result.content);
        Ok(result.content.len())
    }

    async fn close(self) -> anyhow::Result<()> {
        if let Some(client) = Arc::into_inner(self.client) {
            client.shutdown().await;
        }
        Ok(())
    }
}

/// Our gateway prefixes tool names with the server name.
fn tool_name(name: ClientName) -> &'static str {
    if name == ClientName::Gateway { TOOL } else { "echo" }
}
