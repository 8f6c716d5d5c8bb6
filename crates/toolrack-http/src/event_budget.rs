//! Event budget: how fast the events of one stream are read while none of them answers a request.
//!
//! A server that floods a stream is read at the pace of the budget, and then waits for us as TCP makes it wait. The
//! stdio transport slows its reads down in the same way. The data of an event costs nothing, because it is limited by
//! its size; comments, unknown fields and the rest of an oversize event are charged by the byte, so that no part of a stream
//! is read without a limit.

use std::time::Duration;

use tokio::time::{Instant, sleep};

/// Events that are read at once, and events per second after that.
pub(crate) const EVENTS_PER_SECOND: u32 = 16_384;

/// Bytes that are not the data of an event, such as comments, and count as one event.
const BYTES_PER_EVENT: u32 = 64;

/// A chunk is parsed in slices of this size, with the pauses between them: a chunk that was compressed can hold millions
/// of events.
pub(crate) const SLICE_BYTES: usize = 64 << 10;

/// The budget of one stream.
#[derive(Debug)]
pub(crate) struct EventBudget {
    /// When the budget is full again: the further ahead, the less is left.
    full_at: Instant,
}

/// What a slice of a stream contained.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SliceContent {
    pub(crate) n_events: usize,
    pub(crate) n_responses: usize,
    /// Bytes that are not the data of an event.
    pub(crate) other_bytes: usize,
}

impl EventBudget {
    pub(crate) fn new(now: Instant) -> Self {
        Self { full_at: now }
    }

    /// Spends the events of a slice, and returns how long to wait before the next one.
    pub(crate) fn spend(&mut self, now: Instant, slice: SliceContent) -> Duration {
        // A busy server that also responds is not a flood.
        if slice.n_responses > 0 {
            self.full_at = now;
            return Duration::ZERO;
        }
        // An event pays for its own `id` and `event` fields. In bytes, because a chunk may be smaller than an event.
        let saturated = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let event_bytes = saturated(slice.n_events).saturating_mul(BYTES_PER_EVENT);
        let n_bytes = saturated(slice.other_bytes).max(event_bytes);
        let cost = Duration::from_secs(1) * n_bytes / (EVENTS_PER_SECOND * BYTES_PER_EVENT);
        self.full_at = self.full_at.max(now) + cost;
        self.full_at.saturating_duration_since(now + Duration::from_secs(1))
    }
}

/// Waits, if there is a time to wait.
pub(crate) async fn pause(time: Duration) {
    if !time.is_zero() {
        sleep(time).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: usize = EVENTS_PER_SECOND as usize;

    fn events(n_events: usize) -> SliceContent {
        SliceContent { n_events, ..SliceContent::default() }
    }

    fn other_bytes(other_bytes: usize) -> SliceContent {
        SliceContent { other_bytes, ..SliceContent::default() }
    }

    /// Spends slices at these times, in milliseconds, and compares the pauses.
    #[track_caller]
    fn check(slices: &[(u64, SliceContent)], expected: &[u64]) {
        let started = Instant::now();
        let mut budget = EventBudget::new(started);
        let pauses: Vec<u64> = slices
            .iter()
            .map(|(at, slice)| budget.spend(started + Duration::from_millis(*at), *slice))
            .map(|pause| u64::try_from(pause.as_millis()).unwrap())
            .collect();
        assert_eq!(pauses, expected);
    }

    #[test]
    fn flood_is_read_at_the_pace_of_the_budget() {
        check(
            &[(0, events(SECOND)), (0, events(SECOND / 2)), (500, events(SECOND))],
            &[0, 500, 1000],
        );
    }

    #[test]
    fn budget_is_refilled_by_time_and_by_responses() {
        check(&[(0, events(SECOND)), (1000, events(SECOND)), (9000, events(SECOND))], &[0, 0, 0]);
        let response = SliceContent { n_responses: 1, ..events(SECOND) };
        check(&[(0, events(SECOND)), (0, response), (0, events(SECOND))], &[0, 0, 0]);
    }

    #[test]
    fn bytes_that_are_not_data_count_beside_events() {
        let second = SECOND * BYTES_PER_EVENT as usize;
        check(&[(0, other_bytes(2 * second))], &[1000]);
        // One event does not make the rest of its slice free, but pays for its own fields.
        check(&[(0, SliceContent { other_bytes: 2 * second, ..events(1) })], &[1000]);
        check(&[(0, SliceContent { other_bytes: second, ..events(SECOND) })], &[0]);
        // Chunks that are smaller than an event are not free.
        let mut budget = EventBudget::new(Instant::now());
        let now = Instant::now();
        let waits = (0..2 * second / 32).map(|_| budget.spend(now, other_bytes(32)));
        assert!(waits.max() >= Some(Duration::from_millis(900)));
    }

    #[test]
    fn data_of_events_costs_nothing() {
        check(&[(0, SliceContent::default()), (0, SliceContent::default())], &[0, 0]);
    }
}
