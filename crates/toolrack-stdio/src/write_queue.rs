//! What goes out to the server.
//!
//! A lone caller writes its own message with one system call. When several callers were woken together
//! they put their messages into one buffer, and the first of them writes them all. What the pipe does
//! not take is left to the driver, which waits for the pipe; callers never do.
//!
//! Whoever writes does so without holding anybody up: what others put in meanwhile gathers, and is written
//! next.
//!
//! **Invariant:** messages leave in the order in which they were put in, each as one run of bytes, and a
//! message that nobody has begun to write can be taken back.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::mem;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::net::unix::pipe::Sender;
use tokio::sync::Notify;
use toolrack_transport::TransportError;

use crate::io_task::write_plainly;

/// How often a caller writes what others have put in meanwhile, before it leaves that to the driver; and how
/// often the driver does before others have their turn.
const WRITES_PER_TURN: usize = 8;

/// The sending half of a line.
#[derive(Debug)]
pub(crate) struct Outbox {
    state: Mutex<State>,
    limit_bytes: usize,
    /// Answers that arrived together the last time: how many callers are likely to write next.
    crowd: AtomicUsize,
    room: Notify,
}

#[derive(Debug)]
struct State {
    pipe: Pipe,
    buffer: Buffer,
    /// Whether somebody has promised to flush.
    promised: bool,
    /// Whether the pipe was full, so that the driver has to flush.
    stuck: bool,
    /// How much somebody is writing, who then writes what has come meanwhile and was not promised.
    in_hand: Option<usize>,
    waiting: Waiting,
}

/// Who was refused for lack of room, and has not been told of room since.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waiting {
    Nobody,
    Somebody,
}

#[derive(Debug)]
enum Pipe {
    Open(Arc<Sender>),
    /// The server does not read any more.
    Broken,
    /// We closed it.
    Closed,
}

/// What became of a message that was put in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Posted {
    /// It has left, or somebody else sees to it.
    Done,
    /// Others are likely to write too: the caller lets them, then calls [`Outbox::flush`].
    FlushSoon,
    /// Something is left to write, or the pipe is broken: the driver has to be woken.
    CallDriver,
}

/// Why a message was not put in.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// Too much is waiting already. Room is announced by [`Outbox::room`].
    Full { buffered_bytes: usize },
    /// Never.
    Failed(TransportError),
}

/// What writing did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flushed {
    All,
    Stuck,
    Broken,
}

impl Outbox {
    pub(crate) fn new(pipe: Sender, limit_bytes: usize) -> Self {
        let state = State {
            pipe: Pipe::Open(Arc::new(pipe)),
            buffer: Buffer::default(),
            promised: false,
            stuck: false,
            in_hand: None,
            waiting: Waiting::Nobody,
        };
        Self {
            state: Mutex::new(state),
            limit_bytes,
            crowd: AtomicUsize::new(0),
            room: Notify::new(),
        }
    }

    /// Puts a message in and, if nobody else is about to write, writes it.
    pub(crate) fn post(
        &self,
        id: Option<u64>,
        write: &dyn Fn(&mut Vec<u8>) -> Result<(), serde_json::Error>,
    ) -> Result<Posted, Refusal> {
        let mut state = self.state();
        match state.pipe {
            Pipe::Open(_) => {}
            Pipe::Broken => return Err(Refusal::Failed(TransportError::StdinNotAvailable)),
            Pipe::Closed => return Err(Refusal::Failed(TransportError::Shutdown)),
        }
        let buffered_bytes = state.n_unsent();
        if buffered_bytes > self.limit_bytes {
            state.waiting = Waiting::Somebody;
            return Err(Refusal::Full { buffered_bytes });
        }
        state
            .buffer
            .append(id, write)
            .map_err(|error| Refusal::Failed(TransportError::Serialize(error)))?;
        if state.stuck || state.promised {
            return Ok(Posted::Done);
        }
        if self.crowd.load(Ordering::Relaxed) > 1 {
            state.promised = true;
            return Ok(Posted::FlushSoon);
        }
        match self.write_out(state, write_plainly) {
            Flushed::All => Ok(Posted::Done),
            Flushed::Stuck | Flushed::Broken => Ok(Posted::CallDriver),
        }
    }

    /// Keeps the promise of [`Posted::FlushSoon`].
    pub(crate) fn flush(&self) -> Flushed {
        let mut state = self.state();
        state.promised = false;
        if state.buffer.n_messages() <= 1 {
            self.crowd.store(0, Ordering::Relaxed);
        }
        if state.stuck {
            return Flushed::All;
        }
        self.write_out(state, write_plainly)
    }

    /// Writes what is stuck, as the pipe takes it. Pending while it takes nothing.
    pub(crate) fn poll_flush(&self, context: &mut Context<'_>) -> Poll<Flushed> {
        for _ in 0..WRITES_PER_TURN {
            let state = self.state();
            let Pipe::Open(pipe) = &state.pipe else { return Poll::Ready(Flushed::Broken) };
            if !state.stuck {
                return Poll::Ready(Flushed::All);
            }
            // An error shows again, with its reason, in the write below.
            let _readiness: io::Result<()> = ready!(pipe.poll_write_ready(context));
            // Unlike a plain write, this one makes the pipe's readiness known when it is full.
            match self.write_out(state, Sender::try_write) {
                Flushed::Stuck => {}
                done => return Poll::Ready(done),
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// Says how many callers were woken together, which is how many are likely to write next.
    pub(crate) fn expect(&self, n_callers: usize) {
        self.crowd.store(n_callers, Ordering::Relaxed);
    }

    /// Takes a request back. Returns `false` if any byte of it has left, or is about to.
    pub(crate) fn withdraw(&self, id: u64) -> bool {
        let mut state = self.state();
        let is_withdrawn = state.buffer.withdraw(id);
        self.announce_room(&mut state);
        is_withdrawn
    }

    /// Closes the server's input, after one last attempt to write what is waiting. Who writes just now ends
    /// that first.
    pub(crate) fn close(&self) {
        self.write_out(self.state(), write_plainly);
        let mut state = self.state();
        state.pipe = Pipe::Closed;
        state.stuck = false;
        self.announce_room(&mut state);
    }

    /// Whether messages are refused for the moment.
    pub(crate) fn is_full(&self) -> bool {
        self.lacks_room(&self.state())
    }

    /// Waits for somebody to make room.
    pub(crate) fn room(&self) -> tokio::sync::futures::Notified<'_> {
        self.room.notified()
    }

    /// Writes until nothing is left, unless somebody else is at it. What is being written is in nobody's way.
    fn write_out<'a>(&'a self, mut state: MutexGuard<'a, State>, write: WriteCall) -> Flushed {
        let Pipe::Open(pipe) = &state.pipe else { return Flushed::Broken };
        if state.in_hand.is_some() {
            return Flushed::All;
        }
        let pipe = Arc::clone(pipe);
        let mut flushed = Flushed::Stuck;
        for _ in 0..WRITES_PER_TURN {
            let mut batch = mem::take(&mut state.buffer);
            state.in_hand = Some(batch.unsent().len());
            drop(state);
            flushed = write_batch(&mut batch, &pipe, write);
            state = self.state();
            if flushed != Flushed::All {
                batch.absorb(mem::take(&mut state.buffer));
                state.buffer = batch;
                break;
            }
            batch.rest();
            if state.promised || state.buffer.unsent().is_empty() {
                break;
            }
            flushed = Flushed::Stuck;
        }
        state.in_hand = None;
        state.stuck = flushed == Flushed::Stuck;
        if flushed == Flushed::Broken && matches!(state.pipe, Pipe::Open(_)) {
            state.pipe = Pipe::Broken;
        }
        self.announce_room(&mut state);
        flushed
    }

    /// Wakes those that were refused, if they would not be now, or would be for another reason.
    fn announce_room(&self, state: &mut State) {
        if state.waiting == Waiting::Somebody && !self.lacks_room(state) {
            state.waiting = Waiting::Nobody;
            self.room.notify_waiters();
        }
    }

    fn lacks_room(&self, state: &State) -> bool {
        matches!(state.pipe, Pipe::Open(_)) && state.n_unsent() > self.limit_bytes
    }

    // The state is consistent between statements, so a panic elsewhere cannot have torn it.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Bytes that may not have left.
    fn n_unsent(&self) -> usize {
        self.in_hand.unwrap_or_default() + self.buffer.unsent().len()
    }
}

type WriteCall = fn(&Sender, &[u8]) -> io::Result<usize>;

fn write_batch(batch: &mut Buffer, pipe: &Sender, write: WriteCall) -> Flushed {
    while !batch.unsent().is_empty() {
        match write(pipe, batch.unsent()) {
            Ok(n_bytes) => batch.advance(n_bytes),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Flushed::Stuck,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                tracing::debug!(%error, "the server does not take input any more");
                return Flushed::Broken;
            }
        }
    }
    Flushed::All
}

/// What one thread keeps at most for the next buffer that is filled.
const SPARE_BYTES: usize = 256 << 10;
const SPARE_MESSAGES: usize = 4 << 10;

/// Sent bytes beyond this are moved out of the way even if the rest is still waiting.
const COMPACT_BYTES: usize = 256 << 10;

thread_local! {
    static SPARE: RefCell<Buffer> = const { RefCell::new(Buffer::new()) };
}

/// Bytes to send, first in, first out.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    /// Bytes at the start that have left already.
    n_sent: usize,
    messages: VecDeque<Message>,
    /// Bytes of the first message that have left already.
    n_begun: usize,
}

/// A message that has not left completely. Only requests have an id.
#[derive(Debug, Clone, Copy)]
struct Message {
    id: Option<u64>,
    n_bytes: usize,
}

impl Buffer {
    const fn new() -> Self {
        Self { bytes: Vec::new(), n_sent: 0, messages: VecDeque::new(), n_begun: 0 }
    }

    /// Appends what `write` writes. If that fails, nothing has happened.
    pub(crate) fn append<E>(
        &mut self,
        id: Option<u64>,
        write: &dyn Fn(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.bytes.capacity() == 0 {
            *self = SPARE.try_with(RefCell::take).unwrap_or_default();
        }
        let before = self.bytes.len();
        if let Err(error) = write(&mut self.bytes) {
            self.bytes.truncate(before);
            return Err(error);
        }
        self.messages.push_back(Message { id, n_bytes: self.bytes.len() - before });
        Ok(())
    }

    /// What is still to be sent.
    pub(crate) fn unsent(&self) -> &[u8] {
        self.bytes.get(self.n_sent..).unwrap_or_default()
    }

    /// How many messages have not left completely.
    pub(crate) fn n_messages(&self) -> usize {
        self.messages.len()
    }

    /// Notes that the first `n_bytes` of what was unsent have left.
    pub(crate) fn advance(&mut self, n_bytes: usize) {
        self.n_sent += n_bytes;
        self.n_begun += n_bytes;
        while let Some(first) = self.messages.front().filter(|first| first.n_bytes <= self.n_begun)
        {
            self.n_begun -= first.n_bytes;
            self.messages.pop_front();
        }
        if self.messages.is_empty() {
            self.bytes.clear();
            self.n_sent = 0;
        } else if self.n_sent > COMPACT_BYTES && self.n_sent > self.bytes.len() / 2 {
            self.bytes.drain(..self.n_sent);
            self.n_sent = 0;
        }
    }

    /// Appends what is unsent of a buffer that was filled later.
    pub(crate) fn absorb(&mut self, later: Buffer) {
        self.bytes.extend_from_slice(later.unsent());
        self.messages.extend(&later.messages);
        later.rest();
    }

    /// Leaves the memory, but nothing of what is in it, to the next buffer that is filled on this thread.
    pub(crate) fn rest(mut self) {
        self.bytes.clear();
        self.messages.clear();
        let rested = Self { bytes: self.bytes, messages: self.messages, ..Self::new() };
        // A thread that is ending keeps nothing.
        let _is_kept = SPARE.try_with(|spare| {
            // The larger one is the one that had to grow.
            if rested.is_spare() && spare.borrow().bytes.capacity() < rested.bytes.capacity() {
                spare.replace(rested);
            }
        });
    }

    fn is_spare(&self) -> bool {
        self.bytes.capacity() <= SPARE_BYTES && self.messages.capacity() <= SPARE_MESSAGES
    }

    /// Takes a request out, unless some of it has left.
    pub(crate) fn withdraw(&mut self, id: u64) -> bool {
        let Some(index) = self.messages.iter().position(|message| message.id == Some(id)) else {
            return false;
        };
        if index == 0 && self.n_begun > 0 {
            return false;
        }
        let before: usize = self.messages.iter().take(index).map(|message| message.n_bytes).sum();
        let start = self.n_sent + before - self.n_begun;
        if let Some(message) = self.messages.remove(index) {
            self.bytes.drain(start..start + message.n_bytes);
        }
        true
    }
}

#[cfg(test)]
mod tests;
