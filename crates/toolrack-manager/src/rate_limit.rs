//! Token-bucket rate limiter for the events of one server.
//!
//! All subscribers share one bounded queue. Without a limit, a server that floods it would push out the events of
//! other servers, such as the ends of their calls.

use parking_lot::Mutex;
use tokio::time::Instant;

/// Size of the bucket.
const BURST: u32 = 512;
/// Tokens added per second.
const PER_SECOND: u32 = 512;

/// Token bucket of one server. Counts the events that it drops.
#[derive(Debug)]
pub(crate) struct RateLimiter(Mutex<Bucket>);

#[derive(Debug)]
struct Bucket {
    tokens: u32,
    refilled: Instant,
    n_dropped: u64,
}

impl RateLimiter {
    pub(crate) fn new(now: Instant) -> Self {
        Self(Mutex::new(Bucket { tokens: BURST, refilled: now, n_dropped: 0 }))
    }

    /// Admits one event, and returns how many were dropped before it. `None` drops this one too.
    pub(crate) fn admit(&self, now: Instant) -> Option<u64> {
        // The bucket is consistent after each statement, so a poisoned lock is harmless.
        let mut bucket = self.0.lock();
        let n_new = now.duration_since(bucket.refilled).as_millis() * u128::from(PER_SECOND) / 1000;
        // Less than one token: the time is kept, or frequent events would never refill the bucket.
        if n_new > 0 {
            // After months without an event the number does not fit, and the bucket is full anyway.
            let n_new = u32::try_from(n_new).unwrap_or(BURST);
            bucket.tokens = bucket.tokens.saturating_add(n_new).min(BURST);
            bucket.refilled = now;
        }
        if bucket.tokens == 0 {
            bucket.n_dropped += 1;
            return None;
        }
        bucket.tokens -= 1;
        Some(std::mem::take(&mut bucket.n_dropped))
    }

    /// How many events were dropped since the last event or call of this.
    pub(crate) fn take_dropped(&self) -> u64 {
        std::mem::take(&mut self.0.lock().n_dropped)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Offers `n_offered` events at `now`, and expects (admitted, dropped).
    #[track_caller]
    fn check(limiter: &RateLimiter, now: Instant, n_offered: u32, expected: (usize, u64)) {
        let n_admitted = (0..n_offered).filter(|_| limiter.admit(now).is_some()).count();
        assert_eq!((n_admitted, limiter.take_dropped()), expected);
    }

    #[test]
    fn burst_is_admitted_and_flood_is_dropped() {
        let start = Instant::now();
        let limiter = RateLimiter::new(start);
        check(&limiter, start, 10, (10, 0));
        check(&limiter, start, 100_000, (502, 99_498));
        check(&limiter, start + Duration::from_millis(1), 10, (0, 10));
        check(&limiter, start + Duration::from_millis(501), 1000, (256, 744));
        check(&limiter, start + Duration::from_hours(1), 513, (512, 1));
    }

    #[test]
    fn first_event_after_a_flood_has_the_dropped_count() {
        let start = Instant::now();
        let limiter = RateLimiter::new(start);
        let n_admitted: u32 = (0..600).map(|_| u32::from(limiter.admit(start).is_some())).sum();
        assert_eq!(n_admitted, BURST);
        let later = start + Duration::from_secs(1);
        assert_eq!([limiter.admit(later), limiter.admit(later)], [Some(88), Some(0)]);
    }
}
