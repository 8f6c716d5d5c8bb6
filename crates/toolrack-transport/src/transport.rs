//! What a line to a server can do, and what it tells its owner.

use crate::close_reason::Ending;
use crate::error::{LineError, TransportError};
use crate::redact::Mask;
use crate::sanitize::plain_text;
use crate::timeout::Patience;
use crate::{JsonRpcError, Params, RawJson, RequestId};
use serde_json::value::RawValue;
use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// A future behind a pointer, so that lines of every kind can stand behind one type.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// An open way to a server.
pub trait Line: Send + Sync + fmt::Debug {
    /// Sends a request and gives its raw result. The outcome comes within the request's patience
    /// whatever the server does.
    ///
    /// # Cancel safety
    /// Dropping the future abandons the request: a late answer is discarded, and the server is told
    /// unless the request says otherwise.
    fn request<'a>(&'a self, request: Outgoing<'a>) -> BoxFuture<'a, Result<RawJson, LineError>>;

    /// Sends something that nobody answers. Waits while the line's buffer is full.
    ///
    /// # Cancel safety
    /// Dropping the future before it is done sends nothing.
    fn notify<'a>(
        &'a self,
        method: &'a str,
        params: &'a dyn Params,
    ) -> BoxFuture<'a, Result<(), LineError>>;

    /// Answers something the server asked. Never waits: a server that asks and does not read the
    /// answers gets an error here, not our memory.
    fn answer(
        &self,
        id: &RequestId,
        outcome: Result<&RawValue, &JsonRpcError>,
    ) -> Result<(), LineError>;

    /// Says that the server is known to be at work on request `id`, which renews the caller's
    /// patience. Returns `false` if nobody waits for it.
    fn touch(&self, id: u64) -> bool;

    /// Says in which dialect the next messages are written. Lines that carry messages in something else
    /// need to know; the others do not care.
    fn speak(&self, _dialect: Dialect) {}

    /// How messages travel, which decides what silence means.
    fn medium(&self) -> Medium {
        Medium::Stream
    }

    /// What has been seen on this line so far, for people.
    fn diagnosis(&self) -> Diagnosis;

    /// Ends the line and everything behind it, and says how it ended. Every further call gives the
    /// same ending.
    ///
    /// # Cancel safety
    /// Once called, the line ends even if the future is dropped.
    fn close(&self) -> BoxFuture<'_, Ending>;
}

/// How messages travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Medium {
    /// All on one stream to one process, which may be deaf to a question it does not know.
    Stream,
    /// Each request in an exchange of its own, as in HTTP: a server that is silent is out of order, and
    /// an exchange that is given up needs no message to say so where the dialect is stateless.
    Exchange,
}

/// What the next messages are written for. The version is that of the protocol, as it is spelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// Every request stands for itself and names its version.
    Stateless(&'static str),
    /// The request that begins a session comes next.
    Greeting,
    /// A session was agreed in this version.
    Session(&'static str),
}

/// A request on its way out.
#[derive(Clone, Copy)]
pub struct Outgoing<'a> {
    /// What is asked for.
    pub method: &'a str,
    /// Written into the line's own buffer, together with the id.
    pub params: &'a dyn Params,
    /// How long to wait.
    pub patience: Patience,
    /// What to do when the caller stops waiting.
    pub abandon: Abandon,
}

/// Whether the server is told that nobody waits for an answer any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Abandon {
    /// It is told, in the manner of the line.
    Tell,
    /// It is not: some requests may not be cancelled.
    Quietly,
}

/// How a server is told on a line of messages that a request was abandoned.
pub const CANCELLED: &str = "notifications/cancelled";

/// The parameters of [`CANCELLED`]: the id of the abandoned request.
#[derive(Debug, Clone, Copy)]
pub struct Cancelled(pub u64);

impl Params for Cancelled {
    fn write(&self, _id: u64, out: &mut Vec<u8>) -> Result<(), serde_json::Error> {
        out.extend_from_slice(br#"{"requestId":"#);
        serde_json::to_writer(&mut *out, &self.0)?;
        out.extend_from_slice(br#","reason":"the caller stopped waiting"}"#);
        Ok(())
    }
}

/// Where a line puts what the server says unasked.
///
/// Messages come one at a time and in the order of arrival, from the task that received them: the line's
/// own, or over HTTP also that of a caller. `stderr` comes from another task, and `ended` may come from
/// whoever closes the line, so both may come while a message is being taken. No method may wait.
pub trait Inbox: Send + Sync {
    /// The server asks something. Whoever answers uses [`Line::answer`].
    fn request(&self, id: RequestId, method: &str, params: Option<RawJson>);

    /// The same, on the exchange of our request `about`, which it belongs to therefore. Lines on which everything
    /// comes on one stream never say this. The default forgets what it is about.
    fn request_about(&self, about: u64, id: RequestId, method: &str, params: Option<RawJson>) {
        tracing::trace!(about, method, "the server asks");
        self.request(id, method, params);
    }

    /// The server tells something.
    fn notification(&self, method: &str, params: Option<RawJson>);

    /// An answer that nobody waits for. Normal after a timeout, so the default does nothing.
    fn stray(&self, id: Option<RequestId>, outcome: Result<RawJson, JsonRpcError>) {
        drop((id, outcome));
    }

    /// A line that is not a message, cleaned for people to see and cut to a sample.
    fn unreadable(&self, sample: &str) {
        tracing::debug!(sample, "line is not a message");
    }

    /// A line the server wrote to its error output, cleaned. It may come after the line has ended, and
    /// before closing the line returns. The default leaves it to the line's own memory of the last ones.
    fn stderr(&self, line: &str) {
        tracing::trace!(line, "server wrote to stderr");
    }

    /// The server has forgotten us, and the line has begun a new session with it. What the old session
    /// knew is gone, such as subscriptions. Lines that end with their session never say this.
    fn renewed(&self) {
        tracing::debug!("a new session was begun");
    }

    /// Nobody is there: a new connection to the server could not be made. The line goes on, and whoever sent the
    /// message gets the same reason; the owner of the line may think otherwise. Comes each time, so often at
    /// once. Lines that end with their connection never say this.
    fn unreachable(&self, reason: &TransportError) {
        tracing::debug!(%reason, "nobody is there");
    }

    /// The line has ended. Comes exactly once, and nothing but error output comes after it, except a message
    /// that was being handed over in the moment when somebody closed the line.
    fn ended(&self, ending: &Ending);
}

impl fmt::Debug for Outgoing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outgoing")
            .field("method", &self.method)
            .field("patience", &self.patience)
            .field("abandon", &self.abandon)
            .finish_non_exhaustive()
    }
}

// FOLDED stats.rs
// What was odd on a line, counted: shown to people, never a reason to end it.

/// How much of an unreadable line is kept.
const SAMPLE_CHARS: usize = 200;

/// Counters of one line. They only grow.
#[derive(Debug, Default)]
pub struct Tally {
    messages: AtomicU64,
    unreadable: AtomicU64,
    late: AtomicU64,
    oversize: AtomicU64,
    sample: Mutex<Option<String>>,
}

/// What has been seen on a line so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Diagnosis {
    /// Messages that could be read.
    pub messages: u64,
    /// Lines that are not messages, such as a banner on the standard output.
    pub unreadable: u64,
    /// Answers that nobody waited for any more, or that came twice.
    pub late: u64,
    /// Messages over the size limit, thrown away.
    pub oversize: u64,
    /// The first unreadable line, cleaned and cut.
    pub sample: Option<String>,
    /// The last lines of the error output, oldest first, cleaned.
    pub stderr: Vec<String>,
    /// The process below which everything of the server runs, if it runs on this machine. None once the server has
    /// ended: the number may be somebody else's by then.
    pub process: Option<u32>,
}

impl Tally {
    /// One more message.
    pub fn message(&self) {
        self.messages.fetch_add(1, Ordering::Relaxed);
    }

    /// One more line that is no message. Gives a sample of it.
    pub fn unreadable(&self, line: &[u8], mask: &Mask) -> Option<String> {
        let before = self.unreadable.fetch_add(1, Ordering::Relaxed);
        // A server may write nonsense without end: after the first few, counting is enough.
        if before >= 16 {
            return None;
        }
        let start = line.get(..line.len().min(4 * SAMPLE_CHARS)).unwrap_or(line);
        let sample = plain_text(&mask.clean(&String::from_utf8_lossy(start)), SAMPLE_CHARS);
        let mut first = self.sample.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert_with(|| sample.clone());
        Some(sample)
    }

    /// One more answer that nobody waits for.
    pub fn late(&self) {
        self.late.fetch_add(1, Ordering::Relaxed);
    }

    /// One more message over the limit.
    pub fn oversize(&self) {
        self.oversize.fetch_add(1, Ordering::Relaxed);
    }

    /// The counters as they stand.
    pub fn diagnosis(&self) -> Diagnosis {
        Diagnosis {
            messages: self.messages.load(Ordering::Relaxed),
            unreadable: self.unreadable.load(Ordering::Relaxed),
            late: self.late.load(Ordering::Relaxed),
            oversize: self.oversize.load(Ordering::Relaxed),
            sample: self.sample.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            stderr: Vec::new(),
            process: None,
        }
    }
}
