//! One HTTP reply in the making: told what to say by the server, and how to go wrong by the plan.
//!
//! **Invariant:** a reply is done once. What is said after that is dropped, and the connection goes on to its next
//! request only when everything of this one has left.

use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;
use std::{io, mem, thread};

use super::gzip::Squeezed;
use super::request::Request;
use super::response_head::Head;
use super::{gzip, response_head};
use crate::http_log::{HttpEnding, HttpLogWriter, News};
use crate::plan::{Cut, HttpFault, Kind, Target};
use crate::scripted::child_process;

/// How many pieces of a dripping reply may wait; then whoever speaks waits too.
const DRIPPING_PIECES: usize = 256;

#[derive(Debug)]
pub(super) struct Reply {
    socket: Arc<Socket>,
    note: Note,
    inner: Mutex<Inner>,
    turn: Condvar,
}

#[derive(Debug)]
struct Inner {
    phase: Phase,
    manner: Manner,
    head: Head,
    n_body_bytes: u64,
    squeezed: Option<Squeezed>,
    drip: Drip,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Not a byte has left.
    Waiting,
    /// The head has left, and the body comes in chunks.
    Streaming,
    Done,
}

#[derive(Debug)]
enum Drip {
    No,
    On(SyncSender<Vec<u8>>),
    /// Everything is said, but not everything has left.
    Ending,
}

impl Reply {
    pub(super) fn new(socket: Arc<Socket>, note: Note, head: Head) -> Arc<Self> {
        let inner = Inner {
            phase: Phase::Waiting,
            manner: Manner::default(),
            head,
            n_body_bytes: 0,
            squeezed: None,
            drip: Drip::No,
        };
        Arc::new(Self { socket, note, inner: Mutex::new(inner), turn: Condvar::new() })
    }

    pub(super) fn misbehave(&self, fault: &HttpFault) {
        self.lock().manner.take(fault);
    }

    pub(super) fn set_status(&self, status: u16) {
        self.lock().head.status = status;
    }

    pub(super) fn add_header(&self, name: &'static str, value: String) {
        self.lock().head.headers.push((name, value));
    }

    pub(super) fn phase(&self) -> Phase {
        self.lock().phase
    }

    pub(super) fn needs_stream(&self) -> bool {
        self.lock().manner.needs_stream()
    }

    pub(super) fn place(&self) -> Place {
        self.lock().manner.place
    }

    /// The whole reply at once.
    pub(super) fn whole(self: &Arc<Self>, content_type: &'static str, body: &[u8]) {
        let mut inner = self.lock();
        if inner.phase != Phase::Waiting || self.stray(&mut inner, body) {
            return;
        }
        match inner.manner.gzip {
            Gzip::No => {
                let head = inner.head.with_length(content_type, inner.manner.kind, body.len());
                self.open(&mut inner);
                let cut = match inner.manner.cut {
                    Some(Cut::BeforeAnswer) => Some(0),
                    Some(Cut::After(bytes)) => usize::try_from(bytes).ok(),
                    None => None,
                };
                let kept = body.get(..cut.unwrap_or(body.len())).unwrap_or(body);
                self.send(&mut inner, [&head, kept].concat());
                match cut {
                    Some(_) => self.end_by(&mut inner, HttpEnding::Cut, Socket::close),
                    None => self.end(&mut inner, HttpEnding::Answered),
                }
            }
            Gzip::Yes => {
                self.stream(&mut inner, content_type);
                self.write_body(&mut inner, body);
                self.end_stream(&mut inner);
            }
            Gzip::Bomb(n_bytes) => {
                inner.manner.gzip = Gzip::Yes;
                self.stream(&mut inner, content_type);
                inner.squeezed = None;
                let (head, tail) = body.split_at(body.len().saturating_sub(1));
                gzip::bomb(head, n_bytes, tail, |piece| {
                    self.send(&mut inner, response_head::chunk(piece));
                    !self.socket.is_closed()
                });
                self.end_stream(&mut inner);
            }
        }
    }

    /// Begins a body of unknown length, if nothing was said yet; whether it can be written to.
    pub(super) fn start(self: &Arc<Self>, content_type: &'static str, first: &[u8]) -> bool {
        let mut inner = self.lock();
        if inner.phase == Phase::Waiting && !self.stray(&mut inner, b"") {
            self.stream(&mut inner, content_type);
            self.write_body(&mut inner, first);
            if let Some(retry) = inner.manner.end {
                if let Some(retry) = retry {
                    let line = format!("retry: {}\n\n", retry.as_millis());
                    self.write_body(&mut inner, line.as_bytes());
                }
                self.end_stream(&mut inner);
            }
        }
        inner.phase == Phase::Streaming
    }

    /// Adds to the body; whether there is still somebody who takes it.
    pub(super) fn write(self: &Arc<Self>, bytes: &[u8]) -> bool {
        let mut inner = self.lock();
        if inner.phase == Phase::Streaming {
            self.write_body(&mut inner, bytes);
        }
        inner.phase == Phase::Streaming
    }

    /// The moment before the answer goes out on a stream.
    pub(super) fn before_answer(self: &Arc<Self>) {
        let mut inner = self.lock();
        if inner.phase == Phase::Streaming && inner.manner.cut == Some(Cut::BeforeAnswer) {
            self.end_by(&mut inner, HttpEnding::Cut, Socket::close);
        }
    }

    /// Ends the reply; one that said nothing says that it has nothing to say.
    pub(super) fn finish(self: &Arc<Self>) {
        let mut inner = self.lock();
        match inner.phase {
            Phase::Done => (),
            Phase::Streaming => self.end_stream(&mut inner),
            Phase::Waiting => {
                if self.stray(&mut inner, b"") {
                    return;
                }
                if inner.head.status == 200 {
                    inner.head.status = 202;
                }
                let head = inner.head.with_length("", None, 0);
                self.open(&mut inner);
                self.send(&mut inner, head);
                self.end(&mut inner, HttpEnding::Answered);
            }
        }
    }

    /// The connection is to end here.
    pub(super) fn close(self: &Arc<Self>) {
        let mut inner = self.lock();
        if inner.phase != Phase::Done {
            self.end_by(&mut inner, HttpEnding::Cut, Socket::close);
        }
    }

    /// The client is gone.
    pub(super) fn hang_up(&self) {
        let mut inner = self.lock();
        if inner.phase != Phase::Done {
            self.end(&mut inner, HttpEnding::HungUp);
        }
    }

    /// Waits until the next reply of the connection may begin; whether that came about.
    pub(super) fn wait(&self, within: Duration) -> bool {
        let busy =
            |inner: &mut Inner| inner.phase != Phase::Done || !matches!(inner.drip, Drip::No);
        let waited = self.turn.wait_timeout_while(self.lock(), within, busy);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// Does what the plan has instead of the reply, if it has something. The body is what would have been said.
    fn stray(self: &Arc<Self>, inner: &mut Inner, body: &[u8]) -> bool {
        let reply = match inner.manner.instead {
            Instead::Nothing => return false,
            // Nothing is ever said; only the client can end this.
            Instead::Mute => return true,
            Instead::Drop => {
                self.end_by(inner, HttpEnding::Cut, Socket::close);
                return true;
            }
            Instead::Reset => {
                self.end_by(inner, HttpEnding::Cut, Socket::reset);
                return true;
            }
            Instead::Empty => inner.head.with_length("application/json", None, 0),
            Instead::Page => inner.head.page(),
            Instead::Status(status, retry_after) => inner.head.bare(status, retry_after, body),
            Instead::Redirect(to, status) => inner.head.redirect(status, to),
        };
        self.open(inner);
        self.send(inner, reply);
        self.end(inner, HttpEnding::Answered);
        true
    }

    /// What is true of the first byte of any reply.
    fn open(self: &Arc<Self>, inner: &mut Inner) {
        self.note.status(inner.head.status);
        if let Some((n_bytes, every)) = inner.manner.drip {
            inner.drip = Drip::On(self.start_dripping(n_bytes, every));
        }
    }

    fn stream(self: &Arc<Self>, inner: &mut Inner, content_type: &'static str) {
        if inner.manner.gzip != Gzip::No {
            inner.head.headers.push(("content-encoding", "gzip".to_owned()));
            inner.squeezed = Some(Squeezed::new());
        }
        let head = inner.head.with_chunks(content_type, inner.manner.kind);
        self.open(inner);
        inner.phase = Phase::Streaming;
        self.send(inner, head);
        if inner.manner.cut == Some(Cut::After(0)) {
            self.end_by(inner, HttpEnding::Cut, Socket::close);
        }
    }

    fn write_body(self: &Arc<Self>, inner: &mut Inner, bytes: &[u8]) {
        if bytes.is_empty() || inner.phase != Phase::Streaming {
            return;
        }
        let room = match inner.manner.cut {
            Some(Cut::After(limit)) => limit.saturating_sub(inner.n_body_bytes),
            _ => u64::MAX,
        };
        let room = usize::try_from(room).unwrap_or(usize::MAX);
        let kept = bytes.get(..room).unwrap_or(bytes);
        inner.n_body_bytes += kept.len() as u64;
        let piece = match &mut inner.squeezed {
            Some(squeezed) => squeezed.squeeze(kept),
            None => kept.to_vec(),
        };
        self.send(inner, response_head::chunk(&piece));
        if room <= bytes.len() {
            self.end_by(inner, HttpEnding::Cut, Socket::close);
        } else if self.socket.is_closed() {
            self.end(inner, HttpEnding::HungUp);
        }
    }

    fn end_stream(self: &Arc<Self>, inner: &mut Inner) {
        if inner.phase != Phase::Streaming {
            return;
        }
        if let Some(rest) = inner.squeezed.take().map(Squeezed::end) {
            self.send(inner, response_head::chunk(&rest));
        }
        self.send(inner, b"0\r\n\r\n".to_vec());
        self.end(inner, HttpEnding::Answered);
    }

    fn send(&self, inner: &mut Inner, bytes: Vec<u8>) {
        match &inner.drip {
            // A thread that drips ends early only because the client is gone.
            Drip::On(tap) => tap.send(bytes).unwrap_or_default(),
            Drip::No | Drip::Ending => drop(self.socket.write(&bytes)),
        }
    }

    fn end(&self, inner: &mut Inner, how: HttpEnding) {
        inner.phase = Phase::Done;
        if let Drip::On(tap) = mem::replace(&mut inner.drip, Drip::No) {
            inner.drip = Drip::Ending;
            drop(tap);
        }
        self.note.ended(how);
        self.turn.notify_all();
    }

    fn end_by(&self, inner: &mut Inner, how: HttpEnding, close: fn(&Socket)) {
        self.end(inner, how);
        // What still drips is cut off as well.
        close(&self.socket);
    }

    fn start_dripping(self: &Arc<Self>, n_bytes: usize, every: Duration) -> SyncSender<Vec<u8>> {
        let (tap, drops) = mpsc::sync_channel::<Vec<u8>>(DRIPPING_PIECES);
        let reply = Arc::clone(self);
        thread::spawn(move || {
            for piece in drops {
                for some in piece.chunks(n_bytes.max(1)) {
                    if !reply.socket.write(some) {
                        break;
                    }
                    thread::sleep(every);
                }
            }
            reply.lock().drip = Drip::No;
            reply.turn.notify_all();
        });
        tap
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Default, Clone, PartialEq)]
pub(super) struct Manner {
    pub(super) instead: Instead,
    pub(super) kind: Option<Kind>,
    pub(super) cut: Option<Cut>,
    /// Ends the stream before the answer, with this `retry`.
    pub(super) end: Option<Option<Duration>>,
    pub(super) place: Place,
    pub(super) drip: Option<(usize, Duration)>,
    pub(super) gzip: Gzip,
}

/// What comes in the place of the answer.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Instead {
    #[default]
    Nothing,
    Status(u16, Option<Duration>),
    Redirect(Target, u16),
    Drop,
    Reset,
    Mute,
    Empty,
    Page,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    #[default]
    Here,
    Elsewhere,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gzip {
    #[default]
    No,
    Yes,
    /// So many bytes of padding in the answer.
    Bomb(u64),
}

impl Manner {
    /// Adds one more fault; the last of a kind wins.
    pub(super) fn take(&mut self, fault: &HttpFault) {
        match fault {
            HttpFault::Status { code, retry_after } => {
                self.instead = Instead::Status(*code, *retry_after);
            }
            HttpFault::Redirect { to, code } => self.instead = Instead::Redirect(*to, *code),
            HttpFault::Forget => self.instead = Instead::Status(404, None),
            HttpFault::Drop => self.instead = Instead::Drop,
            HttpFault::Reset => self.instead = Instead::Reset,
            HttpFault::Mute => self.instead = Instead::Mute,
            HttpFault::Empty => self.instead = Instead::Empty,
            HttpFault::Kind(Kind::Html) => self.instead = Instead::Page,
            HttpFault::Kind(kind) => self.kind = Some(*kind),
            HttpFault::Cut(cut) => self.cut = Some(*cut),
            HttpFault::End(retry) => self.end = Some(*retry),
            HttpFault::Elsewhere => self.place = Place::Elsewhere,
            HttpFault::Drip { bytes, every } => {
                self.drip = Some((usize::try_from(*bytes).unwrap_or(usize::MAX), *every));
            }
            HttpFault::Gzip(None) => self.gzip = Gzip::Yes,
            HttpFault::Gzip(Some(bytes)) => self.gzip = Gzip::Bomb(*bytes),
        }
    }

    /// Whether only a stream can go wrong in this manner.
    pub(super) fn needs_stream(&self) -> bool {
        self.end.is_some()
    }
}

/// Writes down what becomes of one request; without a log it does nothing.
#[derive(Debug)]
pub(super) struct Note {
    log: Option<Arc<HttpLogWriter>>,
    number: u64,
    /// Zero until the head has left.
    status: AtomicU16,
}

impl Note {
    pub(super) fn arrived(
        log: Option<&Arc<HttpLogWriter>>,
        number: u64,
        request: &Request,
    ) -> Self {
        let note = Self { log: log.map(Arc::clone), number, status: AtomicU16::new(0) };
        if let Some(log) = &note.log {
            let query = if request.query.is_empty() { "" } else { "?" };
            note.write(News::Arrived {
                at_ms: log.millis(),
                verb: request.verb.clone(),
                target: format!("{}{query}{}", request.path, request.query),
                method: method_of(&request.body),
                headers: request.headers.iter().cloned().collect(),
            });
        }
        note
    }

    pub(super) fn status(&self, status: u16) {
        self.status.store(status, Ordering::Relaxed);
    }

    pub(super) fn ended(&self, ending: HttpEnding) {
        let status = Some(self.status.load(Ordering::Relaxed)).filter(|some| *some > 0);
        self.write(News::Ended { status, ending });
    }

    fn write(&self, news: News) {
        let Some(log) = &self.log else { return };
        if log.write(self.number, news).is_err() {
            // A log that misses a request proves nothing, so the run must not go on.
            child_process::leave(3);
        }
    }
}

fn method_of(body: &[u8]) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Message {
        method: String,
    }
    serde_json::from_slice::<Message>(body).ok().map(|slice| slice.method)
}

const WRITE_PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct Socket {
    stream: TcpStream,
    closed: AtomicBool,
}

impl Socket {
    pub(super) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(WRITE_PATIENCE))?;
        Ok(Self { stream, closed: AtomicBool::new(false) })
    }

    /// Writes everything, or closes the connection and says `false`.
    pub(super) fn write(&self, bytes: &[u8]) -> bool {
        if self.is_closed() {
            return false;
        }
        let written = (&self.stream).write_all(bytes).is_ok();
        if !written {
            self.close();
        }
        written
    }

    /// Ends the connection in good order; whoever reads from it sees the end.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        // It may be closed already.
        self.stream.shutdown(Shutdown::Both).unwrap_or_default();
    }

    /// Ends the connection by a reset, which also takes back what the client has not read yet.
    pub(super) fn reset(&self) {
        self.closed.store(true, Ordering::Relaxed);
        let linger = Some(Duration::ZERO);
        let set = rustix::net::sockopt::set_socket_linger(&self.stream, linger);
        // Dissolving the association sends the reset at once, whoever else holds the socket.
        if set.is_err() || rustix::net::connect_unspec(&self.stream).is_err() {
            // Some kernels refuse that while somebody reads. Then the last to let go of the socket sends it.
            self.stream.shutdown(Shutdown::Read).unwrap_or_default();
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    pub(super) fn stream(&self) -> &TcpStream {
        &self.stream
    }
}
