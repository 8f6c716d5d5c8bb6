//! The one place that reads the clock.

use std::time::Instant;

#[expect(
    clippy::disallowed_methods,
    reason = "a benchmark measures real time, never a paused clock"
)]
pub(crate) fn now() -> Instant {
    Instant::now()
}
