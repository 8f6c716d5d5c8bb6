//! `pmcp`: over HTTP on its own transport; on stdio its own speaks only on the process's stdin and stdout.
//!
//! So there its client runs on a transport of the same shape over a child's pipes: the same framing and
//! the same message functions of the crate, one write per message. That is faster than its own transport,
//! whose reads and writes go through the runtime's blocking threads.

use std::process::Stdio;
use std::sync::Arc;

use anyhow::Context as _;
use pmcp::shared::streamable_http::StreamableHttpTransportConfigBuilder;
use pmcp::shared::{StdioTransport, StreamableHttpTransport, Transport, TransportMessage};
use pmcp::types::Content;
use pmcp::{Client, ClientCapabilities, async_trait};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::sync::Mutex;

use super::{Call, Caller, Contender, HttpContender, ServerCommand};
use crate::server::http::Eras;
use crate::server_process::RemoteServer;

#[derive(Debug, Clone)]
pub(crate) struct Pmcp {
    client: Client<ChildPipes>,
    child: Arc<Mutex<Child>>,
}

#[derive(Debug)]
struct ChildPipes {
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    /// Survives a dropped `receive`, as the trait demands.
    partial: Vec<u8>,
}

#[async_trait]
impl Transport for ChildPipes {
    async fn send(&mut self, message: TransportMessage) -> pmcp::Result<()> {
        let mut line = StdioTransport::serialize_message(&message)?;
        line.push(b'\n');
        let stdin = self.stdin.as_mut().ok_or_else(closed)?;
        stdin.write_all(&line).await?;
        Ok(())
    }

    async fn receive(&mut self) -> pmcp::Result<TransportMessage> {
        if self.stdout.read_until(b'\n', &mut self.partial).await? == 0 {
            return Err(closed());
        }
        let line = std::mem::take(&mut self.partial);
        StdioTransport::parse_message(line.trim_ascii_end())
    }

    async fn close(&mut self) -> pmcp::Result<()> {
        self.stdin = None;
        Ok(())
    }
}

fn closed() -> pmcp::Error {
    pmcp::Error::internal("the pipe is closed")
}

impl Contender for Pmcp {
    async fn connect(server: &ServerCommand) -> anyhow::Result<Self> {
        let mut command = server.tokio();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn()?;
        let pipes = ChildPipes {
            stdin: child.stdin.take(),
            stdout: BufReader::new(child.stdout.take().context("no stdout")?),
            partial: Vec::new(),
        };
        let mut client = Client::new(pipes);
        client.initialize(ClientCapabilities::default()).await?;
        Ok(Self { client, child: Arc::new(Mutex::new(child)) })
    }

    async fn list_tools(&self) -> anyhow::Result<usize> {
        Ok(self.client.list_all_tools().await?.len())
    }
}

impl Caller for Pmcp {
    async fn call(&self, call: &Call) -> anyhow::Result<usize> {
        called(&self.client, call).await
    }

    async fn close(self) -> anyhow::Result<()> {
        let Self { client, child } = self;
        drop(client);
        if let Some(child) = Arc::into_inner(child) {
            child.into_inner().wait().await?;
        }
        Ok(())
    }
}

#[derive(Debug, Clone)]
pub(crate) struct PmcpHttp(Client<StreamableHttpTransport>);

impl HttpContender for PmcpHttp {
    async fn connect(server: &RemoteServer) -> anyhow::Result<Self> {
        let url = server.url(Eras::Both).parse()?;
        let config = StreamableHttpTransportConfigBuilder::new(url).build();
        let mut client = Client::new(StreamableHttpTransport::new(config));
        client.initialize(ClientCapabilities::default()).await?;
        Ok(Self(client))
    }
}

impl Caller for PmcpHttp {
    async fn call(&self, call: &Call) -> anyhow::Result<usize> {
        called(&self.0, call).await
    }

    async fn close(self) -> anyhow::Result<()> {
        drop(self);
        Ok(())
    }
}

async fn called<T: Transport>(client: &Client<T>, call: &Call) -> anyhow::Result<usize> {
    let result = client.call_tool(call.tool.to_owned(), call.arguments.clone()).await?;
    match result.content.first() {
        Some(Content::Text { text }) => Ok(text.len()),
        _ => anyhow::bail!("no text"),
    }
}
