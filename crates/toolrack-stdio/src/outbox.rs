//! What goes out to the server.
//!
//! A lone caller writes its own message with one system call. When several callers were woken together
//! they put their messages into one buffer, and the first of them writes them all. What the pipe does
//! not take is left to the driver, which waits for the pipe; callers never do.
//!
//! **Invariant:** messages leave in the order in which they were put in, each as one run of bytes, and a
//! message of which no byte has left can be taken back.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::net::unix::pipe::Sender;
use tokio::sync::Notify;
use toolrack_link::TransportError;

use crate::buffer::Buffer;

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
}

#[derive(Debug)]
enum Pipe {
    Open(Sender),
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
    /// The pipe is full or broken: the driver has to be woken.
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
            pipe: Pipe::Open(pipe),
            buffer: Buffer::default(),
            promised: false,
            stuck: false,
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
        let buffered_bytes = state.buffer.unsent().len();
        if buffered_bytes > self.limit_bytes {
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
        match self.write_out(&mut state, write_plainly) {
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
        self.write_out(&mut state, write_plainly)
    }

    /// Writes what is stuck, as the pipe takes it. Pending while it takes nothing.
    pub(crate) fn poll_flush(&self, context: &mut Context<'_>) -> Poll<Flushed> {
        loop {
            let mut state = self.state();
            let Pipe::Open(pipe) = &state.pipe else { return Poll::Ready(Flushed::Broken) };
            if !state.stuck {
                return Poll::Ready(Flushed::All);
            }
            // An error shows again, with its reason, in the write below.
            let _readiness: io::Result<()> = ready!(pipe.poll_write_ready(context));
            // Unlike a plain write, this one makes the pipe's readiness known when it is full.
            match self.write_out(&mut state, Sender::try_write) {
                Flushed::Stuck => {}
                done => return Poll::Ready(done),
            }
        }
    }

    /// Says how many callers were woken together, which is how many are likely to write next.
    pub(crate) fn expect(&self, n_callers: usize) {
        self.crowd.store(n_callers, Ordering::Relaxed);
    }

    /// Takes a request back. Returns `false` if any byte of it has left.
    pub(crate) fn withdraw(&self, id: u64) -> bool {
        self.state().buffer.withdraw(id)
    }

    /// Closes the server's input, after one last attempt to write what is waiting.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        self.write_out(&mut state, write_plainly);
        state.pipe = Pipe::Closed;
        state.stuck = false;
        self.room.notify_waiters();
    }

    /// Whether messages are refused for the moment.
    pub(crate) fn is_full(&self) -> bool {
        let state = self.state();
        matches!(state.pipe, Pipe::Open(_)) && state.buffer.unsent().len() > self.limit_bytes
    }

    /// Waits for somebody to make room.
    pub(crate) fn room(&self) -> tokio::sync::futures::Notified<'_> {
        self.room.notified()
    }

    fn write_out(&self, state: &mut State, write: WriteCall) -> Flushed {
        let was_full = state.buffer.unsent().len() > self.limit_bytes;
        let flushed = state.write_out(write);
        if was_full && state.buffer.unsent().len() <= self.limit_bytes || flushed == Flushed::Broken
        {
            self.room.notify_waiters();
        }
        flushed
    }

    // The state is consistent between statements, so a panic elsewhere cannot have torn it.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

type WriteCall = fn(&Sender, &[u8]) -> io::Result<usize>;

/// One system call, whatever the runtime believes of the pipe.
fn write_plainly(pipe: &Sender, bytes: &[u8]) -> io::Result<usize> {
    Ok(rustix::io::write(pipe, bytes)?)
}

impl State {
    fn write_out(&mut self, write: WriteCall) -> Flushed {
        let Pipe::Open(pipe) = &self.pipe else { return Flushed::Broken };
        while !self.buffer.unsent().is_empty() {
            match write(pipe, self.buffer.unsent()) {
                Ok(n_bytes) => self.buffer.advance(n_bytes),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.stuck = true;
                    return Flushed::Stuck;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    tracing::debug!(%error, "the server does not take input any more");
                    self.pipe = Pipe::Broken;
                    self.stuck = false;
                    return Flushed::Broken;
                }
            }
        }
        self.stuck = false;
        Flushed::All
    }
}

#[cfg(test)]
mod tests;
