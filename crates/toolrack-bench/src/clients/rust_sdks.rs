//! Rust MCP clients that Toolrack is compared with: `rmcp`, `pmcp`, `turbomcp-client` and `tower-mcp`.
//!
//! Over HTTP, `pmcp` uses its own transport. Its stdio transport only works on the stdin and stdout of the current
//! process, so on stdio its client runs on a transport over a child's pipes, with the same framing, the message
//! functions of the crate and one write per message. That is faster than its own transport, whose reads and writes
//! go through the blocking threads of the runtime.

use std::process::Stdio;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use pmcp::shared::streamable_http::StreamableHttpTransportConfigBuilder;
use pmcp::shared::{StdioTransport, StreamableHttpTransport, Transport, TransportMessage};
use pmcp::types::Content;
use pmcp::{ClientCapabilities, async_trait};
use rmcp::RoleClient;
use rmcp::model::CallToolRequestParams;
use rmcp::service::{RunningService, ServiceExt as _};
use rmcp::transport::{StreamableHttpClientTransport, TokioChildProcess};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::task::JoinSet;
use tower_mcp::client::{McpClient, StdioClientTransport};
use turbomcp_client::ContentBlock;
use turbomcp_transport::{
    ChildProcessConfig, ChildProcessTransport, LimitsConfig, TransportConfig,
};

use super::{BenchClient, Call, ClientName, MAX_MESSAGE_BYTES};
use crate::metric::Report;
use crate::scenario::calls::{self, Job};
use crate::scenario::measure;
use crate::server_process::ServerCommand;

/// Runs a scenario with a peer: on stdio servers that it starts, or on the HTTP server with this URL.
pub(crate) async fn run(
    client: ClientName,
    job: &Job,
    url: Option<String>,
) -> anyhow::Result<Report> {
    match (client, url) {
        (ClientName::Rmcp, None) => calls::run_stdio(job, Rmcp::start).await,
        (ClientName::Pmcp, None) => calls::run_stdio(job, Pmcp::start).await,
        (ClientName::Turbomcp, None) => calls::run_stdio(job, Turbomcp::start).await,
        (ClientName::Tower, None) => calls::run_stdio(job, Tower::start).await,
        (ClientName::Rmcp, Some(url)) => calls::run(job, Rmcp::connect_http(url).await?).await,
        (ClientName::Pmcp, Some(url)) => calls::run(job, PmcpHttp::connect(&url).await?).await,
        (other, _) => bail!("{other:?} is not measured here"),
    }
}

/// Time until `rmcp` has connected to many servers at once. It uses no guardians and does not list tools here.
pub(crate) async fn start_many(
    server: &ServerCommand,
    n_servers: usize,
    n_starts: usize,
) -> anyhow::Result<Report> {
    let connect = async || {
        let mut starting = JoinSet::new();
        for _ in 0..n_servers {
            let server = server.clone();
            starting.spawn(async move { Rmcp::start(&server).await });
        }
        let mut clients = Vec::new();
        while let Some(client) = starting.join_next().await {
            clients.push(Arc::new(client??));
        }
        Ok(clients)
    };
    let close_all = async |clients: Vec<Arc<Rmcp>>| {
        for client in clients {
            calls::close(client).await?;
        }
        Ok(())
    };
    measure::connects(n_starts, connect, close_all).await
}

#[derive(Debug)]
struct Rmcp(RunningService<RoleClient, ()>);

impl Rmcp {
    async fn start(server: &ServerCommand) -> anyhow::Result<Self> {
        let transport = TokioChildProcess::new(server.tokio())?;
        Ok(Self(().serve(transport).await?))
    }

    async fn connect_http(url: String) -> anyhow::Result<Self> {
        let transport = StreamableHttpClientTransport::from_uri(url);
        Ok(Self(().serve(transport).await?))
    }
}

impl BenchClient for Rmcp {
    async fn call(&self, call: &Call) -> anyhow::Result<usize> {
        let mut params = CallToolRequestParams::new(call.tool);
        params.arguments = call.arguments.as_object().cloned();
        let result = self.0.call_tool(params).await?;
        let text = result.content.first().and_then(|block| block.as_text());
        Ok(text.context("no text")?.text.len())
    }

    async fn close(self) -> anyhow::Result<()> {
        self.0.cancel().await?;
        Ok(())
    }

    async fn list_tools(&self) -> anyhow::Result<usize> {
        Ok(self.0.list_all_tools().await?.len())
    }
}

#[derive(Debug)]
struct Pmcp {
    client: pmcp::Client<ChildPipes>,
    child: Child,
}

#[derive(Debug)]
struct ChildPipes {
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    /// Partial message; the trait requires `receive` to be cancel safe.
    partial: Vec<u8>,
}

#[async_trait]
impl Transport for ChildPipes {
    async fn send(&mut self, message: TransportMessage) -> pmcp::Result<()> {
        let mut line = StdioTransport::serialize_message(&message)?;
        line.push(b'\n');
        let stdin = self.stdin.as_mut().ok_or_else(pipe_closed)?;
        stdin.write_all(&line).await?;
        Ok(())
    }

    async fn receive(&mut self) -> pmcp::Result<TransportMessage> {
        if self.stdout.read_until(b'\n', &mut self.partial).await? == 0 {
            return Err(pipe_closed());
        }
        let line = std::mem::take(&mut self.partial);
        StdioTransport::parse_message(line.trim_ascii_end())
    }

    async fn close(&mut self) -> pmcp::Result<()> {
        self.stdin = None;
        Ok(())
    }
}

fn pipe_closed() -> pmcp::Error {
    pmcp::Error::internal("the pipe is closed")
}

impl Pmcp {
    async fn start(server: &ServerCommand) -> anyhow::Result<Self> {
        let mut command = server.tokio();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn()?;
        let pipes = ChildPipes {
            stdin: child.stdin.take(),
            stdout: BufReader::new(child.stdout.take().context("no stdout")?),
            partial: Vec::new(),
        };
        let mut client = pmcp::Client::new(pipes);
        client.initialize(ClientCapabilities::default()).await?;
        Ok(Self { client, child })
    }
}

impl BenchClient for Pmcp {
    async fn call(&self, call: &Call) -> anyhow::Result<usize> {
        call_pmcp(&self.client, call).await
    }

    async fn close(self) -> anyhow::Result<()> {
        let Self { client, mut child } = self;
        drop(client);
        child.wait().await?;
        Ok(())
    }

    async fn list_tools(&self) -> anyhow::Result<usize> {
        Ok(self.client.list_all_tools().await?.len())
    }
}

#[derive(Debug)]
struct PmcpHttp(pmcp::Client<StreamableHttpTransport>);

impl PmcpHttp {
    async fn connect(url: &str) -> anyhow::Result<Self> {
        let config = StreamableHttpTransportConfigBuilder::new(url.parse()?).build();
        let mut client = pmcp::Client::new(StreamableHttpTransport::new(config));
        client.initialize(ClientCapabilities::default()).await?;
        Ok(Self(client))
    }
}

impl BenchClient for PmcpHttp {
    async fn call(&self, call: &Call) -> anyhow::Result<usize> {
        call_pmcp(&self.0, call).await
    }
}

async fn call_pmcp<T: Transport>(client: &pmcp::Client<T>, call: &Call) -> anyhow::Result<usize> {
    let result = client.call_tool(call.tool.to_owned(), call.arguments.clone()).await?;
    match result.content.first() {
        Some(Content::Text { text }) => Ok(text.len()),
        _ => anyhow::bail!("no text"),
    }
}

struct Turbomcp(turbomcp_client::Client<ChildProcessTransport>);

impl Turbomcp {
    async fn start(server: &ServerCommand) -> anyhow::Result<Self> {
        let transport = ChildProcessTransport::new(ChildProcessConfig {
            command: server.program.to_string_lossy().into_owned(),
            args: server.args.clone(),
            max_message_size: MAX_MESSAGE_BYTES,
            ..ChildProcessConfig::default()
        });
        let config =
            TransportConfig { limits: LimitsConfig::unlimited(), ..TransportConfig::default() };
        let client = turbomcp_client::Client::new_with_config(transport, config);
        client.initialize().await?;
        Ok(Self(client))
    }
}

impl BenchClient for Turbomcp {
    async fn call(&self, call: &Call) -> anyhow::Result<usize> {
        // Its API takes an owned map for every call.
        let members = call.arguments.as_object().cloned();
        let arguments = members.map(|members| members.into_iter().collect());
        let result = self.0.call_tool(call.tool, arguments, None).await?;
        match result.content.first() {
            Some(ContentBlock::Text(text)) => Ok(text.text.len()),
            _ => anyhow::bail!("no text"),
        }
    }

    async fn close(self) -> anyhow::Result<()> {
        self.0.shutdown().await?;
        Ok(())
    }

    async fn list_tools(&self) -> anyhow::Result<usize> {
        Ok(self.0.list_tools().await?.len())
    }
}

struct Tower(McpClient);

impl Tower {
    async fn start(server: &ServerCommand) -> anyhow::Result<Self> {
        let transport = StdioClientTransport::spawn_command(&mut server.tokio()).await?;
        let client = McpClient::connect(transport.max_frame_len(MAX_MESSAGE_BYTES)).await?;
        client.initialize("toolrack-bench", "1.0.0").await?;
        Ok(Self(client))
    }
}

impl BenchClient for Tower {
    async fn call(&self, call: &Call) -> anyhow::Result<usize> {
        let result = self.0.call_tool(call.tool, call.arguments.clone()).await?;
        Ok(result.first_text().context("no text")?.len())
    }

    async fn close(self) -> anyhow::Result<()> {
        self.0.shutdown().await?;
        Ok(())
    }

    async fn list_tools(&self) -> anyhow::Result<usize> {
        Ok(self.0.list_all_tools().await?.len())
    }
}
