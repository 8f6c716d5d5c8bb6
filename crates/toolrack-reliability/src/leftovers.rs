//! Waiting until nobody is left, and telling who is.

use std::thread;
use std::time::{Duration, Instant};

use toolrack_testkit::{Marker, Process};

use crate::clock::now;
use crate::process::end_marked;

/// Everything has to be gone by then.
pub(crate) const CLEAN_LIMIT: Duration = Duration::from_secs(1);

/// How often the processes are counted.
pub(crate) const LOOK: Duration = Duration::from_millis(10);

/// A process that is just becoming another program can be overlooked, so an empty count is repeated.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// How long it took until nobody was left, or how many are left when the time is over.
pub(crate) fn gone_since(killed: Instant, n_left: &dyn Fn() -> usize) -> Result<Duration, usize> {
    loop {
        let looked = now();
        let left = n_left();
        if left == 0 {
            thread::sleep(LOOK_AGAIN);
            if n_left() == 0 {
                return Ok(looked.saturating_duration_since(killed));
            }
        } else if killed.elapsed() > CLEAN_LIMIT {
            return Err(left);
        }
        thread::sleep(LOOK);
    }
}

/// How long it took until nobody carried the marker. Whoever still does when the time is over is ended, and told.
pub(crate) fn cleaned(marker: &Marker, killed: Instant) -> Result<Duration, Vec<Process>> {
    gone_since(killed, &|| marker.survivors().len()).map_err(|_n_left| end_marked(marker))
}

/// Who was left, for people.
pub(crate) fn described(left: &[Process]) -> String {
    let lines: Vec<String> = left
        .iter()
        .map(|left| format!("{} {} {}", left.pid, left.state, left.command_line))
        .collect();
    format!("left after {CLEAN_LIMIT:?}: {}", lines.join(" | "))
}
