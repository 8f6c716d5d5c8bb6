//! What is on its way to a client: one queue for each stream, which nobody waits for.
//!
//! **Invariant:** putting something in never waits. Answers and questions are kept, because their number is
//! bounded by the requests that are open; when a client reads too slowly, it loses notifications and is told.
//! Nothing leaves without having been cleaned of what must not be seen.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::watch;
use toolrack_transport::Mask;

/// Messages that wait for a slow client. When so many do, notifications are lost.
const MAX_UNREAD: usize = 256;
/// The same in bytes.
const MAX_UNREAD_BYTES: usize = 4 << 20;
/// Messages that were read and are kept for a client that lost its connection.
const MAX_KEPT: usize = 256;
/// The same in bytes.
const MAX_KEPT_BYTES: usize = 4 << 20;

/// What a client is told that has lost so many messages.
pub(crate) type Notice = Box<dyn Fn(u64) -> Vec<Bytes> + Send + Sync>;

/// Whether what was read can be read again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Replay {
    Yes,
    No,
}

/// What a client can be given on a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Carries {
    Everything,
    /// It is read when it is over, as one body, so that questions would come too late and nothing else is wanted.
    Answers,
}

/// One stream to a client.
pub(crate) struct Outbox {
    state: Mutex<State>,
    /// Counts changes, for whoever waits for one.
    version: watch::Sender<u64>,
    replay: Replay,
    carries: Carries,
    mask: Mask,
}

#[derive(Default)]
struct State {
    messages: VecDeque<Bytes>,
    /// The number of the first of them.
    first: u64,
    /// The number of the first that was not read.
    unread: u64,
    unread_bytes: usize,
    kept_bytes: usize,
    n_lost: u64,
    /// What is said after a loss, by the number under which it can be forgotten.
    notices: Vec<(u64, Notice)>,
    n_notices: u64,
    is_over: bool,
    /// Counts readers. Only the last one reads.
    reader: u64,
}

/// Somebody who reads. A later one takes its place.
#[derive(Debug)]
pub(crate) struct Reader(u64);

impl Outbox {
    /// A stream without what `mask` knows.
    pub(crate) fn new(replay: Replay, mask: &Mask) -> Self {
        Self {
            state: Mutex::default(),
            version: watch::Sender::new(0),
            replay,
            carries: Carries::Everything,
            mask: mask.clone(),
        }
    }

    /// The same for a client that can be given this.
    pub(crate) fn carrying(self, carries: Carries) -> Self {
        Self { carries, ..self }
    }

    pub(crate) fn carries(&self) -> Carries {
        self.carries
    }

    /// Says what is put in after notifications were lost, until that is forgotten.
    pub(crate) fn on_loss(&self, notice: Notice) -> u64 {
        let mut state = self.state();
        state.n_notices += 1;
        let number = state.n_notices;
        state.notices.push((number, notice));
        number
    }

    pub(crate) fn forget(&self, notice: u64) {
        self.state().notices.retain(|(number, _)| *number != notice);
    }

    /// Puts in what must arrive.
    pub(crate) fn put(&self, message: Bytes) {
        let message = self.mask.clean_json(message);
        self.state().push(message);
        self.changed();
    }

    /// Puts in what must arrive, unless nothing comes any more.
    pub(crate) fn put_if_open(&self, message: &Bytes) -> bool {
        let message = self.mask.clean_json(message.clone());
        let mut state = self.state();
        if state.is_over {
            return false;
        }
        state.push(message);
        drop(state);
        self.changed();
        true
    }

    /// Puts in what may be lost.
    pub(crate) fn tell(&self, message: Bytes) {
        if self.carries == Carries::Answers {
            return;
        }
        let message = self.mask.clean_json(message);
        let mut state = self.state();
        if state.n_unread() >= MAX_UNREAD || state.unread_bytes >= MAX_UNREAD_BYTES {
            state.n_lost += 1;
            return;
        }
        state.push(message);
        drop(state);
        self.changed();
    }

    /// Puts in what nothing comes after.
    pub(crate) fn put_last(&self, message: Bytes) {
        let message = self.mask.clean_json(message);
        let mut state = self.state();
        state.push(message);
        state.is_over = true;
        drop(state);
        self.changed();
    }

    /// Nothing comes any more.
    pub(crate) fn finish(&self) {
        self.state().is_over = true;
        self.changed();
    }

    pub(crate) fn is_over(&self) -> bool {
        self.state().is_over
    }

    /// Whether nothing comes after the message with this number.
    pub(crate) fn is_last(&self, number: u64) -> bool {
        let state = self.state();
        state.is_over && state.n_unread() == 0 && state.unread == number + 1
    }

    /// Begins to read, with the message number `from` if that is still there, or else with what is unread.
    /// Whoever read before stops.
    pub(crate) fn read(&self, from: Option<u64>) -> Reader {
        let mut state = self.state();
        state.reader += 1;
        if let Some(from) = from {
            state.rewind(from);
        }
        let reader = Reader(state.reader);
        drop(state);
        self.changed();
        reader
    }

    /// The next message and its number. `None` when there will be no more, or somebody else reads.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub(crate) async fn next(&self, reader: &Reader) -> Option<(u64, Bytes)> {
        let mut version = self.version.subscribe();
        loop {
            version.borrow_and_update();
            match self.try_next(reader) {
                Step::Message(number, message) => return Some((number, message)),
                Step::Over => return None,
                Step::Wait => version.changed().await.ok()?,
            }
        }
    }

    /// The same, unless it would have to be waited for.
    pub(crate) fn next_if_there(&self, reader: &Reader) -> Option<(u64, Bytes)> {
        match self.try_next(reader) {
            Step::Message(number, message) => Some((number, message)),
            Step::Wait | Step::Over => None,
        }
    }

    /// Waits until less than `bytes` are unread.
    pub(crate) async fn room(&self, bytes: usize) {
        let mut version = self.version.subscribe();
        while self.state().unread_bytes >= bytes {
            if version.changed().await.is_err() {
                return;
            }
        }
    }

    fn try_next(&self, reader: &Reader) -> Step {
        let mut state = self.state();
        if state.reader != reader.0 {
            return Step::Over;
        }
        let step = state.take(self.replay);
        if state.n_unread() == 0 && state.n_lost > 0 {
            let n_lost = std::mem::take(&mut state.n_lost);
            let notices: Vec<Bytes> = state.notices.iter().flat_map(|(_, it)| it(n_lost)).collect();
            for notice in notices {
                state.push(self.mask.clean_json(notice));
            }
            if matches!(step, Step::Wait) {
                return state.take(self.replay);
            }
        }
        drop(state);
        if matches!(step, Step::Message(..)) {
            self.changed();
        }
        step
    }

    fn changed(&self) {
        self.version.send_modify(|version| *version = version.wrapping_add(1));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum Step {
    Message(u64, Bytes),
    Wait,
    Over,
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

    fn take(&mut self, replay: Replay) -> Step {
        let Some(message) = self.messages.get(self.n_read()).cloned() else {
            return if self.is_over { Step::Over } else { Step::Wait };
        };
        let number = self.unread;
        self.unread += 1;
        self.unread_bytes -= message.len();
        self.kept_bytes += message.len();
        let most = if replay == Replay::Yes { MAX_KEPT } else { 0 };
        while self.n_read() > most || (self.n_read() > 0 && self.kept_bytes > MAX_KEPT_BYTES) {
            let dropped = self.messages.pop_front().map_or(0, |it| it.len());
            self.kept_bytes -= dropped;
            self.first += 1;
        }
        Step::Message(number, message)
    }

    fn rewind(&mut self, number: u64) {
        let number = number.clamp(self.first, self.unread);
        while self.unread > number {
            self.unread -= 1;
            let bytes = self.messages.get(self.n_read()).map_or(0, Bytes::len);
            self.kept_bytes -= bytes;
            self.unread_bytes += bytes;
        }
    }
}

impl fmt::Debug for Outbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("Outbox")
            .field("unread", &state.n_unread())
            .field("lost", &state.n_lost)
            .field("is_over", &state.is_over)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
