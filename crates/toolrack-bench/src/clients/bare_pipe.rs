//! The limit: the same bytes over the same pipes, with no JSON-RPC client at all.
//!
//! A reply is found by its newline and looked at no further. One is on tokio's pipes, one on blocking
//! ones; the blocking one never yields, so both are written once, as async code.

use std::io::Write as _;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use memchr::{memchr, memchr_iter};
use rustix::buffer::spare_capacity;
use rustix::pipe::fcntl_setpipe_size;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::Call;
use crate::report::Report;
use crate::resource_usage;
use crate::scenario::measure::{self, Footprint, Spent};
use crate::scenario::stdio::Job;
use crate::scenario::{MIB, Scenario};
use crate::server_process::ServerCommand;
use crate::system;

/// One read takes what a pipe holds.
const READ_BYTES: usize = 64 * 1024;

/// What a server is reached through.
pub(crate) trait Wire: Sized {
    fn start(server: &ServerCommand) -> anyhow::Result<Self>;
    fn input(&self) -> BorrowedFd<'_>;
    async fn send(&mut self, bytes: &[u8]) -> anyhow::Result<()>;
    /// Appends what one read gives, into room that is there already.
    async fn receive(&mut self, bytes: &mut Vec<u8>) -> anyhow::Result<usize>;
    async fn close(self) -> anyhow::Result<()>;
}

pub(crate) struct TokioPipe {
    child: tokio::process::Child,
    stdin: tokio::process::ChildStdin,
    stdout: tokio::process::ChildStdout,
}

impl Wire for TokioPipe {
    fn start(server: &ServerCommand) -> anyhow::Result<Self> {
        let mut command = server.tokio();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn()?;
        let stdin = child.stdin.take().context("no stdin")?;
        let stdout = child.stdout.take().context("no stdout")?;
        Ok(Self { child, stdin, stdout })
    }

    fn input(&self) -> BorrowedFd<'_> {
        self.stdin.as_fd()
    }

    async fn send(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        Ok(self.stdin.write_all(bytes).await?)
    }

    async fn receive(&mut self, bytes: &mut Vec<u8>) -> anyhow::Result<usize> {
        Ok(self.stdout.read_buf(bytes).await?)
    }

    async fn close(self) -> anyhow::Result<()> {
        let Self { mut child, stdin, stdout: _ } = self;
        drop(stdin);
        child.wait().await?;
        Ok(())
    }
}

pub(crate) struct BlockingPipe {
    child: std::process::Child,
    stdin: std::process::ChildStdin,
    stdout: std::process::ChildStdout,
}

impl Wire for BlockingPipe {
    fn start(server: &ServerCommand) -> anyhow::Result<Self> {
        let mut child = server.std().stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let stdin = child.stdin.take().context("no stdin")?;
        let stdout = child.stdout.take().context("no stdout")?;
        Ok(Self { child, stdin, stdout })
    }

    fn input(&self) -> BorrowedFd<'_> {
        self.stdin.as_fd()
    }

    async fn send(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        Ok(self.stdin.write_all(bytes)?)
    }

    async fn receive(&mut self, bytes: &mut Vec<u8>) -> anyhow::Result<usize> {
        Ok(rustix::io::read(&self.stdout, spare_capacity(bytes))?)
    }

    async fn close(self) -> anyhow::Result<()> {
        let Self { mut child, stdin, stdout: _ } = self;
        drop(stdin);
        child.wait()?;
        Ok(())
    }
}

/// What becomes of the memory that a reply was read into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Buffer {
    Reused,
    Fresh,
}

pub(crate) async fn drive<W: Wire>(job: &Job, buffer: Buffer) -> anyhow::Result<Report> {
    match job.scenario {
        Scenario::Connect => return connect::<W>(job, buffer).await,
        Scenario::IdleLines => return idle_lines::<W>(job, buffer).await,
        _ => {}
    }
    let mut bare = Bare::<W>::connect(job, buffer).await?;
    let report = bare.on_one_line(job).await?;
    bare.wire.close().await?;
    Ok(report)
}

struct Bare<W> {
    wire: W,
    line: Vec<u8>,
    buffer: Buffer,
}

impl<W: Wire> Bare<W> {
    async fn connect(job: &Job, buffer: Buffer) -> anyhow::Result<Self> {
        let mut bare = Self { wire: W::start(&job.server)?, line: Vec::new(), buffer };
        bare.exchange(INITIALIZE).await?;
        bare.wire.send(INITIALIZED).await?;
        Ok(bare)
    }

    async fn on_one_line(&mut self, job: &Job) -> anyhow::Result<Report> {
        let window = job.size.window;
        let echo = frame(&Call::echo()?);
        match job.scenario {
            Scenario::Sequential => {
                measure::sequential(window, async || self.exchange(&echo).await).await
            }
            Scenario::Instructions | Scenario::Allocations => {
                measure::counted(job.n_calls, async || self.exchange(&echo).await).await
            }
            Scenario::InFlight64 => self.in_flight(&echo, 64, window).await,
            Scenario::InFlight1024 => self.in_flight(&echo, 1024, window).await,
            Scenario::Result1Escaped => {
                self.large(job, &frame(&Call::big_with_escapes(MIB)?), MIB).await
            }
            Scenario::Result8 => self.large(job, &frame(&Call::big(8 * MIB)?), 8 * MIB).await,
            Scenario::Result16 => self.large(job, &frame(&Call::big(16 * MIB)?), 16 * MIB).await,
            Scenario::Tools5000 => self.large(job, LIST_TOOLS, 6 * MIB).await,
            other => bail!("a bare pipe cannot do {other:?}"),
        }
    }

    async fn exchange(&mut self, frame: &[u8]) -> anyhow::Result<()> {
        match self.buffer {
            Buffer::Reused => self.line.clear(),
            Buffer::Fresh => self.line = Vec::new(),
        }
        self.wire.send(frame).await?;
        while memchr(b'\n', self.receive().await?).is_none() {}
        Ok(())
    }

    /// One read; what it brought.
    async fn receive(&mut self) -> anyhow::Result<&[u8]> {
        let from = self.line.len();
        self.line.reserve(READ_BYTES);
        ensure!(self.wire.receive(&mut self.line).await? > 0, "the server hung up");
        Ok(self.line.get(from..).unwrap_or_default())
    }

    async fn large(
        &mut self,
        job: &Job,
        frame: &[u8],
        at_least_bytes: usize,
    ) -> anyhow::Result<Report> {
        let footprint = Footprint::start()?;
        let report = measure::operations(job.size.n_operations, async || {
            self.exchange(frame).await?;
            let received = self.line.len();
            ensure!(received > at_least_bytes, "only {received} B");
            Ok(())
        })
        .await?;
        footprint.added_to(report)
    }

    async fn in_flight(
        &mut self,
        frame: &[u8],
        n_in_flight: usize,
        window: Duration,
    ) -> anyhow::Result<Report> {
        // Room for all requests at once: reading never has to wait for writing, which would be the
        // end if the server waited to write. A client needs more than this; the limit does not.
        fcntl_setpipe_size(self.wire.input(), MIB)?;
        self.flood(frame, n_in_flight, window / 5).await?;
        let spent = Spent::start();
        let n_calls = self.flood(frame, n_in_flight, window).await?;
        Ok(spent.per_call(n_calls))
    }

    /// Every read is followed by one write of as many requests as it brought replies.
    async fn flood(
        &mut self,
        frame: &[u8],
        n_in_flight: usize,
        window: Duration,
    ) -> anyhow::Result<usize> {
        let frames = frame.repeat(n_in_flight);
        let started = system::now();
        self.wire.send(&frames).await?;
        let mut n_sent = n_in_flight;
        let mut n_received = 0;
        while n_received < n_sent {
            self.line.clear();
            let n_replies = memchr_iter(b'\n', self.receive().await?).count();
            n_received += n_replies;
            if n_replies > 0 && system::now() - started < window {
                let again = frames.get(..n_replies * frame.len()).unwrap_or_default();
                self.wire.send(again).await?;
                n_sent += n_replies;
            }
        }
        Ok(n_received)
    }
}

async fn connect<W: Wire>(job: &Job, buffer: Buffer) -> anyhow::Result<Report> {
    let mut times = Vec::new();
    for n in 0..=job.size.n_connects {
        let spent = Spent::start();
        let mut bare = Bare::<W>::connect(job, buffer).await?;
        bare.exchange(LIST_TOOLS).await?;
        if n > 0 {
            times.push(spent.so_far());
        }
        bare.wire.close().await?;
    }
    measure::connects(&times)
}

async fn idle_lines<W: Wire>(job: &Job, buffer: Buffer) -> anyhow::Result<Report> {
    let mut lines = vec![idle_line::<W>(job, buffer).await?];
    let before = resource_usage::Memory::of_this_process()?;
    for _ in 0..job.size.n_lines {
        lines.push(idle_line::<W>(job, buffer).await?);
    }
    let report = measure::idle_lines(before, job.size.n_lines)?;
    for wire in lines {
        wire.close().await?;
    }
    Ok(report)
}

/// An idle line needs no buffer, so only the pipe is kept.
async fn idle_line<W: Wire>(job: &Job, buffer: Buffer) -> anyhow::Result<W> {
    let mut bare = Bare::<W>::connect(job, buffer).await?;
    bare.exchange(LIST_TOOLS).await?;
    bare.exchange(&frame(&Call::echo()?)).await?;
    Ok(bare.wire)
}

const INITIALIZE: &[u8] = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"2025-11-25\",\"capabilities\":{},\"clientInfo\":{\"name\":\"bare\",\"version\":\"1.0.0\"}}}\n";
const INITIALIZED: &[u8] = b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n";
const LIST_TOOLS: &[u8] = b"{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"tools/list\"}\n";

fn frame(call: &Call) -> Vec<u8> {
    let message = serde_json::json!({
        "jsonrpc": "2.0",
        "id": 100_007,
        "method": "tools/call",
        "params": { "name": call.tool, "arguments": call.arguments },
    });
    let mut frame = message.to_string().into_bytes();
    frame.push(b'\n');
    frame
}
