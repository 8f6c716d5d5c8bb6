//! How much of what a server says is told to listeners: all of it, unless it floods.
//!
//! Listeners share one queue with a bound. Without this, a server that floods would push out of it what happened to
//! others, such as the ends of their calls.

use std::sync::{Mutex, PoisonError};

use tokio::time::Instant;

/// So much is told at once.
const BURST: u32 = 512;
/// So much is told in a second that goes on.
const PER_SECOND: u32 = 512;

/// How fast one server may talk. What is too much is counted.
#[derive(Debug)]
pub(crate) struct Pace(Mutex<State>);

#[derive(Debug)]
struct State {
    n_free: u32,
    since: Instant,
    n_left_out: u64,
}

impl Pace {
    pub(crate) fn new(now: Instant) -> Self {
        Self(Mutex::new(State { n_free: BURST, since: now, n_left_out: 0 }))
    }

    /// Whether one more thing is told, and if so, how many were left out before it.
    pub(crate) fn admit(&self, now: Instant) -> Option<u64> {
        // Consistent between statements, so a panic elsewhere cannot have torn it.
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.refill(now);
        if state.n_free == 0 {
            state.n_left_out += 1;
            return None;
        }
        state.n_free -= 1;
        Some(std::mem::take(&mut state.n_left_out))
    }

    /// How many were left out since somebody asked.
    pub(crate) fn left_out(&self) -> u64 {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner).n_left_out)
    }
}

impl State {
    fn refill(&mut self, now: Instant) {
        let n_new = now.duration_since(self.since).as_millis() * u128::from(PER_SECOND) / 1000;
        if n_new > 0 {
            let n_new = u32::try_from(n_new).unwrap_or(BURST);
            self.n_free = self.n_free.saturating_add(n_new).min(BURST);
            self.since = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// How many of so many are told at a moment, and what is left out then.
    #[track_caller]
    fn check(pace: &Pace, now: Instant, n_said: u32, expected: (usize, u64)) {
        let n_told = (0..n_said).filter(|_| pace.admit(now).is_some()).count();
        assert_eq!((n_told, pace.left_out()), expected);
    }

    #[test]
    fn a_burst_is_told_and_a_flood_is_cut() {
        let begun = Instant::now();
        let pace = Pace::new(begun);
        check(&pace, begun, 10, (10, 0));
        check(&pace, begun, 100_000, (502, 99_498));
        check(&pace, begun + Duration::from_millis(1), 10, (0, 10));
        check(&pace, begun + Duration::from_millis(501), 1000, (256, 744));
        check(&pace, begun + Duration::from_hours(1), 513, (512, 1));
    }

    #[test]
    fn what_comes_after_a_flood_says_how_much_was_left_out() {
        let begun = Instant::now();
        let pace = Pace::new(begun);
        let told: u32 = (0..600).map(|_| u32::from(pace.admit(begun).is_some())).sum();
        assert_eq!(told, BURST);
        let later = begun + Duration::from_secs(1);
        assert_eq!([pace.admit(later), pace.admit(later)], [Some(88), Some(0)]);
    }
}
