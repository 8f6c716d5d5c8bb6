//! Times of day as text, and how long ago something was. All in UTC, so that it needs no tables of zones.

use std::time::{SystemTime, UNIX_EPOCH};

const DAY: u64 = 24 * 60 * 60;

/// Now, in milliseconds since 1970.
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// A time in milliseconds since 1970, as in `2026-07-28T12:00:00Z`.
pub(crate) fn utc(at: u64) -> String {
    let seconds = at / 1000;
    let (year, month, day) = date(seconds / DAY);
    let (hour, minute, second) = (seconds % DAY / 3600, seconds % 3600 / 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// The date of a day since 1970, counted in years that begin in March, so that leap days come last.
fn date(day: u64) -> (u64, u64, u64) {
    let shifted = day + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

/// How long ago something was, in one unit.
pub(crate) fn ago(at: u64, now: u64) -> String {
    let seconds = now.saturating_sub(at) / 1000;
    match seconds {
        0..60 => "just now".to_owned(),
        60..3600 => format!("{} min ago", seconds / 60),
        3600..DAY => format!("{} h ago", seconds / 3600),
        _ => format!("{} days ago", seconds / DAY),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(at: u64, expected: &str) {
        assert_eq!(utc(at), expected);
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        check(0, "1970-01-01T00:00:00Z");
        check(951_782_400_000, "2000-02-29T00:00:00Z");
        check(951_868_799_999, "2000-02-29T23:59:59Z");
        check(1_735_689_600_000, "2025-01-01T00:00:00Z");
        check(4_107_542_399_000, "2100-02-28T23:59:59Z");
        check(4_107_542_400_000, "2100-03-01T00:00:00Z");
    }

    #[test]
    fn how_long_ago_is_told_in_one_unit() {
        for (seconds, expected) in
            [(0, "just now"), (61, "1 min ago"), (7300, "2 h ago"), (200_000, "2 days ago")]
        {
            assert_eq!(ago(0, seconds * 1000), expected);
        }
        assert_eq!(ago(5000, 0), "just now");
    }
}
