//! Duration parser: `120s`, `1h30m`, `500ms`.

use std::time::Duration;

/// Maximum duration. A larger one is probably a mistaken unit.
const MAX_DURATION: Duration = Duration::from_hours(24 * 365);

/// Invalid duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DurationError {
    Malformed,
    NoUnit,
    Zero,
    TooLong,
}

/// Parses a duration: a number with a unit, or several in a row. The error says how
/// to fix it.
pub fn parse_duration(text: &str) -> Result<Duration, &'static str> {
    parse(text).map_err(DurationError::message)
}

/// Parses a number with a unit, or several in a row.
pub(crate) fn parse(text: &str) -> Result<Duration, DurationError> {
    let text = text.trim();
    // Tools disagree about the unit of a bare number, so none is guessed.
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(DurationError::NoUnit);
    }
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let (number, tail) = split(rest, |character| character.is_ascii_digit());
        let (unit, tail) = split(tail, |character| character.is_ascii_alphabetic());
        let number: u64 = number.parse().map_err(|_overflow| match number {
            "" => DurationError::Malformed,
            _ => DurationError::TooLong,
        })?;
        if unit.is_empty() {
            return Err(if tail.is_empty() {
                DurationError::NoUnit
            } else {
                DurationError::Malformed
            });
        }
        total = total.checked_add(scaled(number, unit)?).ok_or(DurationError::TooLong)?;
        rest = tail;
    }
    match total {
        _ if text.is_empty() => Err(DurationError::Malformed),
        Duration::ZERO => Err(DurationError::Zero),
        total if total > MAX_DURATION => Err(DurationError::TooLong),
        total => Ok(total),
    }
}

/// A bare number of another tool's file, in that tool's unit.
pub(crate) fn from_number(number: f64, unit: Duration) -> Result<Duration, DurationError> {
    match Duration::try_from_secs_f64(number * unit.as_secs_f64()) {
        Ok(Duration::ZERO) => Err(DurationError::Zero),
        Ok(time) if time > MAX_DURATION => Err(DurationError::TooLong),
        Ok(time) => Ok(time),
        Err(_out_of_range) => Err(DurationError::Malformed),
    }
}

impl DurationError {
    /// Message with the fix.
    pub(crate) fn message(self) -> &'static str {
        match self {
            DurationError::Malformed => {
                "is not a valid duration; write a number and `ms`, `s`, `m`, `h` or `d`, as in `90s`"
            }
            DurationError::NoUnit => {
                "has no unit; write `ms`, `s`, `m`, `h` or `d` after it, as in `90s`"
            }
            DurationError::Zero => "must be at least `1ms`",
            DurationError::TooLong => "is more than a year; use a smaller number or unit",
        }
    }
}

fn split(text: &str, belongs: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|text| !belongs(text)).unwrap_or(text.len()))
}

fn scaled(number: u64, unit: &str) -> Result<Duration, DurationError> {
    let factor = match unit {
        "ms" => return Ok(Duration::from_millis(number)),
        "s" => 1,
        "m" => 60,
        "h" => 60 * 60,
        "d" => 24 * 60 * 60,
        _ => return Err(DurationError::Malformed),
    };
    number.checked_mul(factor).map(Duration::from_secs).ok_or(DurationError::TooLong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Result<u64, DurationError>) {
        assert_eq!(parse(text), expected.map(Duration::from_millis), "{text}");
    }

    #[test]
    fn times_have_units() {
        check("120s", Ok(120_000));
        check("500ms", Ok(500));
        check("10m", Ok(600_000));
        check("1h30m", Ok(5_400_000));
        check(" 2d ", Ok(172_800_000));
        check("120", Err(DurationError::NoUnit));
        check("1h30", Err(DurationError::NoUnit));
        check("", Err(DurationError::Malformed));
        check("never", Err(DurationError::Malformed));
        check("1.5s", Err(DurationError::Malformed));
        check("10 s", Err(DurationError::Malformed));
        check("5weeks", Err(DurationError::Malformed));
        check("0s", Err(DurationError::Zero));
        check("99999d", Err(DurationError::TooLong));
        check("99999999999999999999s", Err(DurationError::TooLong));
        check("18446744073709551615d", Err(DurationError::TooLong));
    }

    #[test]
    fn bare_numbers_have_the_unit_of_their_tool() {
        assert_eq!(from_number(1.5, Duration::from_secs(1)), Ok(Duration::from_millis(1500)));
        assert_eq!(from_number(250.0, Duration::from_millis(1)), Ok(Duration::from_millis(250)));
        assert_eq!(from_number(-1.0, Duration::from_secs(1)), Err(DurationError::Malformed));
        assert_eq!(from_number(f64::NAN, Duration::from_secs(1)), Err(DurationError::Malformed));
        assert_eq!(from_number(1e300, Duration::from_secs(1)), Err(DurationError::Malformed));
    }
}
