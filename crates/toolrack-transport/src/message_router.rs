//! Routes incoming messages: responses to pending requests, everything else to the handler.
//!
//! **Invariant:** nothing here waits, and nothing a server can write closes the transport.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use tokio::time::Instant;

use crate::close_reason::CloseReason;
use crate::error::TransportError;
use crate::json_rpc::{JsonRpcError, RawJson, RequestId};
use crate::message::{Message, MessageError, TruncatedMessage, split_batch};
use crate::pending_requests::{Deadline, PendingRequests};
use crate::redact::Redactor;
use crate::transport::{IncomingHandler, TransportCounters};

/// Some servers begin their output with a byte order mark.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// The outcome that a waiting caller receives.
pub type Response = Result<RawJson, TransportError>;

/// The receiving half of a transport: the table of pending requests and the handler for everything else.
pub struct MessageRouter {
    /// The table of pending requests.
    pub pending: PendingRequests<Response, CloseReason>,
    handler: Arc<dyn IncomingHandler>,
    counters: TransportCounters,
    redactor: Redactor,
    closed: AtomicBool,
}

/// The result of routing one line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Routed {
    /// A response that completed a pending request.
    Response,
    /// Anything else.
    Other,
}
impl MessageRouter {
    /// The maximum number of messages in a batch; the rest is dropped as unreadable.
    pub const MAX_BATCH: usize = 1000;

    /// An open router. Messages that are not responses go to `handler`; `redactor` redacts samples of unreadable lines.
    pub fn new(handler: Arc<dyn IncomingHandler>, redactor: Redactor) -> Self {
        Self {
            pending: PendingRequests::default(),
            handler,
            counters: TransportCounters::default(),
            redactor,
            closed: AtomicBool::new(false),
        }
    }

    /// Fails every request whose deadline has passed, and returns the next deadline and the id of its request. For
    /// transports whose callers have no timer of their own.
    pub fn expire(&self) -> Option<(Instant, u64)> {
        let timed_out = |deadline: Deadline| {
            Err(TransportError::timed_out(deadline.expires_at - deadline.started))
        };
        let next = self.pending.expire(Instant::now().into_std(), timed_out);
        next.map(|(expires_at, id)| (Instant::from_std(expires_at), id))
    }

    /// The message counters.
    pub fn counters(&self) -> &TransportCounters {
        &self.counters
    }

    /// Restarts the idle timeout of request `id`, or of every pending request.
    pub fn extend_deadline(&self, id: Option<u64>) {
        self.pending.extend_deadline(id, Instant::now().into_std());
    }

    /// Routes a line in a reused buffer. Payloads are copied out of it.
    pub fn route(&self, line: &[u8]) -> Routed {
        self.route_line(line, &|part| RawJson::new(Bytes::copy_from_slice(part)))
    }

    /// Routes a line that owns its buffer. Payloads share the buffer.
    pub fn route_owned(&self, line: &Bytes) -> Routed {
        self.route_line(line, &|part| RawJson::new(line.slice_ref(part)))
    }

    /// Routes a message that arrived on the exchange of our request `related_id`.
    pub fn route_related(&self, related_id: u64, message: &Bytes) -> Routed {
        match Message::parse(message.trim_ascii()) {
            Ok(Message::Request { id, method, params }) if !self.closed.load(Ordering::Acquire) => {
                self.counters.count_message();
                let params = params.map(|params| RawJson::new(message.slice_ref(params)));
                self.handler.on_related_request(related_id, id, &method, params);
                Routed::Other
            }
            _ => self.route_owned(message),
        }
    }

    /// Passes on a line of stderr, also after the close: the last lines often say why a server exits.
    pub fn route_stderr(&self, line: &str) {
        self.handler.on_stderr(line);
    }

    /// Handles a message that was discarded because of its size; only its first and last bytes are known.
    pub fn route_oversize(&self, head: &[u8], tail: &[u8], limit_bytes: usize) -> Routed {
        self.counters.count_oversize();
        let id = match TruncatedMessage::identify(head, tail) {
            TruncatedMessage::Response(id) => Some(id),
            // With a single pending request, this is most likely its response.
            TruncatedMessage::Unknown => self.pending.sole_id(),
            TruncatedMessage::Unsolicited => None,
        };
        let Some(id) = id else {
            tracing::warn!(limit_bytes, "discarded a message over the size limit");
            return Routed::Other;
        };
        self.complete(&RequestId::from(id), Err(TransportError::Oversize { limit_bytes }))
    }

    /// Closes the router: fails every pending request, then calls the handler. Only the first reason counts.
    pub fn close(&self, reason: &CloseReason) {
        // Set first, so that a line read during the close is dropped and not delivered after
        // `on_close`.
        if self.closed.swap(true, Ordering::AcqRel) {
            return;
        }
        self.pending.close(reason.clone());
        self.handler.on_close(reason);
    }

    fn route_line(&self, line: &[u8], to_raw: &dyn Fn(&[u8]) -> RawJson) -> Routed {
        let line = line.trim_ascii();
        let line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line);
        if line.is_empty() || self.closed.load(Ordering::Acquire) {
            return Routed::Other;
        }
        match Message::parse(line) {
            Ok(message) => self.dispatch(message, to_raw),
            // Batches are rare, so a line is tried as one only after it failed as a message.
            Err(error) => match split_batch(line) {
                Some(messages) => self.route_batch(&messages, to_raw),
                None => self.reject(line, error),
            },
        }
    }

    fn dispatch(&self, message: Message<'_>, to_raw: &dyn Fn(&[u8]) -> RawJson) -> Routed {
        self.counters.count_message();
        match message {
            Message::Success { id, result } => self.complete(&id, Ok(to_raw(result))),
            Message::Failure { id, error } => self.complete_with_error(id, error),
            Message::Request { id, method, params } => {
                self.handler.on_request(id, &method, params.map(to_raw));
                Routed::Other
            }
            Message::Notification { method, params } => {
                self.handler.on_notification(&method, params.map(to_raw));
                Routed::Other
            }
        }
    }

    /// An error without an id belongs to the only pending request, if there is exactly one.
    fn complete_with_error(&self, id: Option<RequestId>, error: JsonRpcError) -> Routed {
        match id.or_else(|| self.pending.sole_id().map(RequestId::from)) {
            Some(id) => self.complete(&id, Err(TransportError::JsonRpc(error))),
            None => {
                self.counters.count_late();
                self.handler.on_unmatched_response(None, Err(error));
                Routed::Other
            }
        }
    }

    fn complete(&self, id: &RequestId, response: Response) -> Routed {
        let unmatched = match id.as_local_id() {
            Some(number) => match self.pending.complete(number, response) {
                Ok(()) => return Routed::Response,
                Err(unmatched) => unmatched,
            },
            None => response,
        };
        self.counters.count_late();
        match unmatched {
            Ok(result) => self.handler.on_unmatched_response(Some(id.clone()), Ok(result)),
            Err(TransportError::JsonRpc(error)) => {
                self.handler.on_unmatched_response(Some(id.clone()), Err(error));
            }
            // Our own errors, such as `Oversize`, are not responses of the server.
            Err(_discarded) => {}
        }
        Routed::Other
    }

    /// Routes each message of a batch. A batch within a batch is rejected.
    fn route_batch(&self, messages: &[&[u8]], to_raw: &dyn Fn(&[u8]) -> RawJson) -> Routed {
        let mut routed = Routed::Other;
        for (index, message) in messages.iter().enumerate() {
            let outcome = match Message::parse(message) {
                Ok(message) if index < Self::MAX_BATCH => self.dispatch(message, to_raw),
                Ok(_) => self.reject(message, MessageError::Shape { id: None }),
                Err(error) => self.reject(message, error),
            };
            if outcome == Routed::Response {
                routed = Routed::Response;
            }
        }
        routed
    }

    /// Counts and reports a line that is not a message. If it carries the id of a pending request, that request
    /// fails now instead of at its deadline.
    fn reject(&self, line: &[u8], error: MessageError) -> Routed {
        if let Some(sample) = self.counters.count_unreadable(line, &self.redactor) {
            self.handler.on_unreadable(&sample);
        }
        match error {
            MessageError::Shape { id: Some(id) } => {
                let error = MessageError::Shape { id: None };
                self.complete(&id, Err(TransportError::Parse(error.to_string())))
            }
            _ => Routed::Other,
        }
    }
}

impl fmt::Debug for MessageRouter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessageRouter")
            .field("pending", &self.pending)
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
