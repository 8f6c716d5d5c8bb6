//! When to fetch a list again after the server has said that it changed.
//!
//! Changes are gathered for a moment, fetches keep a distance, and only one runs at a time. Nothing
//! here knows a clock: moments come from outside.
//!
//! **Invariant:** every change is followed by a fetch that began after it.

use std::time::Duration;

use tokio::time::Instant;

/// How long changes are gathered before a fetch.
const GATHER: Duration = Duration::from_millis(200);
/// The least time between the beginnings of two fetches.
const DISTANCE: Duration = Duration::from_secs(2);

/// What is known about one list.
#[derive(Debug, Default)]
pub(crate) struct Refresh {
    due: Option<Instant>,
    last: Option<Instant>,
    running: bool,
    /// The list changed while a fetch was running, so that fetch may have missed it.
    again: bool,
}

impl Refresh {
    /// The server said that the list changed.
    pub(crate) fn noticed(&mut self, now: Instant) {
        if self.running {
            self.again = true;
            return;
        }
        let earliest = self.last.map_or(now, |last| last + DISTANCE);
        self.due.get_or_insert((now + GATHER).max(earliest));
    }

    /// When the next fetch should begin.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// A fetch begins.
    pub(crate) fn began(&mut self, now: Instant) {
        self.due = None;
        self.last = Some(now);
        self.running = true;
    }

    /// The fetch has ended, however it went.
    pub(crate) fn ended(&mut self, now: Instant) {
        self.running = false;
        if std::mem::take(&mut self.again) {
            self.noticed(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays changes at the given times against fetches that take `fetch` each, and says when the
    /// fetches began. All in milliseconds.
    #[track_caller]
    fn check(changes: &[u64], fetch: u64, expected: &[u64]) {
        const END: u64 = 20_000;
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let mut refresh = Refresh::default();
        let mut began = Vec::new();
        let mut done = None;
        for now in 0..END {
            if done == Some(now) {
                refresh.ended(at(now));
            }
            if changes.contains(&now) {
                refresh.noticed(at(now));
            }
            if refresh.due().is_some_and(|due| due <= at(now)) {
                refresh.began(at(now));
                began.push(now);
                done = Some(now + fetch);
            }
        }
        assert_eq!(began, expected, "{changes:?} {fetch}");
    }

    #[test]
    fn changes_are_gathered_and_fetches_keep_their_distance() {
        check(&[], 10, &[]);
        check(&[0], 10, &[200]);
        check(&[0, 50, 199], 10, &[200]);
        check(&[0, 300], 10, &[200, 2200]);
        check(&[0, 300, 5000], 10, &[200, 2200, 5200]);
    }

    #[test]
    fn a_change_during_a_fetch_is_not_lost() {
        check(&[0, 205], 10, &[200, 2200]);
        check(&[0, 250, 260], 3000, &[200, 3400]);
    }

    #[test]
    fn a_flood_of_changes_is_served_steadily() {
        let flood: Vec<u64> = (0..6000).step_by(7).collect();
        check(&flood, 10, &[200, 2200, 4200, 6200]);
    }
}
