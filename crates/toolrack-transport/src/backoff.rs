//! How long to wait before trying again something that broke.
//!
//! The one policy for everything that is tried again: processes, streams, sessions, discovery. Nothing here
//! knows a clock or a random source: moments and chance come from outside.
//!
//! **Invariant:** at most ten tries fall into any thirty seconds that begin with the first, however short a
//! try is.

use std::time::Duration;

use tokio::time::Instant;

const FIRST: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_mins(1);
/// Only what has held for so long has healed.
const HEALED: Duration = Duration::from_mins(2);

/// What is remembered between tries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Backoff {
    n_failures: u32,
    since: Option<Instant>,
}

impl Backoff {
    /// It works as of `now`.
    pub fn worked(&mut self, now: Instant) {
        self.since.get_or_insert(now);
    }

    /// It broke, or never came to work. Gives the wait before the next try, for a `chance` between 0
    /// and 1.
    pub fn failed(&mut self, now: Instant, chance: f64) -> Duration {
        let held = self.since.take().map(|since| now.saturating_duration_since(since));
        if held.is_some_and(|held| held >= HEALED) {
            self.n_failures = 0;
        }
        let doubled = FIRST.saturating_mul(2_u32.saturating_pow(self.n_failures));
        self.n_failures = self.n_failures.saturating_add(1);
        doubled.min(LONGEST).mul_f64(0.5 + chance.clamp(0.0, 1.0) / 2.0)
    }

    /// Somebody wants it now: what went before is forgotten.
    pub fn reset(&mut self) {
        *self = Self::default();
    }

    /// Failures since it last healed.
    pub fn n_failures(&self) -> u32 {
        self.n_failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn waits_double_up_to_a_minute() {
        let now = Instant::now();
        let mut backoff = Backoff::default();
        let waits: Vec<u128> = (0..11).map(|_| backoff.failed(now, 1.0).as_millis()).collect();
        let expected = [250, 500, 1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000, 60_000];
        assert_eq!(waits, expected);
        backoff.reset();
        assert_eq!(backoff.failed(now, 0.0), MS(125));
        let mut endless = Backoff { n_failures: u32::MAX, since: None };
        assert_eq!(endless.failed(now, 0.0), MS(30_000));
    }

    #[test]
    fn only_what_held_for_two_minutes_has_healed() {
        let start = Instant::now();
        let mut backoff = Backoff::default();
        backoff.failed(start, 1.0);
        backoff.worked(start);
        backoff.worked(start + MS(50_000));
        assert_eq!(backoff.failed(start + MS(119_999), 1.0), MS(500));
        backoff.worked(start + MS(200_000));
        assert_eq!(backoff.failed(start + MS(320_000), 1.0), MS(250));
    }

    /// Goal G07, at the most unfavorable chance and with tries that take no time at all.
    #[test]
    fn ten_tries_at_most_fall_into_the_first_thirty_seconds() {
        let start = Instant::now();
        let mut backoff = Backoff::default();
        let mut now = start;
        let mut n_tries = 0;
        while now - start < MS(30_000) {
            n_tries += 1;
            now += backoff.failed(now, 0.0);
        }
        assert_eq!(n_tries, 8);
    }
}
