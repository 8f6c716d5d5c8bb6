//! HTTP response in progress, with its socket.
//!
//! **Invariant:** a response finishes once. Later writes are dropped, and the connection continues with its next
//! request only when this response has left completely.

use std::io::{self, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::http;
use crate::http_log::{HttpLogWriter, HttpOutcome, HttpRequest};

#[derive(Debug)]
pub(super) struct HttpResponse {
    socket: Arc<Socket>,
    inner: Mutex<Inner>,
    done: Condvar,
}

#[derive(Debug)]
struct Inner {
    phase: Phase,
    status: u16,
    headers: Vec<(&'static str, String)>,
    /// Request log, and the record of this request in it.
    log: Option<(Arc<HttpLogWriter>, HttpRequest)>,
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
    /// Head of the response; an empty content type is left out.
    fn head(&mut self, content_type: &str, framing: &[(&str, &str)]) -> Vec<u8> {
        if let Some((_, record)) = &mut self.log {
            record.status = Some(self.status);
        }
        let content_type =
            Some(("content-type", content_type)).filter(|(_, kind)| !kind.is_empty());
        let own = self.headers.iter().map(|(name, value)| (*name, value.as_str()));
        http::head(self.status, content_type.into_iter().chain(own).chain(framing.iter().copied()))
    }
}

impl HttpResponse {
    pub(super) fn new(
        socket: Arc<Socket>,
        log: Option<(Arc<HttpLogWriter>, HttpRequest)>,
    ) -> Arc<Self> {
        let inner = Inner { phase: Phase::Waiting, status: 200, headers: Vec::new(), log };
        Arc::new(Self { socket, inner: Mutex::new(inner), done: Condvar::new() })
    }

    pub(super) fn set_status(&self, status: u16) {
        self.inner.lock().status = status;
    }

    pub(super) fn add_header(&self, name: &'static str, value: String) {
        self.inner.lock().headers.push((name, value));
    }

    pub(super) fn phase(&self) -> Phase {
        self.inner.lock().phase
    }

    /// Sends the whole response at once.
    pub(super) fn send_complete(&self, content_type: &'static str, body: &[u8]) {
        let mut inner = self.inner.lock();
        if inner.phase == Phase::Waiting {
            self.complete(&mut inner, content_type, body);
        }
    }

    fn complete(&self, inner: &mut Inner, content_type: &str, body: &[u8]) {
        let head = inner.head(content_type, &[("content-length", &body.len().to_string())]);
        self.socket.write(&[&head, body].concat());
        self.end(inner, HttpOutcome::Completed);
    }

    /// Writes raw bytes instead of this response, and closes the connection.
    pub(super) fn replace(&self, write_all: impl FnOnce(&mut dyn FnMut(&[u8]) -> bool)) {
        write_all(&mut |bytes| self.socket.write(bytes));
        self.socket.close();
        self.end(&mut self.inner.lock(), HttpOutcome::Completed);
    }

    /// Begins a chunked body if nothing is sent yet; returns whether it is open.
    pub(super) fn start(&self, content_type: &'static str, first: &[u8]) -> bool {
        let mut inner = self.inner.lock();
        if inner.phase == Phase::Waiting {
            let framing = [("cache-control", "no-cache"), ("transfer-encoding", "chunked")];
            let head = inner.head(content_type, &framing);
            inner.phase = Phase::Streaming;
            self.socket.write(&head);
            self.write_body(&mut inner, first);
        }
        inner.phase == Phase::Streaming
    }

    /// Appends to the body; returns whether it is still open.
    pub(super) fn write(&self, bytes: &[u8]) -> bool {
        let mut inner = self.inner.lock();
        self.write_body(&mut inner, bytes);
        inner.phase == Phase::Streaming
    }

    /// Finishes the response; without any content it becomes an empty 202.
    pub(super) fn finish(&self) {
        let mut inner = self.inner.lock();
        match inner.phase {
            Phase::Done => (),
            Phase::Streaming => {
                self.socket.write(b"0\r\n\r\n");
                self.end(&mut inner, HttpOutcome::Completed);
            }
            Phase::Waiting => {
                match inner.status {
                    200 => inner.status = 202,
                    401 => {
                        let challenge = "Bearer realm=\"scripted\"".to_owned();
                        inner.headers.push(("www-authenticate", challenge));
                    }
                    _ => (),
                }
                self.complete(&mut inner, "", b"");
            }
        }
    }

    /// The client has disconnected.
    pub(super) fn client_closed(&self) {
        self.end(&mut self.inner.lock(), HttpOutcome::ClientClosed);
    }

    /// Waits until the next response of the connection may begin; returns `false` on timeout.
    pub(super) fn wait(&self, within: Duration) -> bool {
        let busy = |inner: &mut Inner| inner.phase != Phase::Done;
        !self.done.wait_while_for(&mut self.inner.lock(), busy, within).timed_out()
    }

    fn write_body(&self, inner: &mut Inner, bytes: &[u8]) {
        if bytes.is_empty() || inner.phase != Phase::Streaming {
            return;
        }
        if !self.socket.write(&http::chunk(bytes)) {
            self.end(inner, HttpOutcome::ClientClosed);
        }
    }

    fn end(&self, inner: &mut Inner, how: HttpOutcome) {
        if inner.phase == Phase::Done {
            return;
        }
        inner.phase = Phase::Done;
        if let Some((log, record)) = &mut inner.log {
            record.outcome = Some(how);
            log.write(record);
        }
        self.done.notify_all();
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
        let written =
            !self.closed.load(Ordering::Relaxed) && (&self.stream).write_all(bytes).is_ok();
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

    pub(super) fn stream(&self) -> &TcpStream {
        &self.stream
    }
}
