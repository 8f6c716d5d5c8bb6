//! What faults do at once: noise, floods, new processes, and ends. What concerns an answer is noted for later.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;

use super::child_process;
use super::client::Origin;
use super::faulty_response::{Copies, Twist, Withheld};
use super::server::Server;
use crate::jsonrpc;
use crate::message_sink::{Long, LongKind, Outlet};
use crate::plan::{Fault, Garbage, HttpFault, Ignored, Lines, Place, Stream};
use crate::quantity::Times;
use crate::timer::now;

const NONSENSE: &[u8] = br#"{"jsonrpc":"2.0","id":1,"result":5,"method":7}"#;

/// How often a flood looks whether anybody is still there.
const LOOK_EVERY: u64 = 1024;

impl Server {
    pub(super) fn act(
        self: &Arc<Self>,
        origin: &Origin,
        fault: &Fault,
        twist: &mut Option<Box<Twist>>,
    ) {
        let outlet = &*origin.outlet;
        // Whatever went before has left when a fault strikes.
        outlet.flush();
        match fault {
            Fault::Ok | Fault::Tree(_) => (),
            Fault::Garbage { kind, times } => self.flood(outlet, *times, |_| garbage(*kind)),
            Fault::Nonsense(times) => self.flood(outlet, *times, |_| NONSENSE.to_vec()),
            Fault::Notify(times) => self.flood(outlet, *times, log_line),
            Fault::Changed { times, every: Duration::ZERO } => {
                self.rounds(outlet, *times, |_| self.claim_change());
            }
            Fault::Changed { times, every } => self.change_on(origin, *times, *every, 0),
            Fault::Ping(times) => self.rounds(outlet, *times, |_| {
                self.ask_client(outlet, "ping", None);
            }),
            Fault::Stderr { bytes, lines } => flood_stderr(*bytes, *lines),
            Fault::Exit(code) => child_process::leave(*code),
            Fault::Kill(signal) => die_of(*signal),
            Fault::Close(stream) => self.close(*stream),
            Fault::Leak(code) => {
                or_complain(child_process::leave_a_holder(&self.options));
                child_process::leave(*code);
            }
            Fault::StopRead => self.flags.stopped_reading.store(true, Ordering::Relaxed),
            Fault::Escape(count) => {
                or_complain(child_process::start_escapees(*count, &self.options))
            }
            Fault::Children(count) => {
                or_complain(child_process::start_children(*count, &self.options))
            }
            Fault::Spin => spin(self.options.lifetime),
            Fault::Burn => {
                let lifetime = self.options.lifetime;
                thread::spawn(move || spin(lifetime));
            }
            Fault::Prompt => self.prompt(),
            Fault::Ignore(what) => what.iter().for_each(|what| self.ignore(*what)),
            Fault::Huge { bytes, place: Place::Line } => {
                outlet.put_long(&junk(*bytes, LongKind::Aside));
            }
            Fault::Huge { bytes, place: Place::Open } => {
                outlet.put_long(&junk(*bytes, LongKind::Open));
                twist.get_or_insert_default().withheld = Withheld::Yes;
            }
            Fault::Http(HttpFault::Forget) => {
                self.sessions.forget();
                outlet.misbehave(&HttpFault::Forget);
            }
            Fault::Http(fault) => outlet.misbehave(fault),
            of_the_answer => note(of_the_answer, twist.get_or_insert_default()),
        }
        outlet.flush();
    }

    /// Writes lines until it was often enough, nobody reads any more, or the lifetime is over.
    fn flood(&self, outlet: &dyn Outlet, times: Times, line: impl Fn(u64) -> Vec<u8>) {
        self.rounds(outlet, times, |round| outlet.put(&line(round)));
    }

    fn rounds(&self, outlet: &dyn Outlet, times: Times, act: impl Fn(u64)) {
        let deadline = now() + self.options.lifetime;
        let mut round = 0;
        while times.includes(round) {
            if round % LOOK_EVERY == 0 && (outlet.is_broken() || now() > deadline) {
                return;
            }
            act(round);
            round += 1;
        }
    }

    fn change_on(self: &Arc<Self>, origin: &Origin, times: Times, every: Duration, round: u64) {
        if !times.includes(round) || origin.client.outlet.is_broken() {
            return;
        }
        self.claim_change();
        origin.client.outlet.flush();
        let (server, origin) = (Arc::clone(self), origin.clone());
        self.timer.after(every, move || server.change_on(&origin, times, every, round + 1));
    }

    /// Tells every client of a change that there was not, whether it wants to hear of changes or not.
    fn claim_change(&self) {
        for client in self.clients() {
            client.outlet.put(&client.audience.tools_changed_line());
        }
    }

    fn close(&self, stream: Stream) {
        let null = OpenOptions::new().read(true).write(true).open("/dev/null");
        or_complain(null.and_then(|null| {
            match stream {
                Stream::Stdout => rustix::stdio::dup2_stdout(null)?,
                Stream::Stderr => rustix::stdio::dup2_stderr(null)?,
                Stream::Stdin => {
                    // The next read meets the end of `/dev/null`, which must not end the server.
                    self.flags.deaf_to_eof.store(true, Ordering::Relaxed);
                    rustix::stdio::dup2_stdin(null)?;
                }
            }
            Ok(())
        }));
    }

    fn prompt(&self) {
        self.flags.prompting.store(true, Ordering::Relaxed);
        or_complain(
            io::stderr().write_all(b"Need to install the following packages. Ok to proceed? (y) "),
        );
    }

    fn ignore(&self, what: Ignored) {
        match what {
            Ignored::Eof => self.flags.deaf_to_eof.store(true, Ordering::Relaxed),
            Ignored::Term => or_complain(child_process::be_deaf_to_term()),
        }
    }
}

fn note(fault: &Fault, twist: &mut Twist) {
    match fault {
        Fault::Late(delay) => twist.late = Some(*delay),
        Fault::Hold(count) => twist.hold = Some(*count),
        Fault::Dup => twist.copies = Copies::Two,
        Fault::Hang => twist.withheld = Withheld::Yes,
        Fault::Id(wrong) => twist.id = Some(*wrong),
        Fault::Shape(shape) => twist.shape = Some(*shape),
        Fault::Error(code) => twist.error = Some(*code),
        Fault::Frame(framing) => twist.framing = Some(*framing),
        Fault::Huge { bytes, place } => twist.huge = Some((*bytes, *place)),
        Fault::Half(code) => twist.half = Some(*code),
        Fault::Version(version) => twist.version = Some(version.clone()),
        Fault::Cursor(cursor) => twist.cursor = Some(*cursor),
        _ => (),
    }
}

fn junk(bytes: u64, kind: LongKind) -> Long<'static> {
    Long { head: b"", filler: b'j', bytes, tail: b"", kind }
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
    jsonrpc::notification("notifications/message", Some(&params))
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

fn die_of(signal: Signal) -> ! {
    loop {
        // Some signals take effect only the second time, after the runtime's own reaction to the first.
        let sent = rustix::process::kill_process(rustix::process::getpid(), signal);
        or_complain(sent.map_err(io::Error::from));
        thread::sleep(Duration::from_millis(1));
    }
}

fn spin(lifetime: Duration) -> ! {
    let deadline = now() + lifetime;
    while now() < deadline {
        std::hint::spin_loop();
    }
    child_process::leave(0)
}

/// A plan that cannot be followed must not pass for one that was: the server ends with a code of its own.
fn or_complain(outcome: io::Result<()>) {
    if let Err(fault) = outcome {
        let line = format!("scripted-server: the plan cannot be followed: {fault}\n");
        io::stderr().write_all(line.as_bytes()).unwrap_or_default();
        child_process::leave(3);
    }
}
