//! Times as people write them in config files: `120s`, `1h30m`, `500ms`.

use std::time::Duration;

/// The longest time that can be asked for. Beyond it, somebody meant another unit.
const LONGEST: Duration = Duration::from_hours(24 * 365);

/// Why a text is no time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoTime {
    Malformed,
    NoUnit,
    Zero,
    TooLong,
}

/// Reads a time as config files have it: a number with its unit, or several of them in a row. The error says what
/// is wrong and what to do.
pub fn parse_time(text: &str) -> Result<Duration, &'static str> {
    parse(text).map_err(NoTime::complaint)
}

/// Reads a number with its unit, or several of them in a row.
pub(crate) fn parse(text: &str) -> Result<Duration, NoTime> {
    let text = text.trim();
    if !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit()) {
        return Err(NoTime::NoUnit);
    }
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let (number, tail) = split(rest, |it| it.is_ascii_digit());
        let (unit, tail) = split(tail, |it| it.is_ascii_alphabetic());
        let number: u64 = number.parse().map_err(|_overflow| match number {
            "" => NoTime::Malformed,
            _ => NoTime::TooLong,
        })?;
        if unit.is_empty() {
            return Err(if tail.is_empty() { NoTime::NoUnit } else { NoTime::Malformed });
        }
        total = total.checked_add(scaled(number, unit)?).ok_or(NoTime::TooLong)?;
        rest = tail;
    }
    match total {
        _ if text.is_empty() => Err(NoTime::Malformed),
        Duration::ZERO => Err(NoTime::Zero),
        total if total > LONGEST => Err(NoTime::TooLong),
        total => Ok(total),
    }
}

/// A bare number of another tool's file, in the unit that tool uses.
pub(crate) fn counted(number: f64, unit: Duration) -> Result<Duration, NoTime> {
    match Duration::try_from_secs_f64(number * unit.as_secs_f64()) {
        Ok(Duration::ZERO) => Err(NoTime::Zero),
        Ok(time) if time > LONGEST => Err(NoTime::TooLong),
        Ok(time) => Ok(time),
        Err(_out_of_range) => Err(NoTime::Malformed),
    }
}

impl NoTime {
    /// What is wrong and what to do.
    pub(crate) fn complaint(self) -> &'static str {
        match self {
            NoTime::Malformed => {
                "is no time; write a number and `ms`, `s`, `m`, `h` or `d`, as in `90s`"
            }
            NoTime::NoUnit => "has no unit; write `ms`, `s`, `m`, `h` or `d` after it, as in `90s`",
            NoTime::Zero => "is no time at all; write at least `1ms`",
            NoTime::TooLong => "is more than a year; use a smaller number or unit",
        }
    }
}

fn split(text: &str, belongs: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|it| !belongs(it)).unwrap_or(text.len()))
}

fn scaled(number: u64, unit: &str) -> Result<Duration, NoTime> {
    let factor = match unit {
        "ms" => return Ok(Duration::from_millis(number)),
        "s" => 1,
        "m" => 60,
        "h" => 60 * 60,
        "d" => 24 * 60 * 60,
        _ => return Err(NoTime::Malformed),
    };
    number.checked_mul(factor).map(Duration::from_secs).ok_or(NoTime::TooLong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Result<u64, NoTime>) {
        assert_eq!(parse(text), expected.map(Duration::from_millis), "{text}");
    }

    #[test]
    fn times_have_units() {
        check("120s", Ok(120_000));
        check("500ms", Ok(500));
        check("10m", Ok(600_000));
        check("1h30m", Ok(5_400_000));
        check(" 2d ", Ok(172_800_000));
        check("120", Err(NoTime::NoUnit));
        check("1h30", Err(NoTime::NoUnit));
        check("", Err(NoTime::Malformed));
        check("never", Err(NoTime::Malformed));
        check("1.5s", Err(NoTime::Malformed));
        check("10 s", Err(NoTime::Malformed));
        check("5weeks", Err(NoTime::Malformed));
        check("0s", Err(NoTime::Zero));
        check("99999d", Err(NoTime::TooLong));
        check("99999999999999999999s", Err(NoTime::TooLong));
        check("18446744073709551615d", Err(NoTime::TooLong));
    }

    #[test]
    fn bare_numbers_take_the_unit_of_their_tool() {
        assert_eq!(counted(1.5, Duration::from_secs(1)), Ok(Duration::from_millis(1500)));
        assert_eq!(counted(250.0, Duration::from_millis(1)), Ok(Duration::from_millis(250)));
        assert_eq!(counted(-1.0, Duration::from_secs(1)), Err(NoTime::Malformed));
        assert_eq!(counted(f64::NAN, Duration::from_secs(1)), Err(NoTime::Malformed));
        assert_eq!(counted(1e300, Duration::from_secs(1)), Err(NoTime::Malformed));
    }
}
