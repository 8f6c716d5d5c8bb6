//! Immediate effects of faults: noise, floods, child processes, exits. Faults of the response are recorded for later.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;

use super::child_process;
use super::client::MessageContext;
use super::hostile_values;
use crate::harness::now;
use crate::jsonrpc;
use crate::message_sink::{LongKind, LongMessage};
use crate::plan::{Fault, Garbage, HugePlacement, Ignored, Lines, Message, Stream};
use crate::quantity::Times;

const NONSENSE: &[u8] = br#"{"jsonrpc":"2.0","id":1,"result":5,"method":7}"#;

/// Rounds of a flood between two checks of the reader and the lifetime.
const CHECK_EVERY: u64 = 1024;

impl MessageContext {
    /// Executes the immediate effects of these faults. Faults of the response come with it.
    pub(super) fn apply_faults(&self, faults: &[Fault]) {
        for fault in faults {
            // Earlier output must leave before the fault takes effect.
            self.sink.flush();
            self.apply_fault(fault);
            self.sink.flush();
        }
    }

    fn apply_fault(&self, fault: &Fault) {
        let (server, sink) = (&self.server, &*self.sink);
        let options = &server.options;
        match fault {
            Fault::Garbage { kind, times } => self.flood(*times, |_| garbage(*kind)),
            Fault::Nonsense(times) => self.flood(*times, |_| NONSENSE.to_vec()),
            Fault::Notify(times) => self.flood(*times, log_line),
            Fault::Changed { times, every: Duration::ZERO } => {
                self.repeat(*times, |_| self.announce_change());
            }
            Fault::Changed { times, every } => self.clone().announce_repeatedly(*times, *every, 0),
            Fault::Send { message, times } => {
                self.repeat(*times, |round| self.send(*message, round));
            }
            Fault::Ping(times) => self.repeat(*times, |_| {
                server.request_client(sink, "ping", None);
            }),
            Fault::Stderr { bytes, lines } => flood_stderr(*bytes, *lines),
            Fault::Exit(code) => child_process::exit(*code),
            Fault::Kill(signal) => kill_self(*signal),
            Fault::Close(stream) => self.close(*stream),
            Fault::Leak(code) => {
                exit_on_error(child_process::start_stdout_holder(options));
                child_process::exit(*code);
            }
            Fault::StopRead => server.flags.stopped_reading.store(true, Ordering::Relaxed),
            Fault::Escape { count, kind } => {
                exit_on_error(child_process::start_escapees(*count, *kind, options));
            }
            Fault::StopParent => exit_on_error(child_process::stop_parent()),
            Fault::Children(count) => exit_on_error(child_process::start_children(*count, options)),
            Fault::Spin => spin(options.lifetime),
            Fault::Burn => {
                let lifetime = options.lifetime;
                thread::spawn(move || spin(lifetime));
            }
            Fault::Prompt => self.prompt(),
            Fault::Ignore(what) => what.iter().for_each(|what| self.ignore(*what)),
            Fault::Huge { bytes, place: HugePlacement::Line } => {
                sink.send_long(&junk(*bytes, LongKind::Extra));
            }
            Fault::Huge { bytes, place: HugePlacement::Open } => {
                sink.send_long(&junk(*bytes, LongKind::Unterminated));
            }
            Fault::Status(status) => sink.set_status(*status),
            _ => (),
        }
    }

    /// Writes lines until the count is reached, the reader is gone, or the lifetime is over.
    fn flood(&self, times: Times, line: impl Fn(u64) -> Vec<u8>) {
        self.repeat(times, |round| self.sink.send(&line(round)));
    }

    fn repeat(&self, times: Times, action: impl Fn(u64)) {
        let deadline = now() + self.server.options.lifetime;
        let mut round = 0;
        while times.includes(round) {
            if round % CHECK_EVERY == 0 && (self.sink.is_broken() || now() > deadline) {
                return;
            }
            action(round);
            round += 1;
        }
    }

    fn send(&self, message: Message, round: u64) {
        let (method, params) = hostile_values::message(message, round);
        if message.is_request() {
            self.server.request_client(&*self.sink, method, params.as_ref());
        } else {
            self.sink.send(&jsonrpc::notification_line(method, params.as_ref()));
        }
    }

    fn announce_repeatedly(self, times: Times, every: Duration, round: u64) {
        if !times.includes(round) || self.client.sink.is_broken() {
            return;
        }
        self.announce_change();
        self.client.sink.flush();
        let server = Arc::clone(&self.server);
        server.timer.after(every, move || self.announce_repeatedly(times, every, round + 1));
    }

    /// Announces a change that did not happen, subscribed or not.
    fn announce_change(&self) {
        for client in self.server.clients() {
            client.sink.send(&client.subscriptions.tools_changed_line());
        }
    }

    fn close(&self, stream: Stream) {
        let null = OpenOptions::new().read(true).write(true).open("/dev/null");
        exit_on_error(null.and_then(|null| {
            match stream {
                Stream::Stdout => rustix::stdio::dup2_stdout(null)?,
                Stream::Stderr => rustix::stdio::dup2_stderr(null)?,
                Stream::Stdin => {
                    // The next read sees the end of `/dev/null`, which must not stop the server.
                    self.server.flags.ignores_eof.store(true, Ordering::Relaxed);
                    rustix::stdio::dup2_stdin(null)?;
                }
            }
            Ok(())
        }));
    }

    fn prompt(&self) {
        self.server.flags.prompting.store(true, Ordering::Relaxed);
        exit_on_error(
            io::stderr().write_all(b"Need to install the following packages. Ok to proceed? (y) "),
        );
    }

    fn ignore(&self, what: Ignored) {
        match what {
            Ignored::Eof => self.server.flags.ignores_eof.store(true, Ordering::Relaxed),
            Ignored::Term => exit_on_error(child_process::ignore_sigterm()),
        }
    }
}

fn junk(bytes: u64, kind: LongKind) -> LongMessage<'static> {
    LongMessage { filler: b'j', bytes, kind, ..LongMessage::default() }
}

fn garbage(kind: Garbage) -> Vec<u8> {
    match kind {
        Garbage::Text => b"Server listening on port 3000 (press q to quit)".to_vec(),
        Garbage::Ansi => b"\x1b[2K\x1b[31m\xe2\x9c\x96 warning\x1b[0m \x1b]0;title\x07".to_vec(),
        Garbage::Blank => Vec::new(),
        Garbage::Crlf => b"\r".to_vec(),
        Garbage::Bom => b"\xef\xbb\xbf".to_vec(),
        Garbage::Utf8 => b"{\"jsonrpc\":\"2.0\",\"method\":\"\xff\xfe\xc3\x28\"}".to_vec(),
        Garbage::Json => br#"{"level":30,"msg":"ready","pid":1}"#.to_vec(),
    }
}

fn log_line(round: u64) -> Vec<u8> {
    let params = json!({ "level": "info", "logger": "flood", "data": round });
    jsonrpc::notification_line("notifications/message", Some(&params))
}

fn flood_stderr(bytes: u64, lines: Lines) {
    let mut chunk = vec![b'e'; 8 * 1024];
    if lines == Lines::Many {
        for at in chunk.iter_mut().skip(79).step_by(80) {
            *at = b'\n';
        }
    }
    let mut left = bytes;
    while left > 0 {
        let now = usize::try_from(left).unwrap_or(usize::MAX).min(chunk.len());
        if io::stderr().write_all(chunk.get(..now).unwrap_or_default()).is_err() {
            return;
        }
        left -= now as u64;
    }
}

fn kill_self(signal: Signal) -> ! {
    loop {
        // Some signals need a second delivery after the runtime has handled the first.
        let sent = rustix::process::kill_process(rustix::process::getpid(), signal);
        exit_on_error(sent.map_err(io::Error::from));
        thread::sleep(Duration::from_millis(1));
    }
}

fn spin(lifetime: Duration) -> ! {
    let deadline = now() + lifetime;
    while now() < deadline {
        std::hint::spin_loop();
    }
    child_process::exit(0)
}

/// A plan that fails to execute must not look like one that worked: exit with a distinct code.
fn exit_on_error(outcome: io::Result<()>) {
    if let Err(error) = outcome {
        let line = format!("scripted-server: the plan cannot be executed: {error}\n");
        io::stderr().write_all(line.as_bytes()).unwrap_or_default();
        child_process::exit(3);
    }
}
