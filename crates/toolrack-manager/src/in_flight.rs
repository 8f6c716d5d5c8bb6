//! In-flight counter of one connection, so that an idle connection can be closed and a busy one is not.
//!
//! **Invariant:** a closed counter admits no more users. Idle shutdown closes it only while the count is zero.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use toolrack_client::McpClient;

use crate::snapshot::ActiveClient;

/// Flag in the counter. One atomic holds count and flag, so closing an unused connection is a single
/// compare-exchange and cannot race with a call that starts.
const CLOSED: u64 = 1 << 63;

/// Users of one connection.
#[derive(Debug)]
pub(crate) struct InFlight {
    /// Number of users, and [`CLOSED`].
    count: AtomicU64,
    created: Instant,
    /// When the last user finished, in milliseconds since `created`.
    last_finished_ms: AtomicU64,
    /// The connection has an idle timeout. If not, calls are spared the clock reading.
    has_idle_timeout: bool,
    /// Notified when the last user of a closed counter finishes.
    drained: Notify,
}

/// One user of a connection. Dropping it ends the use.
#[derive(Debug)]
pub(crate) struct InFlightGuard<'a>(&'a InFlight);

impl InFlight {
    pub(crate) fn new(idle_timeout: Option<Duration>) -> Self {
        let (count, last_finished_ms) = (AtomicU64::new(0), AtomicU64::new(0));
        let (created, has_idle_timeout) = (Instant::now(), idle_timeout.is_some());
        Self { count, created, last_finished_ms, has_idle_timeout, drained: Notify::new() }
    }

    /// Registers a user. `None` if the connection is about to be closed.
    pub(crate) fn acquire(&self) -> Option<InFlightGuard<'_>> {
        // Counts first and checks afterwards: a failed attempt is visible to `drain` for a moment, and taken back.
        let before = self.count.fetch_add(1, Ordering::AcqRel);
        if before & CLOSED != 0 {
            self.decrement();
            return None;
        }
        Some(InFlightGuard(self))
    }

    /// Closes the counter if it is zero. `true` if this call closed it.
    pub(crate) fn close_if_unused(&self) -> bool {
        self.count.compare_exchange(0, CLOSED, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Closes the counter and waits until all users have finished.
    pub(crate) async fn drain(&self) {
        self.count.fetch_or(CLOSED, Ordering::AcqRel);
        // `notify_one` stores a permit, so a user that finishes between the load and the await is not missed.
        while self.count.load(Ordering::Acquire) != CLOSED {
            self.drained.notified().await;
        }
    }

    fn decrement(&self) {
        if self.count.fetch_sub(1, Ordering::AcqRel) == CLOSED + 1 {
            // Only at zero of a closed counter: a connection that stays open has no waiter to wake.
            self.drained.notify_one();
        }
    }

    /// Since when the connection is unused. `None` while it is in use.
    pub(crate) fn idle_since(&self) -> Option<Instant> {
        let is_unused = self.count.load(Ordering::Acquire) == 0;
        let last_finished = Duration::from_millis(self.last_finished_ms.load(Ordering::Relaxed));
        is_unused.then(|| self.created + last_finished)
    }
}

impl Drop for InFlightGuard<'_> {
    fn drop(&mut self) {
        if self.0.has_idle_timeout {
            let since = u64::try_from(self.0.created.elapsed().as_millis()).unwrap_or(u64::MAX);
            // The maximum, because two users may store their times in another order than
            // they took them.
            self.0.last_finished_ms.fetch_max(since, Ordering::Relaxed);
        }
        // After the time is stored: at count zero `idle_since` must not read an older time and
        // close too early.
        self.0.decrement();
    }
}

/// Access to a server's client, for requests that the manager has no method for. The connection counts as in use
/// until this is dropped.
#[derive(Debug)]
pub struct ClientGuard {
    active: Arc<ActiveClient>,
}

impl ClientGuard {
    /// `None` if the connection is about to be closed.
    pub(crate) fn new(active: &Arc<ActiveClient>) -> Option<Self> {
        // The guard would borrow from the `Arc` that is stored beside it, so it is forgotten, and `drop` releases it.
        std::mem::forget(active.in_flight.acquire()?);
        Some(Self { active: Arc::clone(active) })
    }
}

impl Deref for ClientGuard {
    type Target = McpClient;

    fn deref(&self) -> &McpClient {
        &self.active.client
    }
}

impl Drop for ClientGuard {
    fn drop(&mut self) {
        // The guard that `new` forgot.
        drop(InFlightGuard(&self.active.in_flight));
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{advance, timeout};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn idle_time_starts_when_the_last_user_finishes() {
        let in_flight = InFlight::new(Some(Duration::from_mins(1)));
        let start = Instant::now();
        assert_eq!(in_flight.idle_since(), Some(start));
        let guard = in_flight.acquire().unwrap();
        assert_eq!(in_flight.idle_since(), None);
        advance(Duration::from_secs(3)).await;
        drop(guard);
        assert_eq!(in_flight.idle_since(), Some(start + Duration::from_secs(3)));
    }

    #[tokio::test]
    async fn closed_counter_admits_no_user_and_used_counter_is_not_closed() {
        let in_flight = InFlight::new(None);
        let guard = in_flight.acquire().unwrap();
        assert!(!in_flight.close_if_unused());
        drop(guard);
        assert!(in_flight.close_if_unused());
        assert!(in_flight.acquire().is_none());
        assert!(in_flight.acquire().is_none());
        assert!(!in_flight.close_if_unused());
    }

    #[tokio::test(start_paused = true)]
    async fn drain_waits_for_all_users_and_admits_no_other() {
        let in_flight = InFlight::new(None);
        let (first, second) = (in_flight.acquire().unwrap(), in_flight.acquire().unwrap());
        let mut drained = std::pin::pin!(in_flight.drain());
        let soon = Duration::from_secs(1);
        assert!(timeout(soon, &mut drained).await.is_err());
        assert!(in_flight.acquire().is_none());
        drop(first);
        assert!(timeout(soon, &mut drained).await.is_err());
        drop(second);
        timeout(soon, drained).await.unwrap();
        assert!(in_flight.acquire().is_none());
        timeout(soon, in_flight.drain()).await.unwrap();
    }
}
