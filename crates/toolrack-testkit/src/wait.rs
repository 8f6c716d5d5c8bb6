//! Polling helpers for tests, and reports of skipped tests.

use std::io::{self, Write};
use std::thread;
use std::time::Duration;

use crate::harness::now;

/// Interval between two polls.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Waits until `fact` is true.
///
/// # Panics
///
/// When it is still false after `within`; the message contains `what`.
pub fn eventually(within: Duration, what: &str, fact: impl FnMut() -> bool) {
    assert!(poll(within, fact), "not within {within:?}: {what}");
}

/// Waits until `fact` is true, in any async runtime: `sleep` is that runtime's.
///
/// Counts its pauses instead of reading the clock, so it also works with a paused clock.
///
/// # Panics
///
/// When it is still false after `within`; the message contains `what`.
///
/// # Cancel safety
///
/// No state is held between two polls, so the future may be dropped at any time.
pub async fn eventually_async(
    within: Duration,
    what: &str,
    sleep: impl AsyncFn(Duration),
    mut fact: impl AsyncFnMut() -> bool,
) {
    let mut waited = Duration::ZERO;
    while !fact().await {
        assert!(waited < within, "not within {within:?}: {what}");
        sleep(POLL_INTERVAL).await;
        waited += POLL_INTERVAL;
    }
}

/// Reports a skipped test on stderr, past the output capture of the test harness.
pub fn skipped(test: &str, reason: &str) {
    let line = format!("SKIPPED: {test}: {reason}\n");
    // Stderr may be closed.
    io::stderr().write_all(line.as_bytes()).unwrap_or_default();
}

/// Polls until `fact` is true or the time is up; the last poll is never before the deadline.
pub(crate) fn poll(within: Duration, mut fact: impl FnMut() -> bool) -> bool {
    let deadline = now() + within;
    loop {
        let last = now() >= deadline;
        if fact() {
            return true;
        }
        if last {
            return false;
        }
        thread::sleep(POLL_INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[test]
    fn eventually_waits_until_the_fact_is_true() {
        let mut n_polls = 0;
        eventually(Duration::from_secs(5), "the third look", || {
            n_polls += 1;
            n_polls == 3
        });
        assert_eq!(n_polls, 3);
    }

    #[test]
    #[should_panic(expected = "not within 10ms: pigs fly")]
    fn eventually_panics_with_the_name_of_the_fact() {
        eventually(Duration::from_millis(10), "pigs fly", || false);
    }

    #[test]
    fn eventually_async_counts_its_pauses() {
        let slept = Cell::new(Duration::ZERO);
        let waiting = eventually_async(
            Duration::from_hours(1),
            "half an hour",
            async |pause| slept.set(slept.get() + pause),
            async || slept.get() >= Duration::from_mins(30),
        );
        let mut context = Context::from_waker(Waker::noop());
        assert_eq!(pin!(waiting).as_mut().poll(&mut context), Poll::Ready(()));
        assert_eq!(slept.get(), Duration::from_mins(30));
    }
}
