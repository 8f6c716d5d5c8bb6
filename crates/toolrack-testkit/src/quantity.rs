//! Parsers for sizes, durations and counts on the command line: `64KiB`, `200ms`, `1000`, `forever`.

use std::time::Duration;

/// Number of repetitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Times {
    Count(u64),
    Forever,
}

impl Times {
    /// Whether the round with this number, from 0, takes place.
    pub(crate) fn includes(self, round: u64) -> bool {
        match self {
            Self::Count(count) => round < count,
            Self::Forever => true,
        }
    }
}

pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text);
    let factor = match unit {
        "" | "B" => Some(1),
        "KiB" => Some(1 << 10),
        "MiB" => Some(1 << 20),
        "GiB" => Some(1 << 30),
        _ => None,
    };
    factor
        .zip(number.parse().ok())
        .and_then(|(factor, number): (u64, u64)| number.checked_mul(factor))
        .ok_or_else(|| format!("`{text}` is not a size; write `512`, `64KiB`, `10MiB` or `1GiB`"))
}

pub(crate) fn time(text: &str) -> Result<Duration, String> {
    let (number, unit) = split(text);
    let millis = match unit {
        "ms" => Some(1),
        "s" => Some(1000),
        "m" => Some(60_000),
        _ => None,
    };
    millis
        .zip(number.parse().ok())
        .and_then(|(factor, number): (u64, u64)| number.checked_mul(factor))
        .map(Duration::from_millis)
        .ok_or_else(|| format!("`{text}` is not a duration; write `200ms`, `2s` or `1m`"))
}

pub(crate) fn count(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_not_digits| format!("`{text}` is not an integer"))
}

pub(crate) fn times(text: &str) -> Result<Times, String> {
    match text {
        "forever" => Ok(Times::Forever),
        digits => count(digits).map(Times::Count),
    }
}

fn split(text: &str) -> (&str, &str) {
    let end = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_binary_units() {
        let check = |text: &str, expected: Option<u64>| assert_eq!(bytes(text).ok(), expected);
        check("512", Some(512));
        check("64KiB", Some(65_536));
        check("10MiB", Some(10_485_760));
        check("1GiB", Some(1 << 30));
        check("1KB", None);
        check("KiB", None);
        check("", None);
        check("99999999999GiB", None);
    }

    #[test]
    fn times_have_units() {
        let check = |text: &str, expected: Option<u64>| {
            assert_eq!(time(text).ok(), expected.map(Duration::from_millis));
        };
        check("200ms", Some(200));
        check("2s", Some(2000));
        check("1m", Some(60_000));
        check("200", None);
        check("ms", None);
    }
}
