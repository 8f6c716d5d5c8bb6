//! HTTP response in progress: content from the server, faults from the plan; with its socket.
//!
//! **Invariant:** a response finishes once. Later writes are dropped, and the connection continues with its next
//! request only when this response has left completely.

use std::io::{self, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use parking_lot::{Condvar, Mutex};

use super::gzip;
use super::response_head::ResponseHead;
use super::response_stream::JSON;
use crate::http;
use crate::http_log::{HttpLogWriter, HttpOutcome, HttpRequest};
use crate::plan::{ContentKind, Cut, HttpFault};

const PAGE: &[u8] =
    b"<!doctype html><title>Log in</title><p>Accept the terms of this network to go on.";

/// Chunks that a dripping response may queue; then the writer blocks.
const MAX_DRIP_QUEUE: usize = 256;

#[derive(Debug)]
pub(super) struct HttpResponse {
    socket: Arc<Socket>,
    inner: Mutex<Inner>,
    done: Condvar,
}

#[derive(Debug)]
struct Inner {
    phase: Phase,
    /// Planned faults; the last of a kind wins.
    faults: Vec<HttpFault>,
    head: ResponseHead,
    /// Request log, and the record of this request in it.
    log: Option<(Arc<HttpLogWriter>, HttpRequest)>,
    n_body_bytes: u64,
    gzip_encoder: Option<GzEncoder<Vec<u8>>>,
    /// Queue of a dripping response.
    drip: Option<SyncSender<Vec<u8>>>,
    /// Whether something of the queue is not yet sent.
    is_dripping: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Nothing is sent.
    Waiting,
    /// The head is sent, and the body is chunked.
    Streaming,
    Done,
}

impl Inner {
    fn fault<T>(&self, select: impl Fn(&HttpFault) -> Option<T>) -> Option<T> {
        self.faults.iter().rev().find_map(select)
    }

    fn cut(&self) -> Option<Cut> {
        self.fault(|fault| if let HttpFault::Cut(cut) = fault { Some(*cut) } else { None })
    }

    /// Whether the body is compressed, and the size of a bomb.
    fn gzip(&self) -> Option<Option<u64>> {
        self.fault(|fault| if let HttpFault::Gzip(bomb) = fault { Some(*bomb) } else { None })
    }

    /// Whether the stream ends before the response, and its `retry`.
    fn end(&self) -> Option<Option<Duration>> {
        self.fault(|fault| if let HttpFault::End(retry) = fault { Some(*retry) } else { None })
    }

    fn wrong_kind(&self) -> Option<ContentKind> {
        self.fault(|fault| match fault {
            HttpFault::ContentKind(kind) if *kind != ContentKind::Html => Some(*kind),
            _ => None,
        })
    }

    /// The fault that replaces the whole response.
    fn replacement(&self) -> Option<HttpFault> {
        self.fault(|fault| match fault {
            HttpFault::Status { .. }
            | HttpFault::Redirect { .. }
            | HttpFault::Forget
            | HttpFault::Drop
            | HttpFault::Reset
            | HttpFault::Mute
            | HttpFault::Empty
            | HttpFault::ContentKind(ContentKind::Html) => Some(fault.clone()),
            _ => None,
        })
    }
}

impl HttpResponse {
    pub(super) fn new(
        socket: Arc<Socket>,
        log: Option<(Arc<HttpLogWriter>, HttpRequest)>,
        head: ResponseHead,
    ) -> Arc<Self> {
        let inner = Inner {
            phase: Phase::Waiting,
            faults: Vec::new(),
            head,
            log,
            n_body_bytes: 0,
            gzip_encoder: None,
            drip: None,
            is_dripping: false,
        };
        Arc::new(Self { socket, inner: Mutex::new(inner), done: Condvar::new() })
    }

    pub(super) fn add_fault(&self, fault: &HttpFault) {
        self.inner.lock().faults.push(fault.clone());
    }

    pub(super) fn set_status(&self, status: u16) {
        self.inner.lock().head.status = status;
    }

    pub(super) fn add_header(&self, name: &'static str, value: String) {
        self.inner.lock().head.headers.push((name, value));
    }

    pub(super) fn phase(&self) -> Phase {
        self.inner.lock().phase
    }

    pub(super) fn needs_stream(&self) -> bool {
        self.inner.lock().end().is_some()
    }

    /// Whether the response goes to another stream.
    pub(super) fn is_elsewhere(&self) -> bool {
        self.inner.lock().faults.contains(&HttpFault::Elsewhere)
    }

    /// Sends the whole response at once.
    pub(super) fn send_complete(self: &Arc<Self>, content_type: &'static str, body: &[u8]) {
        let mut inner = self.inner.lock();
        if inner.phase != Phase::Waiting || self.send_replacement(&mut inner, body) {
            return;
        }
        if let Some(bomb) = inner.gzip() {
            self.stream(&mut inner, content_type);
            match bomb {
                None => self.write_body(&mut inner, body),
                Some(n_bytes) => {
                    inner.gzip_encoder = None;
                    let (head, tail) = body.split_at(body.len().saturating_sub(1));
                    gzip::bomb(head, n_bytes, tail, |piece| {
                        self.send(&mut inner, http::chunk(piece));
                        !self.socket.is_closed()
                    });
                }
            }
            return self.end_stream(&mut inner);
        }
        let head = inner.head.with_length(content_type, inner.wrong_kind(), body.len());
        self.open(&mut inner);
        let cut = match inner.cut() {
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

    /// Begins a chunked body if nothing is sent yet; returns whether it is open.
    pub(super) fn start(self: &Arc<Self>, content_type: &'static str, first: &[u8]) -> bool {
        let mut inner = self.inner.lock();
        if inner.phase == Phase::Waiting && !self.send_replacement(&mut inner, b"") {
            self.stream(&mut inner, content_type);
            self.write_body(&mut inner, first);
            if let Some(retry) = inner.end() {
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
        let mut inner = self.inner.lock();
        if inner.phase == Phase::Streaming {
            self.write_body(&mut inner, bytes);
        }
        inner.phase == Phase::Streaming
    }

    /// Applies faults due just before the JSON-RPC response on a stream.
    pub(super) fn before_response(self: &Arc<Self>) {
        let mut inner = self.inner.lock();
        if inner.phase == Phase::Streaming && inner.cut() == Some(Cut::BeforeResponse) {
            self.end_by(&mut inner, HttpOutcome::Cut, Socket::close);
        }
    }

    /// Finishes the response; without any content it becomes an empty 202.
    pub(super) fn finish(self: &Arc<Self>) {
        let mut inner = self.inner.lock();
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
    pub(super) fn close(&self) {
        self.end_by(&mut self.inner.lock(), HttpOutcome::Cut, Socket::close);
    }

    /// The client has disconnected.
    pub(super) fn client_closed(&self) {
        self.end(&mut self.inner.lock(), HttpOutcome::ClientClosed);
    }

    /// Waits until the next response of the connection may begin; returns `false` on timeout.
    pub(super) fn wait(&self, within: Duration) -> bool {
        let busy = |inner: &mut Inner| inner.phase != Phase::Done || inner.is_dripping;
        !self.done.wait_while_for(&mut self.inner.lock(), busy, within).timed_out()
    }

    /// Sends the planned replacement of the response, if there is one. `body` is the original body.
    fn send_replacement(self: &Arc<Self>, inner: &mut Inner, body: &[u8]) -> bool {
        let Some(replacement) = inner.replacement() else { return false };
        let head = &mut inner.head;
        let response = match replacement {
            // Send nothing; only the client can end this.
            HttpFault::Mute => return true,
            HttpFault::Drop => {
                self.end_by(inner, HttpOutcome::Cut, Socket::close);
                return true;
            }
            HttpFault::Reset => {
                self.end_by(inner, HttpOutcome::Cut, Socket::reset);
                return true;
            }
            HttpFault::Status { code, retry_after } => head.with_status(code, retry_after, body),
            HttpFault::Forget => head.with_status(404, None, body),
            HttpFault::Redirect { to, code } => head.redirect(code, to),
            // A page like that of a captive portal.
            HttpFault::ContentKind(_) => {
                [&head.with_length("text/html; charset=utf-8", None, PAGE.len()), PAGE].concat()
            }
            _ => head.with_length(JSON, None, 0),
        };
        self.open(inner);
        self.send(inner, response);
        self.end(inner, HttpOutcome::Completed);
        true
    }

    /// Before the first byte: notes the status and starts dripping.
    fn open(self: &Arc<Self>, inner: &mut Inner) {
        if let Some((_, record)) = &mut inner.log {
            record.status = Some(inner.head.status);
        }
        let drip = inner.fault(|fault| match fault {
            HttpFault::Drip { bytes, every } => Some((*bytes, *every)),
            _ => None,
        });
        if let Some((bytes, every)) = drip {
            let n_bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
            (inner.drip, inner.is_dripping) = (Some(self.start_dripping(n_bytes, every)), true);
        }
    }

    fn stream(self: &Arc<Self>, inner: &mut Inner, content_type: &'static str) {
        if inner.gzip().is_some() {
            inner.head.headers.push(("content-encoding", "gzip".to_owned()));
            inner.gzip_encoder = Some(GzEncoder::new(Vec::new(), Compression::fast()));
        }
        let head = inner.head.with_chunks(content_type, inner.wrong_kind());
        self.open(inner);
        inner.phase = Phase::Streaming;
        self.send(inner, head);
        if inner.cut() == Some(Cut::After(0)) {
            self.end_by(inner, HttpOutcome::Cut, Socket::close);
        }
    }

    fn write_body(self: &Arc<Self>, inner: &mut Inner, bytes: &[u8]) {
        if bytes.is_empty() || inner.phase != Phase::Streaming {
            return;
        }
        let room = match inner.cut() {
            Some(Cut::After(limit)) => limit.saturating_sub(inner.n_body_bytes),
            _ => u64::MAX,
        };
        let room = usize::try_from(room).unwrap_or(usize::MAX);
        let allowed = bytes.get(..room).unwrap_or(bytes);
        inner.n_body_bytes += allowed.len() as u64;
        let piece = match &mut inner.gzip_encoder {
            Some(encoder) => gzip::compress(encoder, allowed),
            None => allowed.to_vec(),
        };
        self.send(inner, http::chunk(&piece));
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
        if let Some(encoder) = inner.gzip_encoder.take() {
            self.send(inner, http::chunk(&encoder.finish().unwrap_or_default()));
        }
        self.send(inner, b"0\r\n\r\n".to_vec());
        self.end(inner, HttpOutcome::Completed);
    }

    fn send(&self, inner: &mut Inner, bytes: Vec<u8>) {
        match &inner.drip {
            // The drip thread ends early only when the client is gone.
            Some(drip) => drip.send(bytes).unwrap_or_default(),
            None => drop(self.socket.write(&bytes)),
        }
    }

    fn end(&self, inner: &mut Inner, how: HttpOutcome) {
        if inner.phase == Phase::Done {
            return;
        }
        inner.phase = Phase::Done;
        // The thread still drips what is queued; `wait` must see that.
        inner.drip = None;
        if let Some((log, record)) = &mut inner.log {
            record.outcome = Some(how);
            log.write(record);
        }
        self.done.notify_all();
    }

    /// Ends the response by closing the connection, which cuts off what still drips.
    fn end_by(&self, inner: &mut Inner, how: HttpOutcome, close: fn(&Socket)) {
        if inner.phase != Phase::Done {
            self.end(inner, how);
            close(&self.socket);
        }
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
            response.inner.lock().is_dripping = false;
            response.done.notify_all();
        });
        tap
    }
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
        let set = rustix::net::sockopt::set_socket_linger(&self.stream, Some(Duration::ZERO));
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
