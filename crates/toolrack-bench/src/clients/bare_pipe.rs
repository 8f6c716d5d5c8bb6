//! Limit on stdio: the same bytes over Tokio or blocking pipes, without any JSON-RPC client.
//!
//! A response ends at its newline and is not parsed. The blocking pipe never yields, so both variants share the same
//! async code.

use std::io::Write as _;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use memchr::{memchr, memchr_iter};
use rustix::buffer::spare_capacity;
use rustix::pipe::fcntl_setpipe_size;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{ChildStdin, ChildStdout};
use toolrack_testkit::harness::now;

use super::Call;
use super::bare_tcp::call_message;
use crate::metric::Report;
use crate::scenario::calls::Job;
use crate::scenario::measure::{self, PeakMemory, Stopwatch};
use crate::scenario::{Load, MIB, Work};
use crate::server_process::ServerCommand;

/// Capacity of a pipe.
const READ_BYTES: usize = 64 * 1024;

/// A server process.
struct Server {
    child: std::process::Child,
    pipes: Pipes,
}

/// How the pipes of the server are read and written.
enum Pipes {
    Tokio(ChildStdin, ChildStdout),
    Blocking(std::process::ChildStdin, std::process::ChildStdout),
}

/// Kind of pipes, and whether the receive buffer is reused for the next response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PipeKind {
    Tokio,
    Blocking,
    BlockingFresh,
}

impl Server {
    fn start(server: &ServerCommand, kind: PipeKind) -> anyhow::Result<Self> {
        let mut child = server.std().stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let stdin = child.stdin.take().context("no stdin")?;
        let stdout = child.stdout.take().context("no stdout")?;
        let pipes = match kind {
            PipeKind::Tokio => {
                Pipes::Tokio(ChildStdin::from_std(stdin)?, ChildStdout::from_std(stdout)?)
            }
            PipeKind::Blocking | PipeKind::BlockingFresh => Pipes::Blocking(stdin, stdout),
        };
        Ok(Self { child, pipes })
    }

    async fn send(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        match &mut self.pipes {
            Pipes::Tokio(stdin, _) => stdin.write_all(bytes).await?,
            Pipes::Blocking(stdin, _) => stdin.write_all(bytes)?,
        }
        Ok(())
    }

    /// Appends the bytes of one read, into reserved capacity.
    async fn receive(&mut self, bytes: &mut Vec<u8>) -> anyhow::Result<usize> {
        Ok(match &mut self.pipes {
            Pipes::Tokio(_, stdout) => stdout.read_buf(bytes).await?,
            Pipes::Blocking(_, stdout) => rustix::io::read(stdout, spare_capacity(bytes))?,
        })
    }

    /// Waits for the exit, which the end of its input causes.
    fn close(self) -> anyhow::Result<()> {
        let Self { mut child, pipes } = self;
        drop(pipes);
        child.wait()?;
        Ok(())
    }
}

pub(crate) async fn run(job: &Job, kind: PipeKind) -> anyhow::Result<Report> {
    let server = ServerCommand::with_tools(job.work.n_tools())?;
    let connect = async || PipeClient::connect(&server, kind).await;
    let connect_and_list = async || {
        let mut client = connect().await?;
        client.round_trip(LIST_TOOLS).await?;
        Ok(client)
    };
    match job.work {
        Work::Connect => {
            let close = async |client: PipeClient| client.server.close();
            measure::connects(job.size.n_connects, connect_and_list, close).await
        }
        Work::Idle => {
            let connect_idle = async || {
                let mut client = connect_and_list().await?;
                client.round_trip(&request_line(&Call::echo()?)).await?;
                // Keeps only the pipes: an idle connection needs no buffer.
                Ok(client.server)
            };
            let close = async |server: Server| server.close();
            measure::idle_connections(job.size.n_connections, connect_idle, close).await
        }
        _ => {
            let mut client = connect().await?;
            let report = client.run_connected(job).await?;
            client.server.close()?;
            Ok(report)
        }
    }
}

struct PipeClient {
    server: Server,
    received: Vec<u8>,
    kind: PipeKind,
}

impl PipeClient {
    async fn connect(server: &ServerCommand, kind: PipeKind) -> anyhow::Result<Self> {
        let server = Server::start(server, kind)?;
        let mut client = Self { server, received: Vec::new(), kind };
        client.round_trip(INITIALIZE).await?;
        client.server.send(INITIALIZED).await?;
        Ok(client)
    }

    async fn run_connected(&mut self, job: &Job) -> anyhow::Result<Report> {
        let window = job.size.window;
        let call = job.call()?;
        let request = request_line(&call);
        match job.work {
            Work::Stdio(Load::Sequential) => {
                measure::sequential(window, async || self.round_trip(&request).await).await
            }
            Work::Stdio(Load::InFlight(n_in_flight)) => {
                self.in_flight(&request, n_in_flight, window).await
            }
            Work::Stdio(_) => {
                measure::fixed_calls(job.n_calls, async || self.round_trip(&request).await).await
            }
            Work::LargeResult(_) | Work::EscapedResult(_) => {
                self.large_result(job, &request, call.text_bytes).await
            }
            Work::ToolList => self.large_result(job, LIST_TOOLS, 6 * MIB).await,
            other => bail!("{other:?} is not measured on a bare pipe"),
        }
    }

    async fn round_trip(&mut self, request: &[u8]) -> anyhow::Result<()> {
        self.received.clear();
        if self.kind == PipeKind::BlockingFresh {
            self.received = Vec::new();
        }
        self.server.send(request).await?;
        while memchr(b'\n', self.receive().await?).is_none() {}
        Ok(())
    }

    /// Reads once and returns the new bytes.
    async fn receive(&mut self) -> anyhow::Result<&[u8]> {
        let start = self.received.len();
        self.received.reserve(READ_BYTES);
        ensure!(self.server.receive(&mut self.received).await? > 0, "the server closed the pipe");
        Ok(self.received.get(start..).unwrap_or_default())
    }

    async fn large_result(
        &mut self,
        job: &Job,
        request: &[u8],
        min_bytes: usize,
    ) -> anyhow::Result<Report> {
        let peak_memory = PeakMemory::start()?;
        let mut report = measure::repeat_operation(job.size.n_operations, async || {
            self.round_trip(request).await?;
            let received = self.received.len();
            ensure!(received > min_bytes, "only {received} B");
            Ok(())
        })
        .await?;
        peak_memory.add_to(&mut report)?;
        Ok(report)
    }

    async fn in_flight(
        &mut self,
        request: &[u8],
        n_in_flight: usize,
        window: Duration,
    ) -> anyhow::Result<Report> {
        // The pipe holds all requests at once, so a write never blocks. Otherwise client and server could
        // deadlock, each waiting to write; a real client must read while it writes.
        match &self.server.pipes {
            Pipes::Tokio(stdin, _) => fcntl_setpipe_size(stdin, MIB)?,
            Pipes::Blocking(stdin, _) => fcntl_setpipe_size(stdin, MIB)?,
        };
        self.keep_in_flight(request, n_in_flight, window / 5).await?;
        let stopwatch = Stopwatch::start();
        let n_calls = self.keep_in_flight(request, n_in_flight, window).await?;
        Ok(stopwatch.per_call(n_calls))
    }

    /// After every read, one write sends as many requests as responses were received.
    async fn keep_in_flight(
        &mut self,
        request: &[u8],
        n_in_flight: usize,
        window: Duration,
    ) -> anyhow::Result<usize> {
        let requests = request.repeat(n_in_flight);
        let started = now();
        self.server.send(&requests).await?;
        let mut n_sent = n_in_flight;
        let mut n_received = 0;
        while n_received < n_sent {
            self.received.clear();
            let n_responses = memchr_iter(b'\n', self.receive().await?).count();
            n_received += n_responses;
            if n_responses > 0 && now() - started < window {
                let next = requests.get(..n_responses * request.len()).unwrap_or_default();
                self.server.send(next).await?;
                n_sent += n_responses;
            }
        }
        Ok(n_received)
    }
}

pub(crate) const INITIALIZE: &[u8] = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"2025-11-25\",\"capabilities\":{},\"clientInfo\":{\"name\":\"bare\",\"version\":\"1.0.0\"}}}\n";
pub(crate) const INITIALIZED: &[u8] =
    b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n";
pub(super) const LIST_TOOLS: &[u8] = b"{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"tools/list\"}\n";

fn request_line(call: &Call) -> Vec<u8> {
    let mut request = call_message(call);
    request.push(b'\n');
    request
}
