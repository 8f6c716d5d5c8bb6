//! What comes in on a line, sent to whoever it is for.
//!
//! **Invariant:** nothing here waits, and nothing a server can write ends the line.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::{
    Due, Frame, FrameError, JsonRpcError, Lost, Pending, RawJson, RequestId, Ticket, elements,
};
use bytes::Bytes;
use tokio::time::Instant;

use crate::close_reason::Ending;
use crate::error::TransportError;
use crate::redact::Mask;
use crate::transport::Inbox;
use crate::transport::Tally;

/// Some servers begin their output with one.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// The answer a waiting caller is handed.
type Reply = Result<RawJson, TransportError>;

/// The receiving half of a line: the table of open requests and the inbox for everything else.
pub struct Inbound {
    pending: Pending<Reply, Ending>,
    inbox: Arc<dyn Inbox>,
    tally: Tally,
    mask: Mask,
    ended: AtomicBool,
}

/// What a piece of input turned out to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    /// An answer that woke a caller.
    Answer,
    /// Anything else.
    Other,
}

impl Inbound {
    /// The most messages one batch may hold; the rest of it is dropped as unreadable.
    pub const MAX_BATCH: usize = 1000;

    /// An open line whose unasked messages go to `inbox`.
    pub fn new(inbox: Arc<dyn Inbox>) -> Self {
        Self {
            pending: Pending::new(),
            inbox,
            tally: Tally::default(),
            mask: Mask::default(),
            ended: AtomicBool::new(false),
        }
    }

    /// The same, with lines that are no message cleaned by `mask` before they are shown.
    #[must_use]
    pub fn masked(self, mask: Mask) -> Self {
        Self { mask, ..self }
    }

    /// Claims the next request id, for a wait that is over when `due` says.
    pub fn claim(&self, due: Due) -> Result<Ticket<'_, Reply, Ending>, Ending> {
        self.pending.claim(due)
    }

    /// Fails every request whose time is over, and says when to come again. For lines whose callers have
    /// no clock of their own.
    pub fn expire(&self) -> Option<Instant> {
        let over = |due: Due| Err(TransportError::timed_out(due.at - due.started));
        self.pending.expire(Instant::now().into_std(), over).map(Instant::from_std)
    }

    /// How the line ended, if it has.
    pub fn ending(&self) -> Option<Ending> {
        self.pending.ended()
    }

    /// The counters of the line.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Renews the patience of whoever waits for `id`.
    pub fn touch(&self, id: u64) -> bool {
        self.pending.touch(id, Instant::now().into_std())
    }

    /// Takes one line that is part of a buffer used again; what is handed on is copied.
    pub fn accept(&self, line: &[u8]) -> Heard {
        self.take(line, &|part| RawJson::new(Bytes::copy_from_slice(part)))
    }

    /// Takes one line that has a buffer of its own; what is handed on shares it.
    pub fn accept_owned(&self, line: &Bytes) -> Heard {
        self.take(line, &|part| RawJson::new(line.slice_ref(part)))
    }

    /// Takes what came on the exchange of our request `about` and is not its answer.
    pub fn accept_beside(&self, about: u64, message: &Bytes) -> Heard {
        match Frame::parse(message.trim_ascii()) {
            Ok(Frame::Request { id, method, params }) if !self.ended.load(Ordering::Acquire) => {
                self.tally.message();
                let params = params.map(|it| RawJson::new(message.slice_ref(it)));
                self.inbox.request_about(about, id, &method, params);
                Heard::Other
            }
            _ => self.accept_owned(message),
        }
    }

    /// Takes one line of the server's error output, which goes on after the line has ended: what a server says
    /// while it ends is often why.
    pub fn stderr(&self, line: &str) {
        self.inbox.stderr(line);
    }

    /// Takes note of a message that was thrown away because of its size, of which the first and last
    /// bytes are known.
    pub fn oversize(&self, head: &[u8], tail: &[u8], limit_bytes: usize) -> Heard {
        self.tally.oversize();
        let id = match Lost::identify(head, tail) {
            Lost::Answer(id) => Some(id),
            Lost::Unknown => self.pending.only(),
            Lost::Unasked => None,
        };
        let Some(id) = id else {
            tracing::warn!(limit_bytes, "a message over the size limit was thrown away");
            return Heard::Other;
        };
        self.settle(&RequestId::from(id), Err(TransportError::Oversize { limit_bytes }))
    }

    /// Ends the line: everyone who waits is told, then the inbox. Only the first ending counts.
    pub fn end(&self, ending: &Ending) {
        if self.ended.swap(true, Ordering::AcqRel) {
            return;
        }
        self.pending.end(ending.clone());
        self.inbox.ended(ending);
    }

    fn take(&self, line: &[u8], cut: &dyn Fn(&[u8]) -> RawJson) -> Heard {
        let line = line.trim_ascii();
        let line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line);
        if line.is_empty() || self.ended.load(Ordering::Acquire) {
            return Heard::Other;
        }
        match Frame::parse(line) {
            Ok(frame) => self.route(frame, cut),
            Err(fault) => match elements(line) {
                Some(messages) => self.take_batch(&messages, cut),
                None => self.refuse(line, fault),
            },
        }
    }

    fn route(&self, frame: Frame<'_>, cut: &dyn Fn(&[u8]) -> RawJson) -> Heard {
        self.tally.message();
        match frame {
            Frame::Success { id, result } => self.settle(&id, Ok(cut(result))),
            Frame::Failure { id, error } => self.refused(id, error),
            Frame::Request { id, method, params } => {
                self.inbox.request(id, &method, params.map(cut));
                Heard::Other
            }
            Frame::Notification { method, params } => {
                self.inbox.notification(&method, params.map(cut));
                Heard::Other
            }
        }
    }

    /// An error without an id can only be for the one request that is open, if there is but one.
    fn refused(&self, id: Option<RequestId>, error: JsonRpcError) -> Heard {
        match id.or_else(|| self.pending.only().map(RequestId::from)) {
            Some(id) => self.settle(&id, Err(TransportError::JsonRpc(error))),
            None => {
                self.tally.late();
                self.inbox.stray(None, Err(error));
                Heard::Other
            }
        }
    }

    fn settle(&self, id: &RequestId, reply: Reply) -> Heard {
        let unclaimed = match id.as_ours() {
            Some(number) => match self.pending.settle(number, reply) {
                Ok(()) => return Heard::Answer,
                Err(unclaimed) => unclaimed,
            },
            None => reply,
        };
        self.tally.late();
        match unclaimed {
            Ok(result) => self.inbox.stray(Some(id.clone()), Ok(result)),
            Err(TransportError::JsonRpc(error)) => self.inbox.stray(Some(id.clone()), Err(error)),
            Err(_discarded) => {}
        }
        Heard::Other
    }

    /// Messages of a batch may be nested in no further batch.
    fn take_batch(&self, messages: &[&[u8]], cut: &dyn Fn(&[u8]) -> RawJson) -> Heard {
        let mut heard = Heard::Other;
        for (index, message) in messages.iter().enumerate() {
            let outcome = match Frame::parse(message) {
                Ok(frame) if index < Self::MAX_BATCH => self.route(frame, cut),
                Ok(_) => self.refuse(message, FrameError::Shape { id: None }),
                Err(fault) => self.refuse(message, fault),
            };
            if outcome == Heard::Answer {
                heard = Heard::Answer;
            }
        }
        heard
    }

    /// A line that is no message is counted and shown. If it was meant as somebody's answer, that
    /// caller is told now instead of at its deadline.
    fn refuse(&self, line: &[u8], fault: FrameError) -> Heard {
        if let Some(sample) = self.tally.unreadable(line, &self.mask) {
            self.inbox.unreadable(&sample);
        }
        match fault {
            FrameError::Shape { id: Some(id) } => {
                let fault = FrameError::Shape { id: None };
                self.settle(&id, Err(TransportError::Parse(fault.to_string())))
            }
            _ => Heard::Other,
        }
    }
}

impl fmt::Debug for Inbound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbound")
            .field("pending", &self.pending)
            .field("tally", &self.tally)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
