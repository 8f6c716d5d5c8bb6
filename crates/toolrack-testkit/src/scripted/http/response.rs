//! HTTP response in progress: content from the server, faults from the plan; with its socket and its log entry.
//!
//! **Invariant:** a response finishes once. Later writes are dropped, and the connection continues with its next
//! request only when this response has left completely.

use std::io::{self, Write};
use std::mem;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::gzip::GzipStream;
use super::request::Request;
use super::response_head::ResponseHead;
use super::{gzip, response_head};
use crate::http_log::{HttpLogEvent, HttpLogWriter, HttpOutcome};
use crate::plan::{ContentKind, Cut, HttpFault, RedirectTarget};
use crate::scripted::child_process;

/// Chunks that a dripping response may queue; then the writer blocks.
const MAX_DRIP_QUEUE: usize = 256;

#[derive(Debug)]
pub(super) struct HttpResponse {
    socket: Arc<Socket>,
    log_entry: RequestLogEntry,
    inner: Mutex<Inner>,
    done: Condvar,
}

#[derive(Debug)]
struct Inner {
    phase: Phase,
    faults: HttpResponseFaults,
    head: ResponseHead,
    n_body_bytes: u64,
    gzip_stream: Option<GzipStream>,
    drip: Drip,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Nothing is sent.
    Waiting,
    /// The head is sent, and the body is chunked.
    Streaming,
    Done,
}

#[derive(Debug)]
enum Drip {
    No,
    On(SyncSender<Vec<u8>>),
    /// Everything is queued, but not yet sent.
    Ending,
}

impl HttpResponse {
    pub(super) fn new(
        socket: Arc<Socket>,
        log_entry: RequestLogEntry,
        head: ResponseHead,
    ) -> Arc<Self> {
        let inner = Inner {
            phase: Phase::Waiting,
            faults: HttpResponseFaults::default(),
            head,
            n_body_bytes: 0,
            gzip_stream: None,
            drip: Drip::No,
        };
        Arc::new(Self { socket, log_entry, inner: Mutex::new(inner), done: Condvar::new() })
    }

    pub(super) fn add_fault(&self, fault: &HttpFault) {
        self.lock().faults.add(fault);
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
        self.lock().faults.needs_stream()
    }

    pub(super) fn place(&self) -> ResponsePlace {
        self.lock().faults.place
    }

    /// Sends the whole response at once.
    pub(super) fn send_complete(self: &Arc<Self>, content_type: &'static str, body: &[u8]) {
        let mut inner = self.lock();
        if inner.phase != Phase::Waiting || self.send_replacement(&mut inner, body) {
            return;
        }
        match inner.faults.gzip {
            Gzip::No => {
                let head = inner.head.with_length(content_type, inner.faults.kind, body.len());
                self.open(&mut inner);
                let cut = match inner.faults.cut {
                    Some(Cut::BeforeResponse) => Some(0),
                    Some(Cut::After(bytes)) => usize::try_from(bytes).ok(),
                    None => None,
                };
                let allowed = body.get(..cut.unwrap_or(body.len())).unwrap_or(body);
                self.send(&mut inner, [&head, allowed].concat());
                match cut {
                    Some(_) => self.end_by(&mut inner, HttpOutcome::Cut, Socket::close),
                    None => self.end(&mut inner, HttpOutcome::Completed),
                }
            }
            Gzip::Yes => {
                self.stream(&mut inner, content_type);
                self.write_body(&mut inner, body);
                self.end_stream(&mut inner);
            }
            Gzip::Bomb(n_bytes) => {
                inner.faults.gzip = Gzip::Yes;
                self.stream(&mut inner, content_type);
                inner.gzip_stream = None;
                let (head, tail) = body.split_at(body.len().saturating_sub(1));
                gzip::bomb(head, n_bytes, tail, |piece| {
                    self.send(&mut inner, response_head::chunk(piece));
                    !self.socket.is_closed()
                });
                self.end_stream(&mut inner);
            }
        }
    }

    /// Begins a chunked body if nothing is sent yet; returns whether it is open.
    pub(super) fn start(self: &Arc<Self>, content_type: &'static str, first: &[u8]) -> bool {
        let mut inner = self.lock();
        if inner.phase == Phase::Waiting && !self.send_replacement(&mut inner, b"") {
            self.stream(&mut inner, content_type);
            self.write_body(&mut inner, first);
            if let Some(retry) = inner.faults.end {
                if let Some(retry) = retry {
                    let line = format!("retry: {}\n\n", retry.as_millis());
                    self.write_body(&mut inner, line.as_bytes());
                }
                self.end_stream(&mut inner);
            }
        }
        inner.phase == Phase::Streaming
    }

    /// Appends to the body; returns whether it is still open.
    pub(super) fn write(self: &Arc<Self>, bytes: &[u8]) -> bool {
        let mut inner = self.lock();
        if inner.phase == Phase::Streaming {
            self.write_body(&mut inner, bytes);
        }
        inner.phase == Phase::Streaming
    }

    /// Applies faults due just before the JSON-RPC response on a stream.
    pub(super) fn before_response(self: &Arc<Self>) {
        let mut inner = self.lock();
        if inner.phase == Phase::Streaming && inner.faults.cut == Some(Cut::BeforeResponse) {
            self.end_by(&mut inner, HttpOutcome::Cut, Socket::close);
        }
    }

    /// Finishes the response; without any content it becomes an empty 202.
    pub(super) fn finish(self: &Arc<Self>) {
        let mut inner = self.lock();
        match inner.phase {
            Phase::Done => (),
            Phase::Streaming => self.end_stream(&mut inner),
            Phase::Waiting => {
                if self.send_replacement(&mut inner, b"") {
                    return;
                }
                if inner.head.status == 200 {
                    inner.head.status = 202;
                }
                let head = inner.head.with_length("", None, 0);
                self.open(&mut inner);
                self.send(&mut inner, head);
                self.end(&mut inner, HttpOutcome::Completed);
            }
        }
    }

    /// Closes the connection.
    pub(super) fn close(self: &Arc<Self>) {
        let mut inner = self.lock();
        if inner.phase != Phase::Done {
            self.end_by(&mut inner, HttpOutcome::Cut, Socket::close);
        }
    }

    /// The client has disconnected.
    pub(super) fn client_closed(&self) {
        let mut inner = self.lock();
        if inner.phase != Phase::Done {
            self.end(&mut inner, HttpOutcome::ClientClosed);
        }
    }

    /// Waits until the next response of the connection may begin; returns `false` on timeout.
    pub(super) fn wait(&self, within: Duration) -> bool {
        let busy =
            |inner: &mut Inner| inner.phase != Phase::Done || !matches!(inner.drip, Drip::No);
        !self.done.wait_while_for(&mut self.lock(), busy, within).timed_out()
    }

    /// Sends the planned replacement of the response, if there is one. `body` is the original body.
    fn send_replacement(self: &Arc<Self>, inner: &mut Inner, body: &[u8]) -> bool {
        let response = match inner.faults.replacement {
            Replacement::Nothing => return false,
            // Send nothing; only the client can end this.
            Replacement::Mute => return true,
            Replacement::Drop => {
                self.end_by(inner, HttpOutcome::Cut, Socket::close);
                return true;
            }
            Replacement::Reset => {
                self.end_by(inner, HttpOutcome::Cut, Socket::reset);
                return true;
            }
            Replacement::Empty => inner.head.with_length("application/json", None, 0),
            Replacement::Page => inner.head.page(),
            Replacement::Status(status, retry_after) => {
                inner.head.with_status(status, retry_after, body)
            }
            Replacement::Redirect(to, status) => inner.head.redirect(status, to),
        };
        self.open(inner);
        self.send(inner, response);
        self.end(inner, HttpOutcome::Completed);
        true
    }

    /// Before the first byte: logs the status and starts dripping.
    fn open(self: &Arc<Self>, inner: &mut Inner) {
        self.log_entry.status(inner.head.status);
        if let Some((n_bytes, every)) = inner.faults.drip {
            inner.drip = Drip::On(self.start_dripping(n_bytes, every));
        }
    }

    fn stream(self: &Arc<Self>, inner: &mut Inner, content_type: &'static str) {
        if inner.faults.gzip != Gzip::No {
            inner.head.headers.push(("content-encoding", "gzip".to_owned()));
            inner.gzip_stream = Some(GzipStream::new());
        }
        let head = inner.head.with_chunks(content_type, inner.faults.kind);
        self.open(inner);
        inner.phase = Phase::Streaming;
        self.send(inner, head);
        if inner.faults.cut == Some(Cut::After(0)) {
            self.end_by(inner, HttpOutcome::Cut, Socket::close);
        }
    }

    fn write_body(self: &Arc<Self>, inner: &mut Inner, bytes: &[u8]) {
        if bytes.is_empty() || inner.phase != Phase::Streaming {
            return;
        }
        let room = match inner.faults.cut {
            Some(Cut::After(limit)) => limit.saturating_sub(inner.n_body_bytes),
            _ => u64::MAX,
        };
        let room = usize::try_from(room).unwrap_or(usize::MAX);
        let allowed = bytes.get(..room).unwrap_or(bytes);
        inner.n_body_bytes += allowed.len() as u64;
        let piece = match &mut inner.gzip_stream {
            Some(gzip_stream) => gzip_stream.compress(allowed),
            None => allowed.to_vec(),
        };
        self.send(inner, response_head::chunk(&piece));
        if room <= bytes.len() {
            self.end_by(inner, HttpOutcome::Cut, Socket::close);
        } else if self.socket.is_closed() {
            self.end(inner, HttpOutcome::ClientClosed);
        }
    }

    fn end_stream(self: &Arc<Self>, inner: &mut Inner) {
        if inner.phase != Phase::Streaming {
            return;
        }
        if let Some(rest) = inner.gzip_stream.take().map(GzipStream::end) {
            self.send(inner, response_head::chunk(&rest));
        }
        self.send(inner, b"0\r\n\r\n".to_vec());
        self.end(inner, HttpOutcome::Completed);
    }

    fn send(&self, inner: &mut Inner, bytes: Vec<u8>) {
        match &inner.drip {
            // The drip thread ends early only when the client is gone.
            Drip::On(tap) => tap.send(bytes).unwrap_or_default(),
            Drip::No | Drip::Ending => drop(self.socket.write(&bytes)),
        }
    }

    fn end(&self, inner: &mut Inner, how: HttpOutcome) {
        inner.phase = Phase::Done;
        if let Drip::On(tap) = mem::replace(&mut inner.drip, Drip::No) {
            // The sender is dropped here, but the thread still drips its queue; `wait` must see that.
            inner.drip = Drip::Ending;
            drop(tap);
        }
        self.log_entry.ended(how);
        self.done.notify_all();
    }

    fn end_by(&self, inner: &mut Inner, how: HttpOutcome, close: fn(&Socket)) {
        self.end(inner, how);
        // Cuts off what still drips.
        close(&self.socket);
    }

    fn start_dripping(self: &Arc<Self>, n_bytes: usize, every: Duration) -> SyncSender<Vec<u8>> {
        let (tap, drops) = mpsc::sync_channel::<Vec<u8>>(MAX_DRIP_QUEUE);
        let response = Arc::clone(self);
        thread::spawn(move || {
            for piece in drops {
                for some in piece.chunks(n_bytes.max(1)) {
                    if !response.socket.write(some) {
                        break;
                    }
                    thread::sleep(every);
                }
            }
            response.lock().drip = Drip::No;
            response.done.notify_all();
        });
        tap
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }
}

#[derive(Debug, Default, Clone, PartialEq)]
pub(super) struct HttpResponseFaults {
    pub(super) replacement: Replacement,
    pub(super) kind: Option<ContentKind>,
    pub(super) cut: Option<Cut>,
    /// Ends the stream before the response, with this `retry`.
    pub(super) end: Option<Option<Duration>>,
    pub(super) place: ResponsePlace,
    pub(super) drip: Option<(usize, Duration)>,
    pub(super) gzip: Gzip,
}

/// Replacement of the response.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Replacement {
    #[default]
    Nothing,
    Status(u16, Option<Duration>),
    Redirect(RedirectTarget, u16),
    Drop,
    Reset,
    Mute,
    Empty,
    Page,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResponsePlace {
    #[default]
    Here,
    Elsewhere,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gzip {
    #[default]
    No,
    Yes,
    /// Padding in the response, in bytes.
    Bomb(u64),
}

impl HttpResponseFaults {
    /// Adds a fault; the last of a kind wins.
    pub(super) fn add(&mut self, fault: &HttpFault) {
        match fault {
            HttpFault::Status { code, retry_after } => {
                self.replacement = Replacement::Status(*code, *retry_after);
            }
            HttpFault::Redirect { to, code } => {
                self.replacement = Replacement::Redirect(*to, *code);
            }
            HttpFault::Forget => self.replacement = Replacement::Status(404, None),
            HttpFault::Drop => self.replacement = Replacement::Drop,
            HttpFault::Reset => self.replacement = Replacement::Reset,
            HttpFault::Mute => self.replacement = Replacement::Mute,
            HttpFault::Empty => self.replacement = Replacement::Empty,
            HttpFault::ContentKind(ContentKind::Html) => self.replacement = Replacement::Page,
            HttpFault::ContentKind(kind) => self.kind = Some(*kind),
            HttpFault::Cut(cut) => self.cut = Some(*cut),
            HttpFault::End(retry) => self.end = Some(*retry),
            HttpFault::Elsewhere => self.place = ResponsePlace::Elsewhere,
            HttpFault::Drip { bytes, every } => {
                self.drip = Some((usize::try_from(*bytes).unwrap_or(usize::MAX), *every));
            }
            HttpFault::Gzip(None) => self.gzip = Gzip::Yes,
            HttpFault::Gzip(Some(bytes)) => self.gzip = Gzip::Bomb(*bytes),
        }
    }

    /// Whether the faults need a stream.
    pub(super) fn needs_stream(&self) -> bool {
        self.end.is_some()
    }
}

/// Log entry of one request; does nothing without a log.
#[derive(Debug)]
pub(super) struct RequestLogEntry {
    log: Option<Arc<HttpLogWriter>>,
    number: u64,
    /// Zero until the head is sent.
    status: AtomicU16,
}

impl RequestLogEntry {
    pub(super) fn arrived(
        log: Option<&Arc<HttpLogWriter>>,
        number: u64,
        request: &Request,
    ) -> Self {
        let log_entry = Self { log: log.map(Arc::clone), number, status: AtomicU16::new(0) };
        if let Some(log) = &log_entry.log {
            let query = if request.query.is_empty() { "" } else { "?" };
            log_entry.write(HttpLogEvent::Arrived {
                at_ms: log.millis(),
                verb: request.verb.clone(),
                target: format!("{}{query}{}", request.path, request.query),
                method: method_of(&request.body),
                headers: request.headers.iter().cloned().collect(),
            });
        }
        log_entry
    }

    pub(super) fn status(&self, status: u16) {
        self.status.store(status, Ordering::Relaxed);
    }

    pub(super) fn ended(&self, outcome: HttpOutcome) {
        let status = Some(self.status.load(Ordering::Relaxed)).filter(|status| *status > 0);
        self.write(HttpLogEvent::Ended { status, outcome });
    }

    fn write(&self, event: HttpLogEvent) {
        let Some(log) = &self.log else { return };
        if log.write(self.number, event).is_err() {
            // An incomplete log proves nothing, so stop the run.
            child_process::exit(3);
        }
    }
}

fn method_of(body: &[u8]) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Message {
        method: String,
    }
    serde_json::from_slice::<Message>(body).ok().map(|message| message.method)
}

const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct Socket {
    stream: TcpStream,
    closed: AtomicBool,
}

impl Socket {
    pub(super) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
        Ok(Self { stream, closed: AtomicBool::new(false) })
    }

    /// Writes all bytes, or closes the connection and returns `false`.
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

    /// Closes the connection normally; readers see its end.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        // It may be closed already.
        self.stream.shutdown(Shutdown::Both).unwrap_or_default();
    }

    /// Resets the connection, which also discards unread data of the client.
    pub(super) fn reset(&self) {
        self.closed.store(true, Ordering::Relaxed);
        let sleep_then_exit = Some(Duration::ZERO);
        let set = rustix::net::sockopt::set_socket_linger(&self.stream, sleep_then_exit);
        // Disconnecting the socket sends the RST at once, even with other references to it.
        if set.is_err() || rustix::net::connect_unspec(&self.stream).is_err() {
            // Some kernels refuse that during a read. Then the RST is sent when the last reference is closed.
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
