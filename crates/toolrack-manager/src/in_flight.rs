//! How much one connection is in use, so that an idle one can be ended and a busy one never is.
//!
//! **Invariant:** once sealed, nobody enters. For being idle it is sealed only while nobody is inside.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

const SEALED: u64 = 1 << 63;

/// Who uses a connection.
#[derive(Debug)]
pub(crate) struct Usage {
    /// The number of users, and [`SEALED`].
    inside: AtomicU64,
    began: Instant,
    /// Milliseconds since `began`.
    last_left: AtomicU64,
    clock: Clock,
    /// Rung by the last one to leave what is sealed.
    empty: Notify,
}

/// Whether anybody asks how long a connection has been unused. If not, nobody looks at the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Clock {
    Needed,
    Unneeded,
}

/// A user of a connection. Leaves when dropped.
#[derive(Debug)]
pub(crate) struct Visit<'a>(&'a Usage);

impl Usage {
    pub(crate) fn new(clock: Clock) -> Self {
        let (inside, last_left) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { inside, began: Instant::now(), last_left, clock, empty: Notify::new() }
    }

    /// Begins to use the connection, unless it is about to be ended.
    pub(crate) fn enter(&self) -> Option<Visit<'_>> {
        let before = self.inside.fetch_add(1, Ordering::AcqRel);
        if before & SEALED != 0 {
            self.step_out();
            return None;
        }
        Some(Visit(self))
    }

    /// Ends a use that [`enter`](Self::enter) has begun and whose visit was forgotten.
    pub(crate) fn leave(&self) {
        drop(Visit(self));
    }

    /// Keeps everybody out, if nobody is inside. `true` if it is so.
    pub(crate) fn seal(&self) -> bool {
        self.inside.compare_exchange(0, SEALED, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Keeps everybody out, and waits until those who are inside have left.
    pub(crate) async fn vacate(&self) {
        self.inside.fetch_or(SEALED, Ordering::AcqRel);
        while self.inside.load(Ordering::Acquire) != SEALED {
            self.empty.notified().await;
        }
    }

    fn step_out(&self) {
        if self.inside.fetch_sub(1, Ordering::AcqRel) == SEALED + 1 {
            self.empty.notify_one();
        }
    }

    /// Since when nobody has used it. `None` while somebody does.
    pub(crate) fn unused_since(&self) -> Option<Instant> {
        let is_empty = self.inside.load(Ordering::Acquire) == 0;
        let last_left = Duration::from_millis(self.last_left.load(Ordering::Relaxed));
        is_empty.then(|| self.began + last_left)
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        if self.0.clock == Clock::Needed {
            let since = u64::try_from(self.0.began.elapsed().as_millis()).unwrap_or(u64::MAX);
            self.0.last_left.fetch_max(since, Ordering::Relaxed);
        }
        self.0.step_out();
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{advance, timeout};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_unused_from_when_the_last_user_left() {
        let usage = Usage::new(Clock::Needed);
        let start = Instant::now();
        assert_eq!(usage.unused_since(), Some(start));
        let visit = usage.enter().unwrap();
        assert_eq!(usage.unused_since(), None);
        advance(Duration::from_secs(3)).await;
        drop(visit);
        assert_eq!(usage.unused_since(), Some(start + Duration::from_secs(3)));
    }

    #[tokio::test]
    async fn nobody_enters_what_is_sealed_and_nobody_seals_what_is_entered() {
        let usage = Usage::new(Clock::Unneeded);
        let visit = usage.enter().unwrap();
        assert!(!usage.seal());
        drop(visit);
        assert!(usage.seal());
        assert!(usage.enter().is_none());
        assert!(usage.enter().is_none());
        assert!(!usage.seal());
    }

    #[tokio::test(start_paused = true)]
    async fn those_who_are_inside_are_waited_for_and_nobody_else_comes() {
        let usage = Usage::new(Clock::Unneeded);
        let (first, second) = (usage.enter().unwrap(), usage.enter().unwrap());
        let mut vacated = std::pin::pin!(usage.vacate());
        let soon = Duration::from_secs(1);
        assert!(timeout(soon, &mut vacated).await.is_err());
        assert!(usage.enter().is_none());
        drop(first);
        assert!(timeout(soon, &mut vacated).await.is_err());
        drop(second);
        timeout(soon, vacated).await.unwrap();
        assert!(usage.enter().is_none());
        timeout(soon, usage.vacate()).await.unwrap();
    }
}
