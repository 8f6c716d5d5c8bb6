//! Duration parser: `120s`, `1h30m`, `500ms`.

use std::time::Duration;

/// Maximum duration. A larger one is probably a mistaken unit.
const MAX_DURATION: Duration = Duration::from_hours(24 * 365);

/// Units, in milliseconds.
const UNITS: [(&str, u64); 5] =
    [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

const MALFORMED: &str =
    "is not a valid duration; write a number and `ms`, `s`, `m`, `h` or `d`, as in `90s`";
const NO_UNIT: &str = "has no unit; write `ms`, `s`, `m`, `h` or `d` after it, as in `90s`";
const ZERO: &str = "must be at least `1ms`";
const TOO_LONG: &str = "is more than a year; use a smaller number or unit";

/// Parses a duration: a number with a unit, or several in a row. The error says how
/// to fix it.
pub fn parse_duration(text: &str) -> Result<Duration, &'static str> {
    let text = text.trim();
    // Tools disagree about the unit of a bare number, so none is guessed.
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(NO_UNIT);
    }
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let (number, tail) = split(rest, |character| character.is_ascii_digit());
        let (unit, tail) = split(tail, |character| character.is_ascii_alphabetic());
        let number: u64 = number.parse().map_err(|_overflow| match number {
            "" => MALFORMED,
            _ => TOO_LONG,
        })?;
        if unit.is_empty() {
            return Err(if tail.is_empty() { NO_UNIT } else { MALFORMED });
        }
        let (_, millis) = UNITS.iter().find(|known| known.0 == unit).ok_or(MALFORMED)?;
        let part = number.checked_mul(*millis).map(Duration::from_millis);
        total = part.and_then(|part| total.checked_add(part)).ok_or(TOO_LONG)?;
        rest = tail;
    }
    match total {
        _ if text.is_empty() => Err(MALFORMED),
        Duration::ZERO => Err(ZERO),
        total if total > MAX_DURATION => Err(TOO_LONG),
        total => Ok(total),
    }
}

/// A bare number of another tool's file, in that tool's unit.
pub(crate) fn from_number(number: f64, unit: Duration) -> Result<Duration, &'static str> {
    match Duration::try_from_secs_f64(number * unit.as_secs_f64()) {
        Ok(Duration::ZERO) => Err(ZERO),
        Ok(time) if time > MAX_DURATION => Err(TOO_LONG),
        Ok(time) => Ok(time),
        Err(_out_of_range) => Err(MALFORMED),
    }
}

/// A duration as text that [`parse_duration`] reads.
pub(crate) fn to_text(duration: Duration) -> String {
    if duration.subsec_millis() == 0 {
        format!("{}s", duration.as_secs())
    } else {
        format!("{}ms", duration.as_millis())
    }
}

fn split(text: &str, belongs: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|text| !belongs(text)).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Result<u64, &'static str>) {
        assert_eq!(parse_duration(text), expected.map(Duration::from_millis), "{text}");
    }

    #[test]
    fn times_have_units() {
        check("120s", Ok(120_000));
        check("500ms", Ok(500));
        check("10m", Ok(600_000));
        check("1h30m", Ok(5_400_000));
        check(" 2d ", Ok(172_800_000));
        check("120", Err(NO_UNIT));
        check("1h30", Err(NO_UNIT));
        check("", Err(MALFORMED));
        check("never", Err(MALFORMED));
        check("1.5s", Err(MALFORMED));
        check("10 s", Err(MALFORMED));
        check("5weeks", Err(MALFORMED));
        check("0s", Err(ZERO));
        check("99999d", Err(TOO_LONG));
        check("99999999999999999999s", Err(TOO_LONG));
        check("18446744073709551615d", Err(TOO_LONG));
    }

    #[test]
    fn bare_numbers_have_the_unit_of_their_tool() {
        assert_eq!(from_number(1.5, Duration::from_secs(1)), Ok(Duration::from_millis(1500)));
        assert_eq!(from_number(250.0, Duration::from_millis(1)), Ok(Duration::from_millis(250)));
        assert_eq!(from_number(-1.0, Duration::from_secs(1)), Err(MALFORMED));
        assert_eq!(from_number(f64::NAN, Duration::from_secs(1)), Err(MALFORMED));
        assert_eq!(from_number(1e300, Duration::from_secs(1)), Err(MALFORMED));
    }
}
