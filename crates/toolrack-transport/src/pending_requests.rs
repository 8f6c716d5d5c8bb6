//! Table of pending requests: matches responses to requests by id and tracks their deadlines.
//!
//! **Invariant:** an entry lives exactly as long as a caller waits for it. The caller holds a
//! [`PendingResponse`], and dropping it always removes the entry.

use std::collections::{HashMap, hash_map};
use std::future::Future;
use std::hash::{BuildHasherDefault, Hasher};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The deadline of a request, and how far signs of progress can extend it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadline {
    /// When the wait started.
    pub started: Instant,
    /// When the request times out.
    pub expires_at: Instant,
    /// The time that the request gets after each sign of progress.
    pub idle_timeout: Duration,
    /// When the request times out regardless of progress.
    pub hard_limit: Instant,
}

/// The pending requests of one connection. `A` is a response, `E` the reason for the close.
#[derive(Debug)]
pub struct PendingRequests<A, E> {
    table: Mutex<Table<A, E>>,
}

/// A future of one response. Resolves to the response, or to the reason why the connection closed.
///
/// # Cancel safety
/// Dropping it removes the request from the table; a late response is discarded.
#[derive(Debug)]
#[must_use = "dropping the pending response cancels the request"]
pub struct PendingResponse<'a, A, E: Clone> {
    requests: &'a PendingRequests<A, E>,
    id: u64,
    is_registered: bool,
    is_earliest: bool,
}

#[derive(Debug)]
struct Table<A, E> {
    last_id: u64,
    close_reason: Option<E>,
    /// When the next call of [`PendingRequests::expire`] is scheduled.
    next_expiry: Option<Instant>,
    entries: HashMap<u64, Entry<A>, BuildHasherDefault<IdHasher>>,
}

#[derive(Debug)]
struct Entry<A> {
    waker: Option<Waker>,
    response: Option<A>,
    deadline: Deadline,
}

impl<A, E: Clone> PendingRequests<A, E> {
    /// Registers a request under the next id. Fails once the connection is closed.
    pub fn register(&self, deadline: Deadline) -> Result<PendingResponse<'_, A, E>, E> {
        let mut table = self.table.lock();
        if let Some(reason) = &table.close_reason {
            return Err(reason.clone());
        }
        // Ids are never reused, so a late response cannot complete another request.
        table.last_id += 1;
        let id = table.last_id;
        let is_earliest = table.next_expiry.is_none_or(|expiry| deadline.expires_at < expiry);
        if is_earliest {
            table.next_expiry = Some(deadline.expires_at);
        }
        table.entries.insert(id, Entry { waker: None, response: None, deadline });
        Ok(PendingResponse { requests: self, id, is_registered: true, is_earliest })
    }

    /// Delivers the response of request `id`. Returns it if the request is not pending, which is normal: the caller
    /// may have given up a moment ago. The first response wins.
    pub fn complete(&self, id: u64, response: A) -> Result<(), A> {
        let mut table = self.table.lock();
        let Some(entry) = table.entries.get_mut(&id) else { return Err(response) };
        if entry.response.is_some() {
            return Err(response);
        }
        entry.response = Some(response);
        let waker = entry.waker.take();
        // Unlock before the wake-up, so that the woken task does not run into the lock.
        drop(table);
        if let Some(waker) = waker {
            waker.wake();
        }
        Ok(())
    }

    /// Restarts the idle timeout of request `id`, or of every request.
    ///
    /// The scheduled expiry stays: it comes too early, finds the later deadline and is scheduled again.
    pub fn extend_deadline(&self, id: Option<u64>, now: Instant) {
        let mut table = self.table.lock();
        let extended = |entry: &mut Entry<A>| {
            entry.deadline.expires_at =
                (now + entry.deadline.idle_timeout).min(entry.deadline.hard_limit);
        };
        match id {
            Some(id) => table.entries.get_mut(&id).into_iter().for_each(extended),
            None => table.entries.values_mut().for_each(extended),
        }
    }

    /// Completes every request whose deadline has passed with the result of `timed_out`, and returns the next
    /// deadline and the id of its request.
    ///
    /// Only needed where callers have no timer of their own: then one timer serves all requests, and needs a reset
    /// only for a request with an [earlier deadline](PendingResponse::is_earliest).
    pub fn expire(
        &self,
        now: Instant,
        timed_out: impl Fn(Deadline) -> A,
    ) -> Option<(Instant, u64)> {
        let mut table = self.table.lock();
        let mut wakers = Vec::new();
        // Computed anew, because progress moves deadlines and requests end without a change here.
        let mut next: Option<(Instant, u64)> = None;
        // A response that its caller has not polled yet is not replaced by a timeout.
        let waiting = table.entries.iter_mut().filter(|(_, entry)| entry.response.is_none());
        for (id, entry) in waiting {
            let expires_at = entry.deadline.expires_at;
            if expires_at <= now {
                entry.response = Some(timed_out(entry.deadline));
                wakers.extend(entry.waker.take());
            } else if next.is_none_or(|(earliest, _)| expires_at < earliest) {
                next = Some((expires_at, *id));
            }
        }
        table.next_expiry = next.map(|(expires_at, _)| expires_at);
        drop(table);
        wakers.into_iter().for_each(Waker::wake);
        next
    }

    /// Forgets the scheduled expiry if no request waits for a response, and returns whether that is so. The next request
    /// then has the [earliest deadline](PendingResponse::is_earliest).
    pub fn cancel_expiry(&self) -> bool {
        let mut table = self.table.lock();
        let is_idle = table.entries.values().all(|entry| entry.response.is_some());
        if is_idle {
            table.next_expiry = None;
        }
        is_idle
    }

    /// Fails every pending request with `reason` and rejects new ones. Responses that were delivered before stay
    /// valid; the first reason wins.
    pub fn close(&self, reason: E) {
        let mut table = self.table.lock();
        table.close_reason.get_or_insert(reason);
        // Entries stay: each caller takes its response, or the reason, when it polls.
        let wakers: Vec<Waker> =
            table.entries.values_mut().filter_map(|entry| entry.waker.take()).collect();
        drop(table);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// The close reason, once the connection is closed.
    pub fn close_reason(&self) -> Option<E> {
        self.table.lock().close_reason.clone()
    }

    /// The number of pending requests.
    pub fn n_open(&self) -> usize {
        self.table.lock().entries.len()
    }

    /// The id of the pending request, if there is exactly one.
    pub fn sole_id(&self) -> Option<u64> {
        let table = self.table.lock();
        let mut ids = table.entries.keys();
        match (ids.next(), ids.next()) {
            (Some(id), None) => Some(*id),
            _ => None,
        }
    }
}

impl<A, E> Default for PendingRequests<A, E> {
    /// An empty table. The first id is one.
    fn default() -> Self {
        let entries = HashMap::default();
        let table = Table { last_id: 0, close_reason: None, next_expiry: None, entries };
        Self { table: Mutex::new(table) }
    }
}

impl<A, E: Clone> PendingResponse<'_, A, E> {
    /// The id of the request.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Whether this deadline is earlier than the scheduled expiry, so that the timer needs a reset.
    pub fn is_earliest(&self) -> bool {
        self.is_earliest
    }

    /// The current deadline. `None` once the response was taken.
    pub fn deadline(&self) -> Option<Deadline> {
        self.requests.table.lock().entries.get(&self.id).map(|entry| entry.deadline)
    }
}

impl<A, E: Clone> Future for PendingResponse<'_, A, E> {
    type Output = Result<A, E>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut table = self.requests.table.lock();
        let table = &mut *table;
        // No entry: polled again after completion, which callers must not do.
        let hash_map::Entry::Occupied(mut occupied) = table.entries.entry(self.id) else {
            return Poll::Pending;
        };
        let entry = occupied.get_mut();
        // A response that arrived before the close is still delivered.
        let outcome = match (entry.response.take(), &table.close_reason) {
            (Some(response), _) => Ok(response),
            (None, Some(reason)) => Err(reason.clone()),
            (None, None) => {
                match &mut entry.waker {
                    // Clones only if the waker has changed since the last poll.
                    Some(waker) => waker.clone_from(context.waker()),
                    none => *none = Some(context.waker().clone()),
                }
                return Poll::Pending;
            }
        };
        occupied.remove();
        self.is_registered = false;
        Poll::Ready(outcome)
    }
}

impl<A, E: Clone> Drop for PendingResponse<'_, A, E> {
    fn drop(&mut self) {
        if self.is_registered {
            self.requests.table.lock().entries.remove(&self.id);
        }
    }
}

/// Hasher for request ids. Ids count up, so one multiplication spreads them well enough.
#[derive(Default)]
struct IdHasher(u64);

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        // 2^64 divided by the golden ratio. The rotation moves the well-mixed high bits down to
        // where the table takes its index from.
        self.0 = (self.0 ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(26);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests;
