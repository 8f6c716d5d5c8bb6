//! Exponential backoff with jitter.
//!
//! The retry delay for everything that reconnects: processes, streams, sessions, discovery. The caller provides the time
//! and the random number, so this module needs neither a clock nor a random source.
//!
//! **Invariant:** at most ten attempts fall into the thirty seconds after the first one, however short an attempt is.

use std::time::Duration;

use tokio::time::Instant;

const INITIAL_DELAY: Duration = Duration::from_millis(250);
const MAX_DELAY: Duration = Duration::from_mins(1);
/// A connection that was up for this long resets the failure count.
const STABLE_AFTER: Duration = Duration::from_mins(2);

/// Backoff state between attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Backoff {
    n_failures: u32,
    up_since: Option<Instant>,
}

impl Backoff {
    /// Records that the connection is up at `now`. A repeated call keeps the first time.
    pub fn record_success(&mut self, now: Instant) {
        self.up_since.get_or_insert(now);
    }

    /// Records a failed attempt or a lost connection, and returns the delay before the next attempt. `random` is a
    /// number between 0 and 1; the jitter takes up to half of the delay.
    pub fn record_failure(&mut self, now: Instant, random: f64) -> Duration {
        let uptime = self.up_since.take().map(|since| now.saturating_duration_since(since));
        // A short success does not reset the count, or a crash loop would restart at full speed.
        if uptime.is_some_and(|uptime| uptime >= STABLE_AFTER) {
            self.n_failures = 0;
        }
        let doubled = INITIAL_DELAY.saturating_mul(2_u32.saturating_pow(self.n_failures));
        self.n_failures = self.n_failures.saturating_add(1);
        doubled.min(MAX_DELAY).mul_f64(0.5 + random.clamp(0.0, 1.0) / 2.0)
    }

    /// Resets the failure count.
    pub fn reset(&mut self) {
        *self = Self::default();
    }

    /// The number of failures since the last reset.
    pub fn n_failures(&self) -> u32 {
        self.n_failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn delays_double_up_to_a_minute() {
        let now = Instant::now();
        let mut backoff = Backoff::default();
        let delays: Vec<u128> =
            (0..11).map(|_| backoff.record_failure(now, 1.0).as_millis()).collect();
        let expected = [250, 500, 1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000, 60_000];
        assert_eq!(delays, expected);
        backoff.reset();
        assert_eq!(backoff.record_failure(now, 0.0), MS(125));
        let mut saturated = Backoff { n_failures: u32::MAX, up_since: None };
        assert_eq!(saturated.record_failure(now, 0.0), MS(30_000));
    }

    #[test]
    fn two_stable_minutes_reset_the_failure_count() {
        let start = Instant::now();
        let mut backoff = Backoff::default();
        backoff.record_failure(start, 1.0);
        backoff.record_success(start);
        backoff.record_success(start + MS(50_000));
        assert_eq!(backoff.record_failure(start + MS(119_999), 1.0), MS(500));
        backoff.record_success(start + MS(200_000));
        assert_eq!(backoff.record_failure(start + MS(320_000), 1.0), MS(250));
    }

    /// Goal G07, with the shortest delays and with attempts that take no time.
    #[test]
    fn at_most_ten_attempts_in_the_first_thirty_seconds() {
        let start = Instant::now();
        let mut backoff = Backoff::default();
        let mut now = start;
        let mut n_attempts = 0;
        while now - start < MS(30_000) {
            n_attempts += 1;
            now += backoff.record_failure(now, 0.0);
        }
        assert_eq!(n_attempts, 8);
    }
}
