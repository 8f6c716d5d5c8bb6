//! Stdio benchmark server: `toolrack-bench serve`.
//!
//! A legacy server (2025-11-25) on blocking pipes. It answers all requests of one read with one write to spend as
//! little CPU time as possible: only the client is of interest. It exits when stdin closes.
//!
//! **Invariant:** the output consists of whole lines, each written under the output lock.

pub(crate) mod http;
mod request;
pub(crate) mod responses;

use std::fs::File;
use std::io::{self, Read as _, Write};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use memchr::memchr;
use parking_lot::Mutex;
use rustix::process::{Signal, set_parent_process_death_signal};
use toolrack_testkit::harness;

use self::request::{Arguments, EchoMatcher, Request};
use self::responses::Escapes;
use crate::cli::ServeArgs;

/// Duration of a call of `slow`.
const SLOW: Duration = Duration::from_millis(400);

/// Capacity of a pipe. As with any server that responds before it reads on, a client that writes more than this plus
/// both pipes without reading blocks.
const READ_BYTES: usize = 64 * 1024;

/// Slow calls that wait at the same time. When the queue is full, the server waits for the oldest.
const MAX_SLOW_CALLS: usize = 1024;

/// Serves until stdin closes.
pub(crate) fn serve(args: ServeArgs) -> anyhow::Result<()> {
    let ServeArgs { tools: n_tools } = args;
    let mut input =
        File::from(io::stdin().as_fd().try_clone_to_owned().context("cannot open stdin")?);
    let output =
        File::from(io::stdout().as_fd().try_clone_to_owned().context("cannot open stdout")?);
    let mut server = Server::new(output, n_tools);

    let mut buffer = vec![0; READ_BYTES];
    let mut filled = 0;
    loop {
        let Some(free) = buffer.get_mut(filled..) else { return Ok(()) };
        let read = input.read(free)?;
        if read == 0 {
            return Ok(());
        }
        filled += read;
        let mut rest = buffer.get(..filled).unwrap_or_default();
        while let Some(newline) = memchr(b'\n', rest) {
            let (line, after) = rest.split_at(newline);
            server.respond(line)?;
            rest = after.get(1..).unwrap_or_default();
        }
        server.flush()?;
        let unread = rest.len();
        buffer.copy_within(filled - unread..filled, 0);
        filled = unread;
        if filled == buffer.len() {
            buffer.resize(2 * filled, 0);
        }
    }
}

struct Server {
    output: Arc<Mutex<File>>,
    pending: Vec<u8>,
    echo_matcher: EchoMatcher,
    n_tools: usize,
    /// Created by the first `tools/list`, to start fast.
    tool_list: Option<Vec<u8>>,
    /// The last large result with its arguments; clients request the same one repeatedly.
    last_large_result: Option<((usize, Escapes), Vec<u8>)>,
    /// Queue of the timer thread, which the first slow call starts.
    slow_calls: Option<SyncSender<SlowCall>>,
}

struct SlowCall {
    due: Instant,
    line: Vec<u8>,
}

impl Server {
    fn new(output: File, n_tools: usize) -> Self {
        Self {
            output: Arc::new(Mutex::new(output)),
            pending: Vec::with_capacity(READ_BYTES),
            echo_matcher: EchoMatcher::new(),
            n_tools,
            tool_list: None,
            last_large_result: None,
            slow_calls: None,
        }
    }

    fn respond(&mut self, line: &[u8]) -> anyhow::Result<()> {
        if let Some(id) = self.echo_matcher.echo_id(line) {
            responses::write_echo(&mut self.pending, id);
            return Ok(());
        }
        let request = Request::parse(line);
        let Some(id) = request.id() else { return Ok(()) };
        match (&*request.method, &*request.params.name) {
            ("tools/call", "big") => self.large_result(id, &request.params.arguments)?,
            ("tools/call", "slow") => self.slow_call(id)?,
            ("tools/call", "flood") => flood(&mut *self.output.lock())?,
            ("tools/call", _) => responses::write_echo(&mut self.pending, id),
            ("tools/list", _) => self.list(id)?,
            (method, _) => responses::write_common(&mut self.pending, id, method),
        }
        Ok(())
    }

    fn list(&mut self, id: &[u8]) -> io::Result<()> {
        let list = self.tool_list.take().unwrap_or_else(|| responses::tool_list(self.n_tools));
        self.respond_with(id, &list)?;
        self.tool_list = Some(list);
        Ok(())
    }

    fn large_result(&mut self, id: &[u8], arguments: &Arguments) -> io::Result<()> {
        let escapes = if arguments.escapes { Escapes::With } else { Escapes::Without };
        let requested = (arguments.n, escapes);
        let (_, result) = self
            .last_large_result
            .take()
            .filter(|(cached, _)| *cached == requested)
            .unwrap_or_else(|| (requested, responses::large_result(arguments.n, escapes)));
        self.respond_with(id, &result)?;
        self.last_large_result = Some((requested, result));
        Ok(())
    }

    /// Writes a large result without copying it first, to save time of the server.
    fn respond_with(&mut self, id: &[u8], result: &[u8]) -> io::Result<()> {
        if result.len() < READ_BYTES {
            responses::write_result(&mut self.pending, id, result);
            return Ok(());
        }
        responses::write_result_prefix(&mut self.pending, id);
        self.write_through(&[result, responses::RESULT_SUFFIX])
    }

    /// Queues the response for the timer thread, so that it does not delay later calls.
    fn slow_call(&mut self, id: &[u8]) -> anyhow::Result<()> {
        let mut line = Vec::new();
        responses::write_echo(&mut line, id);
        let output = Arc::clone(&self.output);
        let queue = self.slow_calls.get_or_insert_with(|| {
            let (queue, calls) = mpsc::sync_channel(MAX_SLOW_CALLS);
            thread::spawn(move || respond_when_due(&calls, &output));
            queue
        });
        queue.send(SlowCall { due: harness::now() + SLOW, line }).context("the timer thread exited")
    }

    fn flush(&mut self) -> io::Result<()> {
        if !self.pending.is_empty() {
            self.write_through(&[])?;
        }
        Ok(())
    }

    /// Writes the pending responses and then `pieces` under one lock.
    fn write_through(&mut self, pieces: &[&[u8]]) -> io::Result<()> {
        let mut output = self.output.lock();
        output.write_all(&self.pending)?;
        self.pending.clear();
        pieces.iter().try_for_each(|piece| output.write_all(piece))
    }
}

/// Sends slow responses when they are due. All take equally long, so they are due in order of arrival.
fn respond_when_due(calls: &Receiver<SlowCall>, output: &Mutex<File>) {
    for call in calls {
        thread::sleep(call.due.saturating_duration_since(harness::now()));
        let mut output = output.lock();
        // The client has closed the pipe; the main loop notices it too and exits.
        if output.write_all(&call.line).is_err() {
            return;
        }
    }
}

/// Well-formed but useless: an unknown notification, and a response without a request.
const FLOOD_MESSAGES: &[u8] = b"\
    {\"jsonrpc\":\"2.0\",\"method\":\"notifications/nonsense\",\"params\":{\"of\":\"no use to anybody\"}}\n\
    {\"jsonrpc\":\"2.0\",\"id\":999999999,\"result\":{\"content\":[]}}\n";

/// Size of one write: the capacity of a pipe.
const WRITE_BYTES: usize = 64 * 1024;

/// Floods the output and spins a core until the pipe closes or the parent process exits.
fn flood(output: &mut impl Write) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    thread::spawn(|| {
        loop {
            std::hint::spin_loop();
        }
    });
    let messages = FLOOD_MESSAGES.repeat(WRITE_BYTES / FLOOD_MESSAGES.len());
    loop {
        output.write_all(&messages)?;
    }
}
