//! Clock, percentiles and milliseconds.

use std::time::{Duration, Instant};

/// Median, 99th percentile and maximum.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Percentiles {
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
    pub(crate) max: Duration,
}

impl Percentiles {
    /// All zero for an empty list.
    pub(crate) fn from_times(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        let rank = |share: usize| {
            let index = (times.len() * share).div_ceil(100).saturating_sub(1);
            times.get(index).copied().unwrap_or_default()
        };
        Self { p50: rank(50), p99: rank(99), max: rank(100) }
    }
}

/// Converts to milliseconds with three decimals.
pub(crate) fn millis(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

#[expect(clippy::disallowed_methods, reason = "a gate measures real time, never a paused clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(times: impl IntoIterator<Item = u64>, [p50, p99, max]: [u64; 3]) {
        let ms = Duration::from_millis;
        let spread = Percentiles { p50: ms(p50), p99: ms(p99), max: ms(max) };
        assert_eq!(Percentiles::from_times(times.into_iter().map(ms).collect()), spread);
    }

    #[test]
    fn percentiles_are_measured_times() {
        check([], [0, 0, 0]);
        check([7], [7, 7, 7]);
        check([3, 1, 2], [2, 3, 3]);
        check(1..=100, [50, 99, 100]);
        check(1..=200, [100, 198, 200]);
        check((0..1000).rev(), [499, 989, 999]);
    }

    #[test]
    fn figures_have_three_decimals() {
        assert_eq!(millis(Duration::from_nanos(1_234_567)).to_string(), "1.235");
        assert_eq!(millis(Duration::from_secs(1)).to_string(), "1000");
    }
}
