//! Write queue to the server's stdin, with backpressure and withdrawal of unsent requests.
//!
//! A lone caller writes its own message with one system call. Callers that were woken together put their messages into
//! one buffer, and the first of them writes them all. If the pipe is full, the IO task waits for it and writes the rest;
//! callers never wait for the pipe.
//!
//! A writer takes the buffer out and writes without the lock, so no caller waits for the `write(2)` of another: messages that are queued
//! meanwhile collect in a new buffer, which the same writer takes next.
//!
//! **Invariant:** messages are sent in the order of [`WriteQueue::push`], each as one run of bytes, and a message of
//! which no writer has taken a byte can be withdrawn.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use parking_lot::{Mutex, MutexGuard};
use tokio::net::unix::pipe::Sender;
use tokio::sync::Notify;
use toolrack_transport::TransportError;

use crate::io_task::write_direct;

/// The maximum number of buffers that a caller writes in a row before it leaves the rest to the IO task, and that the
/// IO task writes before it yields. Without a limit, one caller could end up writing for all others.
const WRITES_PER_TURN: usize = 8;

/// The sending half of a transport.
#[derive(Debug)]
pub(crate) struct WriteQueue {
    state: Mutex<State>,
    limit_bytes: usize,
    /// The number of responses in the last read, and so of callers that are likely to write next.
    expected_writers: AtomicUsize,
    room: Notify,
}

#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent conditions")]
struct State {
    pipe: Pipe,
    buffer: WriteBuffer,
    /// Whether a caller is about to call [`WriteQueue::flush`].
    flush_scheduled: bool,
    /// Whether the pipe was full, so that the IO task has to flush.
    blocked: bool,
    /// The size of the buffer that a writer has taken. That writer also writes the next buffer, unless a flush is
    /// scheduled.
    in_flight: Option<usize>,
    /// Whether a rejected caller waits for room and has not been woken since.
    has_waiters: bool,
}

#[derive(Debug)]
enum Pipe {
    Open(Arc<Sender>),
    /// The server closed its end.
    Broken,
    /// We closed our end.
    Closed,
}

/// The outcome of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteStatus {
    /// The message was written, or another writer takes care of it.
    Done,
    /// More callers are likely to write: the caller yields to them, then calls [`WriteQueue::flush`].
    FlushLater,
    /// The pipe is full: the IO task has to flush.
    Blocked,
    /// The pipe is broken: the IO task has to close the transport.
    Broken,
}

/// Why a message was not queued.
#[derive(Debug)]
pub(crate) enum QueueError {
    /// The queue is over its limit. [`WriteQueue::room`] announces room.
    Full { buffered_bytes: usize },
    /// The message cannot be sent at all.
    Failed(TransportError),
}

impl WriteQueue {
    pub(crate) fn new(pipe: Sender, limit_bytes: usize) -> Self {
        let state = State {
            pipe: Pipe::Open(Arc::new(pipe)),
            buffer: WriteBuffer::default(),
            flush_scheduled: false,
            blocked: false,
            in_flight: None,
            has_waiters: false,
        };
        Self {
            state: Mutex::new(state),
            limit_bytes,
            expected_writers: AtomicUsize::new(0),
            room: Notify::new(),
        }
    }

    /// Queues a message and, unless another writer is active or scheduled, writes it.
    pub(crate) fn push(
        &self,
        id: Option<u64>,
        write: &dyn Fn(&mut Vec<u8>) -> Result<(), serde_json::Error>,
    ) -> Result<WriteStatus, QueueError> {
        let mut state = self.state.lock();
        match state.pipe {
            Pipe::Open(_) => {}
            Pipe::Broken => return Err(QueueError::Failed(TransportError::StdinNotAvailable)),
            Pipe::Closed => return Err(QueueError::Failed(TransportError::Shutdown)),
        }
        let buffered_bytes = state.n_unsent();
        if buffered_bytes > self.limit_bytes {
            state.has_waiters = true;
            return Err(QueueError::Full { buffered_bytes });
        }
        state
            .buffer
            .append(id, write)
            .map_err(|error| QueueError::Failed(TransportError::Serialize(error)))?;
        // The IO task or the scheduled flush takes the message along.
        if state.blocked || state.flush_scheduled {
            return Ok(WriteStatus::Done);
        }
        if self.expected_writers.load(Ordering::Relaxed) > 1 {
            state.flush_scheduled = true;
            return Ok(WriteStatus::FlushLater);
        }
        Ok(self.drain(state, write_direct))
    }

    /// Writes the queue, as [`WriteStatus::FlushLater`] demands.
    pub(crate) fn flush(&self) -> WriteStatus {
        let mut state = self.state.lock();
        state.flush_scheduled = false;
        // The other callers did not come: stop waiting for them until the next read.
        if state.buffer.n_messages() <= 1 {
            self.expected_writers.store(0, Ordering::Relaxed);
        }
        if state.blocked {
            return WriteStatus::Done;
        }
        self.drain(state, write_direct)
    }

    /// Writes the rest of a blocked queue as the pipe accepts it. Pending while the pipe is full. For the IO task.
    pub(crate) fn poll_flush(&self, context: &mut Context<'_>) -> Poll<WriteStatus> {
        for _ in 0..WRITES_PER_TURN {
            let state = self.state.lock();
            let Pipe::Open(pipe) = &state.pipe else { return Poll::Ready(WriteStatus::Broken) };
            if !state.blocked {
                return Poll::Ready(WriteStatus::Done);
            }
            // An error appears again in the write below, with its reason.
            let _readiness: io::Result<()> = ready!(pipe.poll_write_ready(context));
            // Unlike a direct write, `try_write` clears tokio's readiness when the pipe is full. Otherwise the next
            // `poll_write_ready` would succeed at once, and this task would spin.
            match self.drain(state, Sender::try_write) {
                WriteStatus::Blocked => {}
                done => return Poll::Ready(done),
            }
        }
        // The pipe keeps accepting data: yield to other tasks and continue.
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// Sets how many callers were woken together and are likely to write next.
    pub(crate) fn expect_writers(&self, n_callers: usize) {
        self.expected_writers.store(n_callers, Ordering::Relaxed);
    }

    /// Removes a request from the queue. Returns `false` if a byte of it was sent or a writer has taken it.
    pub(crate) fn withdraw(&self, id: u64) -> bool {
        let mut state = self.state.lock();
        let is_withdrawn = state.buffer.withdraw(id);
        self.announce_room(&mut state);
        is_withdrawn
    }

    /// Closes the server's stdin after a last attempt to write the queue. A concurrent writer holds a reference to the
    /// pipe and finishes its write first.
    pub(crate) fn close(&self) {
        self.drain(self.state.lock(), write_direct);
        let mut state = self.state.lock();
        state.pipe = Pipe::Closed;
        state.blocked = false;
        self.announce_room(&mut state);
    }

    /// Whether the queue rejects messages at the moment.
    pub(crate) fn is_full(&self) -> bool {
        self.is_over_limit(&self.state.lock())
    }

    /// Resolves when room is announced.
    pub(crate) fn room(&self) -> tokio::sync::futures::Notified<'_> {
        self.room.notified()
    }

    /// Writes until the queue is empty, unless another writer is active. The lock is not held during a write.
    fn drain<'a>(&'a self, mut state: MutexGuard<'a, State>, write: WriteCall) -> WriteStatus {
        let Pipe::Open(pipe) = &state.pipe else { return WriteStatus::Broken };
        // The active writer checks the buffer again before it stops, so it finds the new message.
        if state.in_flight.is_some() {
            return WriteStatus::Done;
        }
        let pipe = Arc::clone(pipe);
        let mut status = WriteStatus::Blocked;
        for _ in 0..WRITES_PER_TURN {
            let mut batch = mem::take(&mut state.buffer);
            state.in_flight = Some(batch.unsent().len());
            drop(state);
            status = write_batch(&mut batch, &pipe, write);
            state = self.state.lock();
            if status != WriteStatus::Done {
                // Keep the order: the unsent rest goes before the messages that were queued meanwhile.
                batch.append_buffer(mem::take(&mut state.buffer));
                state.buffer = batch;
                break;
            }
            batch.recycle();
            if state.flush_scheduled || state.buffer.unsent().is_empty() {
                break;
            }
            // If this was the last turn, the IO task has to continue.
            status = WriteStatus::Blocked;
        }
        state.in_flight = None;
        state.blocked = status == WriteStatus::Blocked;
        // `close` may have run during the write; a closed pipe stays closed.
        if status == WriteStatus::Broken && matches!(state.pipe, Pipe::Open(_)) {
            state.pipe = Pipe::Broken;
        }
        self.announce_room(&mut state);
        status
    }

    /// Wakes waiting callers if there is room, or if the pipe is no longer open and they have to fail.
    fn announce_room(&self, state: &mut State) {
        if state.has_waiters && !self.is_over_limit(state) {
            state.has_waiters = false;
            self.room.notify_waiters();
        }
    }

    fn is_over_limit(&self, state: &State) -> bool {
        matches!(state.pipe, Pipe::Open(_)) && state.n_unsent() > self.limit_bytes
    }
}

impl State {
    /// The number of bytes that may not have been sent.
    fn n_unsent(&self) -> usize {
        self.in_flight.unwrap_or_default() + self.buffer.unsent().len()
    }
}

type WriteCall = fn(&Sender, &[u8]) -> io::Result<usize>;

fn write_batch(batch: &mut WriteBuffer, pipe: &Sender, write: WriteCall) -> WriteStatus {
    while !batch.unsent().is_empty() {
        match write(pipe, batch.unsent()) {
            Ok(n_bytes) => batch.advance(n_bytes),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return WriteStatus::Blocked,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                tracing::debug!(%error, "cannot write to the server's stdin");
                return WriteStatus::Broken;
            }
        }
    }
    WriteStatus::Done
}

/// The most memory that a thread keeps for reuse.
const SPARE_BYTES: usize = 256 << 10;
const SPARE_MESSAGES: usize = 4 << 10;

/// When more sent bytes than this are at the start of a buffer, the rest is moved to the front.
const COMPACT_BYTES: usize = 256 << 10;

thread_local! {
    /// Memory for the next buffer on this thread, so that an idle queue holds none.
    static SPARE: RefCell<WriteBuffer> = const { RefCell::new(WriteBuffer::new()) };
}

/// First-in, first-out buffer that remembers the boundaries between messages.
#[derive(Debug, Default)]
pub(crate) struct WriteBuffer {
    bytes: Vec<u8>,
    /// Bytes at the start that were sent already.
    n_sent: usize,
    messages: VecDeque<QueuedMessage>,
    /// Bytes of the first message that were sent already.
    n_partial_sent: usize,
}

/// A message that was not sent completely. Only requests have an id.
#[derive(Debug, Clone, Copy)]
struct QueuedMessage {
    id: Option<u64>,
    n_bytes: usize,
}

impl WriteBuffer {
    const fn new() -> Self {
        Self { bytes: Vec::new(), n_sent: 0, messages: VecDeque::new(), n_partial_sent: 0 }
    }

    /// Appends the output of `write`. On failure the buffer is unchanged.
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
        self.messages.push_back(QueuedMessage { id, n_bytes: self.bytes.len() - before });
        Ok(())
    }

    /// The bytes to send.
    pub(crate) fn unsent(&self) -> &[u8] {
        self.bytes.get(self.n_sent..).unwrap_or_default()
    }

    /// The number of messages that were not sent completely.
    pub(crate) fn n_messages(&self) -> usize {
        self.messages.len()
    }

    /// Marks the first `n_bytes` unsent bytes as sent.
    pub(crate) fn advance(&mut self, n_bytes: usize) {
        self.n_sent += n_bytes;
        self.n_partial_sent += n_bytes;
        // Most writes send everything.
        if self.n_sent == self.bytes.len() {
            self.clear();
            return;
        }
        while let Some(first) =
            self.messages.front().filter(|first| first.n_bytes <= self.n_partial_sent)
        {
            self.n_partial_sent -= first.n_bytes;
            self.messages.pop_front();
        }
        if self.n_sent > COMPACT_BYTES && self.n_sent > self.bytes.len() / 2 {
            self.bytes.drain(..self.n_sent);
            self.n_sent = 0;
        }
    }

    /// Appends the unsent bytes of a buffer that was filled later.
    pub(crate) fn append_buffer(&mut self, later: WriteBuffer) {
        self.bytes.extend_from_slice(later.unsent());
        self.messages.extend(&later.messages);
        later.recycle();
    }

    /// Empties the buffer and keeps its memory for the next buffer on this thread.
    pub(crate) fn recycle(mut self) {
        self.clear();
        // Fails only while the thread exits.
        let _is_kept = SPARE.try_with(|spare| {
            // Keep the larger one: it had to grow and would have to again.
            let kept_bytes = spare.borrow().bytes.capacity();
            let is_larger = (kept_bytes + 1..=SPARE_BYTES).contains(&self.bytes.capacity());
            if is_larger && self.messages.capacity() <= SPARE_MESSAGES {
                spare.replace(self);
            }
        });
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.messages.clear();
        (self.n_sent, self.n_partial_sent) = (0, 0);
    }

    /// Removes a request, unless a part of it was sent.
    pub(crate) fn withdraw(&mut self, id: u64) -> bool {
        let Some(index) = self.messages.iter().position(|message| message.id == Some(id)) else {
            return false;
        };
        if index == 0 && self.n_partial_sent > 0 {
            return false;
        }
        let before: usize = self.messages.iter().take(index).map(|message| message.n_bytes).sum();
        let start = self.n_sent + before - self.n_partial_sent;
        if let Some(message) = self.messages.remove(index) {
            self.bytes.drain(start..start + message.n_bytes);
        }
        true
    }
}

#[cfg(test)]
mod tests;
