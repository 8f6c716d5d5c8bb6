//! Outgoing message queue of one client stream, with replay and bounded loss.
//!
//! **Invariant:** pushing never waits, so a slow client cannot block a server or another client. Responses and server
//! requests are always kept: their number is bounded by the requests in flight. Notifications are dropped when the
//! client reads too slowly, and the client is told how many it lost.
//! **Invariant:** every message is redacted before it is queued.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use tokio::sync::watch;
use toolrack_transport::Redactor;

use crate::subscriptions::{Subscriber, WeakList, loss_message};

/// Unread messages from which on notifications are dropped.
const MAX_UNREAD: usize = 256;
/// The same limit in bytes.
const MAX_UNREAD_BYTES: usize = 4 << 20;
/// Messages kept after reading for a client that reconnects.
const MAX_REPLAY: usize = 256;
/// The same limit in bytes.
const MAX_REPLAY_BYTES: usize = 4 << 20;

/// Whether messages are kept after reading, so that a reconnecting client can get them again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Replay {
    Yes,
    No,
}

/// Which messages a stream carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamContent {
    All,
    /// The client reads the stream as one JSON body at its end: server requests would come too late, and notifications
    /// have no place in it.
    ResponsesOnly,
}

/// Queue of one stream to a client.
#[derive(Debug)]
pub(crate) struct MessageQueue {
    /// Every push, read and finish wakes the reader and waiting writers.
    state: watch::Sender<State>,
    replay: Replay,
    pub(crate) content: StreamContent,
    redactor: Redactor,
    /// Each announces after a loss what it is subscribed to: any of the lost messages may have been a change.
    pub(crate) subscribers: WeakList<Subscriber>,
}

#[derive(Default)]
struct State {
    /// Messages that were read and kept for replay, then unread ones.
    messages: VecDeque<Bytes>,
    /// Number of the first message in `messages`.
    first: u64,
    /// Number of the first unread message.
    unread: u64,
    unread_bytes: usize,
    replay_bytes: usize,
    n_lost: u64,
    /// Whether the client is told how many messages it lost.
    reports_losses: bool,
    is_finished: bool,
    /// Number of the current reader. Earlier readers get nothing more.
    reader: u64,
}

impl fmt::Debug for State {
    /// Without the messages, which are large and belong to the client.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} unread messages, {} lost", self.n_unread(), self.n_lost)
    }
}

/// Handle of a reader. The next reader replaces it.
#[derive(Debug)]
pub(crate) struct Reader(u64);

impl MessageQueue {
    /// Queue whose messages are cleaned by `redactor`.
    pub(crate) fn new(replay: Replay, content: StreamContent, redactor: &Redactor) -> Arc<Self> {
        Arc::new(Self {
            state: watch::Sender::default(),
            replay,
            content,
            redactor: redactor.clone(),
            subscribers: WeakList::default(),
        })
    }

    /// Tells the client from now on how many messages it lost. That is a log message, which not every client gets.
    pub(crate) fn report_losses(&self) {
        self.state.send_modify(|state| state.reports_losses = true);
    }

    /// Queues a message that must not be lost.
    pub(crate) fn push(&self, message: Bytes) {
        self.push_when(message, |_state| true);
    }

    /// Queues a message that must not be lost, unless the stream is finished. Returns whether it was queued.
    pub(crate) fn push_if_open(&self, message: &Bytes) -> bool {
        self.push_when(message.clone(), |state| !state.is_finished)
    }

    /// Queues a notification, which is dropped if the client reads too slowly.
    pub(crate) fn push_lossy(&self, message: Bytes) {
        if self.content == StreamContent::ResponsesOnly {
            return;
        }
        self.push_when(message, |state| {
            let is_full = state.n_unread() >= MAX_UNREAD || state.unread_bytes >= MAX_UNREAD_BYTES;
            state.n_lost += u64::from(is_full);
            !is_full
        });
    }

    /// Queues the last message and finishes the stream, under one lock: a reader that sees the message can tell that
    /// it is the last one ([`is_last`](Self::is_last)).
    pub(crate) fn push_last(&self, message: Bytes) {
        self.push_when(message, |state| {
            state.is_finished = true;
            true
        });
    }

    /// Queues a message if `is_accepted` says so. Returns whether it was queued.
    fn push_when(&self, message: Bytes, is_accepted: impl FnOnce(&mut State) -> bool) -> bool {
        // Before the lock: a search through a large message would make readers and other writers
        // wait.
        let message = self.redactor.redact_json(message);
        self.state.send_if_modified(|state| {
            let is_accepted = is_accepted(state);
            if is_accepted {
                state.push(message);
            }
            is_accepted
        })
    }

    /// Ends the stream after the messages that are queued.
    pub(crate) fn finish(&self) {
        self.state.send_modify(|state| state.is_finished = true);
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.state.borrow().is_finished
    }

    /// Whether no message comes after the one with this number.
    pub(crate) fn is_last(&self, number: u64) -> bool {
        let state = self.state.borrow();
        state.is_finished && state.n_unread() == 0 && state.unread == number + 1
    }

    /// Attaches a reader, which starts at message `from` if that is still kept, or else at the first unread one. An
    /// earlier reader is detached.
    pub(crate) fn attach_reader(&self, from: Option<u64>) -> Reader {
        let mut reader = 0;
        // Wakes the detached reader, so that its HTTP response ends.
        self.state.send_modify(|state| {
            state.reader += 1;
            from.inspect(|from| state.rewind(*from));
            reader = state.reader;
        });
        Reader(reader)
    }

    /// The next message and its number. `None` when the stream is finished or another reader is attached.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub(crate) async fn next(&self, reader: &Reader) -> Option<(u64, Bytes)> {
        let mut changes = self.state.subscribe();
        loop {
            // Marked as seen before the queue is checked: a push in between makes `changed` return at once.
            changes.mark_unchanged();
            match self.try_next(reader) {
                Poll::Ready(next) => return next,
                Poll::Pending => changes.changed().await.ok()?,
            }
        }
    }

    /// Waits until fewer than `bytes` are unread.
    pub(crate) async fn wait_for_space(&self, bytes: usize) {
        drop(self.state.subscribe().wait_for(|state| state.unread_bytes < bytes).await);
    }

    /// The next message and its number, if one is queued.
    pub(crate) fn try_next(&self, reader: &Reader) -> Poll<Option<(u64, Bytes)>> {
        let mut next = Poll::Ready(None);
        self.state.send_if_modified(|state| {
            if state.reader != reader.0 {
                return false;
            }
            next = state.take(self.replay);
            // Reported once the client has caught up, so that one notice covers the whole loss.
            if state.n_unread() == 0 && state.n_lost > 0 {
                let n_lost = std::mem::take(&mut state.n_lost);
                let number = state.reports_losses.then(|| loss_message(n_lost));
                let subscribers = self.subscribers.to_vec();
                let changes = subscribers.iter().flat_map(|subscriber| subscriber.all_changes());
                for notice in number.into_iter().chain(changes) {
                    state.push(self.redactor.redact_json(notice));
                }
                // Returned now: the reader is about to wait.
                if next.is_pending() {
                    next = state.take(self.replay);
                }
            }
            // Wakes writers that wait for space.
            matches!(next, Poll::Ready(Some(_)))
        });
        next
    }
}

impl State {
    fn n_unread(&self) -> usize {
        self.messages.len() - self.n_read()
    }

    fn n_read(&self) -> usize {
        usize::try_from(self.unread - self.first).unwrap_or(usize::MAX)
    }

    fn push(&mut self, message: Bytes) {
        self.unread_bytes += message.len();
        self.messages.push_back(message);
    }

    fn take(&mut self, replay: Replay) -> Poll<Option<(u64, Bytes)>> {
        let Some(message) = self.messages.get(self.n_read()).cloned() else {
            return if self.is_finished { Poll::Ready(None) } else { Poll::Pending };
        };
        let number = self.unread;
        self.unread += 1;
        self.unread_bytes -= message.len();
        self.replay_bytes += message.len();
        let limit = if replay == Replay::Yes { MAX_REPLAY } else { 0 };
        while self.n_read() > limit || (self.n_read() > 0 && self.replay_bytes > MAX_REPLAY_BYTES) {
            let dropped = self.messages.pop_front().map_or(0, |message| message.len());
            self.replay_bytes -= dropped;
            self.first += 1;
        }
        Poll::Ready(Some((number, message)))
    }

    /// Makes the messages from `number` on unread again. If they are no longer kept, starts at the oldest that is.
    fn rewind(&mut self, number: u64) {
        // The number comes from the client and may be too old, or never issued.
        let number = number.clamp(self.first, self.unread);
        while self.unread > number {
            self.unread -= 1;
            let bytes = self.messages.get(self.n_read()).map_or(0, Bytes::len);
            self.replay_bytes -= bytes;
            self.unread_bytes += bytes;
        }
    }
}

#[cfg(test)]
mod tests;
