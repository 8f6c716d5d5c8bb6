//! Transport trait, handler for incoming messages, and transport statistics.
//!
//! [`Transport`] carries JSON-RPC messages to a server. [`IncomingHandler`] receives every message that is not the
//! response to a pending request.

use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use parking_lot::Mutex;
use serde_json::value::RawValue;

use crate::close_reason::CloseReason;
use crate::encode::Params;
use crate::error::{RequestError, TransportError};
use crate::json_rpc::{JsonRpcError, RawJson, RequestId};
use crate::message_router::Response;
use crate::pending_requests::PendingResponse;
use crate::redact::Redactor;
use crate::timeout::RequestTimeout;

/// A boxed future, which keeps [`Transport`] and [`Credentials`](crate::Credentials) dyn-compatible.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// An open connection to a server that carries JSON-RPC messages.
pub trait Transport: Send + Sync + fmt::Debug {
    /// Sends a request at once, if the transport can, and returns its raw result. Completes within the request's
    /// timeout, regardless of the server's behavior.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the request: a late response is discarded, and the server is notified
    /// according to [`OutgoingRequest::on_cancel`].
    fn request<'a>(&'a self, request: OutgoingRequest<'a>) -> ResponseFuture<'a>;

    /// Sends a notification. Waits while the write queue is full.
    ///
    /// # Cancel safety
    /// Dropping the future before it is done sends nothing.
    fn notify<'a>(
        &'a self,
        method: &'a str,
        params: &'a dyn Params,
    ) -> BoxFuture<'a, Result<(), RequestError>>;

    /// Responds to a request of the server. Never waits: when the write queue is full, this fails, so a server
    /// that sends requests and does not read the responses cannot fill our memory.
    fn respond(
        &self,
        id: &RequestId,
        outcome: Result<&RawValue, &JsonRpcError>,
    ) -> Result<(), RequestError>;

    /// Restarts the idle timeout of request `id`, because the server reported progress, or of every pending request.
    fn extend_deadline(&self, id: Option<u64>);

    /// Sets the protocol mode of the next messages. Transports that repeat parts of a message outside it, such as
    /// HTTP headers, depend on it; the default ignores it.
    fn set_protocol_mode(&self, _mode: ProtocolMode) {}

    /// The kind of transport, which decides how to interpret a missing response.
    fn kind(&self) -> TransportKind {
        TransportKind::Stream
    }

    /// Statistics of this connection.
    fn stats(&self) -> TransportStats;

    /// Closes the connection, ends the server's process if there is one, and returns the close reason. Every
    /// further call returns the same reason.
    ///
    /// # Cancel safety
    /// Once called, the connection closes even if the future is dropped.
    fn close(&self) -> BoxFuture<'_, CloseReason>;
}

/// How messages travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransportKind {
    /// All messages share one stream to one process. The process may ignore requests that it does not know.
    Stream,
    /// Each request has its own exchange, as in HTTP. A missing response is a fault of the server, and in
    /// stateless mode closing the exchange cancels the request without a notification.
    RequestResponse,
}

/// The protocol phase of the next messages. The string is the protocol version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProtocolMode {
    /// Every request is independent and names its version.
    Stateless(&'static str),
    /// The next request is `initialize`.
    Initialize,
    /// A session was negotiated in this version.
    Session(&'static str),
}

/// A request to send.
#[derive(Clone, Copy)]
pub struct OutgoingRequest<'a> {
    /// The JSON-RPC method.
    pub method: &'a str,
    /// Written directly into the transport's write buffer, together with the id.
    pub params: &'a dyn Params,
    /// Idle and total timeout.
    pub timeout: RequestTimeout,
    /// Whether the server is notified when the caller stops waiting.
    pub on_cancel: OnCancel,
}

/// The response to a request.
#[must_use = "dropping the response cancels the request"]
pub enum ResponseFuture<'a> {
    /// A request in the write queue, which needs no allocation to wait.
    Queued(QueuedRequest<'a>),
    /// Everything else.
    Boxed(BoxFuture<'a, Result<RawJson, RequestError>>),
}

/// A request in a write queue. Dropping it before the response withdraws or cancels it.
pub struct QueuedRequest<'a> {
    response: PendingResponse<'a, Response, CloseReason>,
    queue: &'a dyn RequestQueue,
    on_cancel: OnCancel,
}

/// The queue of a [`QueuedRequest`].
pub trait RequestQueue: Sync {
    /// Removes a request from the queue. Returns `false` if a byte of it may have been sent.
    fn withdraw(&self, id: u64) -> bool;

    /// Sends [`CANCELLED`].
    fn cancel(&self, id: u64);
}

impl<'a> QueuedRequest<'a> {
    /// A request that was queued.
    pub fn new(
        response: PendingResponse<'a, Response, CloseReason>,
        queue: &'a dyn RequestQueue,
        on_cancel: OnCancel,
    ) -> Self {
        Self { response, queue, on_cancel }
    }

    /// Withdraws the request if no byte of it was sent, and returns the error with its delivery.
    fn fail(&mut self, error: TransportError) -> RequestError {
        if !self.queue.withdraw(self.response.id()) {
            return RequestError::unknown(error);
        }
        self.on_cancel = OnCancel::Silent;
        RequestError::not_sent(error)
    }
}

impl Future for QueuedRequest<'_> {
    type Output = Result<RawJson, RequestError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(match ready!(Pin::new(&mut self.response).poll(context)) {
            // The caller has no timer: the transport completes expired requests with this error.
            Ok(Err(error @ TransportError::Timeout(_))) => Err(self.fail(error)),
            Ok(response) => {
                self.on_cancel = OnCancel::Silent;
                response.map_err(RequestError::answered)
            }
            Err(reason) => Err(self.fail(reason.to_error())),
        })
    }
}

impl Drop for QueuedRequest<'_> {
    fn drop(&mut self) {
        let id = self.response.id();
        if self.on_cancel == OnCancel::Notify && !self.queue.withdraw(id) {
            self.queue.cancel(id);
        }
    }
}

impl Future for ResponseFuture<'_> {
    type Output = Result<RawJson, RequestError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            ResponseFuture::Queued(queued) => Pin::new(queued).poll(context),
            ResponseFuture::Boxed(boxed) => boxed.as_mut().poll(context),
        }
    }
}

impl fmt::Debug for ResponseFuture<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ResponseFuture")
    }
}

impl fmt::Debug for QueuedRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.response.fmt(f)
    }
}

/// Whether the server is notified of a cancelled request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnCancel {
    /// Notify the server in the way of the transport.
    Notify,
    /// Do not notify the server: some requests, such as `initialize`, must not be cancelled.
    Silent,
}

/// The notification that cancels a request on a stream transport.
pub const CANCELLED: &str = "notifications/cancelled";

/// The parameters of [`CANCELLED`]: the id of the cancelled request.
#[derive(Debug, Clone, Copy)]
pub struct CancelledParams(pub u64);

impl Params for CancelledParams {
    fn write(&self, _id: u64, out: &mut Vec<u8>) -> Result<(), serde_json::Error> {
        out.extend_from_slice(br#"{"requestId":"#);
        serde_json::to_writer(&mut *out, &self.0)?;
        out.extend_from_slice(br#","reason":"the caller stopped waiting"}"#);
        Ok(())
    }
}

/// Receives the messages that are not responses to pending requests, and the events of the connection.
///
/// Messages arrive one at a time and in order, from the task that received them: the transport's IO task or, over
/// HTTP, the task of a caller. `on_stderr` is called from another task, and `on_close` from the task that closes the
/// transport, so both can run concurrently with a message. No method may block.
pub trait IncomingHandler: Send + Sync {
    /// The server sent a request. Respond with [`Transport::respond`].
    fn on_request(&self, id: RequestId, method: &str, params: Option<RawJson>);

    /// The server sent a request on the exchange of our request `related_id`, so the two belong together. Never
    /// called by transports with a single stream. The default ignores the relation.
    fn on_related_request(
        &self,
        related_id: u64,
        id: RequestId,
        method: &str,
        params: Option<RawJson>,
    ) {
        tracing::trace!(related_id, method, "server request");
        self.on_request(id, method, params);
    }

    /// The server sent a notification.
    fn on_notification(&self, method: &str, params: Option<RawJson>);

    /// A response without a pending request. Normal after a timeout, so the default discards it.
    fn on_unmatched_response(&self, id: Option<RequestId>, outcome: Result<RawJson, JsonRpcError>) {
        drop((id, outcome));
    }

    /// A line that is not a JSON-RPC message: a sample, redacted and sanitized.
    fn on_unreadable(&self, sample: &str) {
        tracing::debug!(sample, "line is not a JSON-RPC message");
    }

    /// A line of the server's stderr, redacted and sanitized. Can arrive after `on_close`, but not after
    /// [`Transport::close`] has returned. The default relies on the tail that the transport keeps.
    fn on_stderr(&self, line: &str) {
        tracing::trace!(line, "server stderr");
    }

    /// The server lost the session, and the transport initialized a new one. State of the old session, such as
    /// subscriptions, is lost. Never called by transports that close with their session.
    fn on_session_renewed(&self) {
        tracing::debug!("session renewed");
    }

    /// A new connection to the server failed. The transport stays open, and the caller of the request gets the same
    /// reason. Called for every failed attempt, so often several times at once. Never called by transports that
    /// close with their connection.
    fn on_unreachable(&self, reason: &TransportError) {
        tracing::debug!(%reason, "server is unreachable");
    }

    /// The transport closed. Called exactly once. Only stderr lines follow, and at most one message that was being
    /// delivered while the transport was closed.
    fn on_close(&self, reason: &CloseReason);
}

impl fmt::Debug for OutgoingRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutgoingRequest")
            .field("method", &self.method)
            .field("timeout", &self.timeout)
            .field("on_cancel", &self.on_cancel)
            .finish_non_exhaustive()
    }
}

/// The maximum length of a sample of an unreadable line.
const SAMPLE_CHARS: usize = 200;

/// The part of an unreadable line that is sanitized for its sample.
const SANITIZED_BYTES: usize = 16 << 10;

/// The part of an unreadable line that is redacted: far more than a sample needs, and little enough to search.
const REDACTED_BYTES: usize = 1 << 20;

/// Unreadable lines after this many are only counted.
const MAX_SAMPLES: u64 = 16;

/// Message counters of one transport. They only grow.
#[derive(Debug, Default)]
pub struct TransportCounters {
    messages: AtomicU64,
    unreadable: AtomicU64,
    late: AtomicU64,
    oversize: AtomicU64,
    sample: Mutex<Option<String>>,
}

/// A snapshot of the counters of a transport, with its stderr and process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TransportStats {
    /// Valid messages.
    pub messages: u64,
    /// Lines that are not messages, such as a banner on stdout.
    pub unreadable: u64,
    /// Responses that came after their request had ended, or twice.
    pub late: u64,
    /// Messages that were discarded because they exceeded the size limit.
    pub oversize: u64,
    /// A sample of the first unreadable line, redacted and sanitized.
    pub sample: Option<String>,
    /// The last lines of stderr, oldest first, redacted and sanitized.
    pub stderr: Vec<String>,
    /// The root of the server's process tree, if the server runs on this machine. `None` once the server has exited,
    /// because the system may have reused the pid.
    pub pid: Option<u32>,
}

impl TransportCounters {
    /// Counts a valid message.
    pub fn count_message(&self) {
        self.messages.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a line that is not a message and returns a sample of it.
    pub fn count_unreadable(&self, line: &[u8], redactor: &Redactor) -> Option<String> {
        let before = self.unreadable.fetch_add(1, Ordering::Relaxed);
        // A server can write garbage endlessly: after the first few lines, counting is enough.
        if before >= MAX_SAMPLES {
            return None;
        }
        let text = String::from_utf8_lossy(line.get(..REDACTED_BYTES).unwrap_or(line));
        // Redacted before the cut, which could leave a part of a secret. The cut is for speed: sanitizing is slow.
        let redacted = redactor.redact(&text);
        let (start, _) = redacted.split_at(redacted.floor_char_boundary(SANITIZED_BYTES));
        let sample = redactor.redact_line(start, SAMPLE_CHARS);
        let mut first = self.sample.lock();
        first.get_or_insert_with(|| sample.clone());
        Some(sample)
    }

    /// Counts a response without a pending request.
    pub fn count_late(&self) {
        self.late.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a message over the size limit.
    pub fn count_oversize(&self) {
        self.oversize.fetch_add(1, Ordering::Relaxed);
    }

    /// A snapshot of the counters. `stderr` and `pid` are left empty for the transport to fill in.
    pub fn stats(&self) -> TransportStats {
        TransportStats {
            messages: self.messages.load(Ordering::Relaxed),
            unreadable: self.unreadable.load(Ordering::Relaxed),
            late: self.late.load(Ordering::Relaxed),
            oversize: self.oversize.load(Ordering::Relaxed),
            sample: self.sample.lock().clone(),
            ..TransportStats::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sample_shows_no_part_of_a_secret() {
        let redactor = Redactor::default();
        redactor.add_secret("token", "s3cr3t-value");
        let check = |before: &str, expected: &str| {
            let line = format!("{before}s3cr3t-value and more");
            let sample = TransportCounters::default().count_unreadable(line.as_bytes(), &redactor);
            assert_eq!(sample.as_deref(), Some(expected));
        };
        check("a ", "a [secret token] and more");
        check(&"😀".repeat(198), &format!("{}[s…", "😀".repeat(198)));
        check(&"\u{1b}[1m".repeat(199), "[secret token] and more");
        check(&"\u{1b}[1m".repeat(100_000), "");
        check(&"x".repeat(SANITIZED_BYTES - 3), &format!("{}…", "x".repeat(SAMPLE_CHARS)));
    }
}
