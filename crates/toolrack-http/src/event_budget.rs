//! Event budget: how fast the events of one stream are read while none of them answers a request.
//!
//! A server that floods a stream is read at the pace of the budget, and then waits for us as TCP makes it wait. The
//! stdio transport slows its reads down in the same way.

use std::time::Duration;

use tokio::time::{Instant, sleep};

/// Events that are read at once, and events per second after that.
pub(crate) const EVENTS_PER_SECOND: u32 = 16_384;

/// Bytes outside of an event, such as comments, that count as one event.
const BYTES_PER_EVENT: usize = 64;

/// The budget of one stream.
#[derive(Debug)]
pub(crate) struct EventBudget {
    /// When the budget is full again: the further ahead, the less is left.
    full_at: Instant,
}

/// What a chunk of a stream contained.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ChunkContent {
    pub(crate) n_bytes: usize,
    pub(crate) n_events: usize,
    pub(crate) n_responses: usize,
    /// Whether the chunk ends within an event.
    pub(crate) is_partial: bool,
}

impl EventBudget {
    pub(crate) fn new(now: Instant) -> Self {
        Self { full_at: now }
    }

    /// Spends the events of a chunk, and returns how long to wait before the next read.
    pub(crate) fn spend(&mut self, now: Instant, chunk: ChunkContent) -> Duration {
        // A busy server that also responds is not a flood.
        if chunk.n_responses > 0 {
            self.full_at = now;
            return Duration::ZERO;
        }
        // The pieces of a large event cost nothing: it is limited by its size.
        let n_fillers = if chunk.is_partial { 0 } else { chunk.n_bytes / BYTES_PER_EVENT };
        let n_events = if chunk.n_events == 0 { n_fillers } else { chunk.n_events };
        let n_events = u32::try_from(n_events).unwrap_or(u32::MAX);
        let cost = Duration::from_secs(1) * n_events / EVENTS_PER_SECOND;
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

    fn events(n_events: usize) -> ChunkContent {
        ChunkContent { n_bytes: 100 * n_events, n_events, ..ChunkContent::default() }
    }

    /// Spends chunks at these times, in milliseconds, and compares the pauses.
    #[track_caller]
    fn check(chunks: &[(u64, ChunkContent)], expected: &[u64]) {
        let started = Instant::now();
        let mut budget = EventBudget::new(started);
        let pauses: Vec<u64> = chunks
            .iter()
            .map(|(at, chunk)| budget.spend(started + Duration::from_millis(*at), *chunk))
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
        let response = ChunkContent { n_responses: 1, ..events(SECOND) };
        check(&[(0, events(SECOND)), (0, response), (0, events(SECOND))], &[0, 0, 0]);
    }

    #[test]
    fn comments_count_and_pieces_of_an_event_do_not() {
        let n_bytes = 2 * SECOND * BYTES_PER_EVENT;
        check(&[(0, ChunkContent { n_bytes, ..ChunkContent::default() })], &[1000]);
        check(&[(0, ChunkContent { n_bytes, is_partial: true, ..ChunkContent::default() })], &[0]);
    }
}
