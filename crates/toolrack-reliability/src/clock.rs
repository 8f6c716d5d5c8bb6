//! The one place that reads the clock where there is no runtime.

use std::time::Instant;

#[expect(clippy::disallowed_methods, reason = "a gate measures real time, never a paused clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}
