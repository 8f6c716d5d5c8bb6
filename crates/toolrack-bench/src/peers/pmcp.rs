//! `pmcp`, whose own stdio transport speaks only on the process's own stdin and stdout.
//!
//! So its client runs here on a transport of the same shape over a child's pipes: the same framing and
//! the same message functions of the crate, one write per message. That is faster than its own transport,
//! whose reads and writes go through the runtime's blocking threads.

use std::process::Stdio;
use std::sync::Arc;

use anyhow::Context as _;
use pmcp::shared::{StdioTransport, Transport, TransportMessage};
use pmcp::types::Content;
use pmcp::{Client, ClientCapabilities, async_trait};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::sync::Mutex;

use super::{Call, Contender, ServerCommand};

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

    async fn call(&self, call: &Call) -> anyhow::Result<usize> {
        let result = self.client.call_tool(call.tool.to_owned(), call.arguments.clone()).await?;
        match result.content.first() {
            Some(Content::Text { text }) => Ok(text.len()),
            _ => anyhow::bail!("no text"),
        }
    }

    async fn list_tools(&self) -> anyhow::Result<usize> {
        Ok(self.client.list_all_tools().await?.len())
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
