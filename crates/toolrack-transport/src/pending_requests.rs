//! Requests that are waiting for their answers.
//!
//! **Invariant:** an entry lives exactly as long as somebody waits for it. The waiting side holds a
//! [`Ticket`], and dropping the ticket removes the entry, whatever the reason for the drop.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::hash::{BuildHasherDefault, Hasher};
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// When a wait is over, and how far signs of work from the peer can move that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Due {
    /// When the wait began.
    pub started: Instant,
    /// When it is over.
    pub at: Instant,
    /// What a sign of work adds to the moment it comes.
    pub renew: Duration,
    /// When it is over whatever comes.
    pub last: Instant,
}

/// The open requests of one connection. `A` is an answer, `E` the reason for which the connection ended.
pub struct Pending<A, E> {
    table: Mutex<Table<A, E>>,
}

/// A claim on one answer. As a future it gives the answer, or the reason why there will be none.
///
/// # Cancel safety
/// Dropping the ticket withdraws the claim; a late answer is discarded.
#[must_use = "dropping the ticket abandons the request"]
pub struct Ticket<'a, A, E: Clone> {
    pending: &'a Pending<A, E>,
    id: u64,
    open: bool,
    is_soonest: bool,
}

struct Table<A, E> {
    last_id: u64,
    ended: Option<E>,
    /// The moment that [`Pending::expire`] has promised to be called again.
    alarm: Option<Instant>,
    waiting: HashMap<u64, Entry<A>, BuildHasherDefault<IdHasher>>,
}

struct Entry<A> {
    waker: Option<Waker>,
    answer: Option<A>,
    due: Due,
}

impl<A, E: Clone> Pending<A, E> {
    /// An empty table. Ids are counted from one.
    pub fn new() -> Self {
        let table = Table { last_id: 0, ended: None, alarm: None, waiting: HashMap::default() };
        Self { table: Mutex::new(table) }
    }

    /// Claims the next id, for a wait that is over when `due` says. Fails once the connection has ended.
    pub fn claim(&self, due: Due) -> Result<Ticket<'_, A, E>, E> {
        let mut table = self.table();
        if let Some(reason) = &table.ended {
            return Err(reason.clone());
        }
        table.last_id += 1;
        let id = table.last_id;
        let is_soonest = table.alarm.is_none_or(|alarm| due.at < alarm);
        if is_soonest {
            table.alarm = Some(due.at);
        }
        table.waiting.insert(id, Entry { waker: None, answer: None, due });
        Ok(Ticket { pending: self, id, open: true, is_soonest })
    }

    /// Hands an answer to whoever waits for it. Gives it back if nobody does, which is normal: the
    /// caller may have given up a moment ago. The first answer wins.
    pub fn settle(&self, id: u64, answer: A) -> Result<(), A> {
        let mut table = self.table();
        let Some(entry) = table.waiting.get_mut(&id) else { return Err(answer) };
        if entry.answer.is_some() {
            return Err(answer);
        }
        entry.answer = Some(answer);
        let waker = entry.waker.take();
        drop(table);
        if let Some(waker) = waker {
            waker.wake();
        }
        Ok(())
    }

    /// Notes that the peer is still at work on a request. Returns `false` if nobody waits for it.
    pub fn touch(&self, id: u64, now: Instant) -> bool {
        let mut table = self.table();
        let Some(entry) = table.waiting.get_mut(&id) else { return false };
        entry.due.at = (now + entry.due.renew).min(entry.due.last);
        true
    }

    /// Settles every wait that is over with what `answer` makes of it, and says when to come again.
    ///
    /// Only needed where waiting callers have no clock of their own: then one clock serves them all, and
    /// has to be set anew only for a claim that [is sooner](Ticket::is_soonest) than it.
    pub fn expire(&self, now: Instant, answer: impl Fn(Due) -> A) -> Option<Instant> {
        let mut table = self.table();
        let table = &mut *table;
        let mut wakers = Vec::new();
        table.alarm = None;
        for entry in table.waiting.values_mut().filter(|entry| entry.answer.is_none()) {
            if entry.due.at > now {
                let alarm = table.alarm.get_or_insert(entry.due.at);
                *alarm = entry.due.at.min(*alarm);
                continue;
            }
            entry.answer = Some(answer(entry.due));
            wakers.extend(entry.waker.take());
        }
        let alarm = table.alarm;
        wakers.into_iter().for_each(Waker::wake);
        alarm
    }

    /// Ends every wait with `reason` and refuses new claims. Answers that have already been handed
    /// over stay valid; the first reason stays.
    pub fn end(&self, reason: E) {
        let mut table = self.table();
        table.ended.get_or_insert(reason);
        let wakers: Vec<Waker> =
            table.waiting.values_mut().filter_map(|entry| entry.waker.take()).collect();
        drop(table);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Why the connection ended, if it has.
    pub fn ended(&self) -> Option<E> {
        self.table().ended.clone()
    }

    /// How many requests are open.
    pub fn n_open(&self) -> usize {
        self.table().waiting.len()
    }

    /// The one open request, if there is exactly one.
    pub fn only(&self) -> Option<u64> {
        let table = self.table();
        let mut ids = table.waiting.keys();
        match (ids.next(), ids.next()) {
            (Some(id), None) => Some(*id),
            _ => None,
        }
    }

    // The table is consistent between statements, so a panic elsewhere cannot have torn it.
    fn table(&self) -> MutexGuard<'_, Table<A, E>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<A, E: Clone> Default for Pending<A, E> {
    fn default() -> Self {
        Self::new()
    }
}

impl<A, E: Clone> Ticket<'_, A, E> {
    /// The id to put into the request.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Whether this wait is over before any clock that was set for others.
    pub fn is_soonest(&self) -> bool {
        self.is_soonest
    }

    /// When the wait is over, as things stand. `None` once it is settled.
    pub fn due(&self) -> Option<Due> {
        self.pending.table().waiting.get(&self.id).map(|entry| entry.due)
    }
}

impl<A, E: Clone> Future for Ticket<'_, A, E> {
    type Output = Result<A, E>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut table = self.pending.table();
        let table = &mut *table;
        let Some(entry) = table.waiting.get_mut(&self.id) else { return Poll::Pending };
        let outcome = match (entry.answer.take(), &table.ended) {
            (Some(answer), _) => Ok(answer),
            (None, Some(reason)) => Err(reason.clone()),
            (None, None) => {
                match &mut entry.waker {
                    Some(waker) => waker.clone_from(context.waker()),
                    none => *none = Some(context.waker().clone()),
                }
                return Poll::Pending;
            }
        };
        table.waiting.remove(&self.id);
        self.open = false;
        Poll::Ready(outcome)
    }
}

impl<A, E: Clone> Drop for Ticket<'_, A, E> {
    fn drop(&mut self) {
        if self.open {
            self.pending.table().waiting.remove(&self.id);
        }
    }
}

impl<A, E: Clone> fmt::Debug for Pending<A, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").field("n_open", &self.n_open()).finish_non_exhaustive()
    }
}

impl<A, E: Clone> fmt::Debug for Ticket<'_, A, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Ids are counted up, so one multiplication spreads them well enough.
#[derive(Default)]
struct IdHasher(u64);

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(26);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests;
