//! Parsers for sizes, durations, counts and words on the command line: `64KiB`, `200ms`, `1000`, `forever`.

use std::time::Duration;

use serde::Deserialize;
use serde::de::{IntoDeserializer as _, value};

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
    scaled(text, &[("", 1), ("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)])
        .ok_or_else(|| format!("`{text}` is not a size; write `512`, `64KiB`, `10MiB` or `1GiB`"))
}

pub(crate) fn time(text: &str) -> Result<Duration, String> {
    scaled(text, &[("ms", 1), ("s", 1000), ("m", 60_000)])
        .map(Duration::from_millis)
        .ok_or_else(|| format!("`{text}` is not a duration; write `200ms`, `2s` or `1m`"))
}

/// A number with one of these units.
fn scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let end = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    number.parse::<u64>().ok()?.checked_mul(*factor)
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

/// Splits `name` or `name(argument, …)`.
pub(crate) fn name_and_arguments(text: &str) -> Result<(&str, &str), String> {
    let Some((name, rest)) = text.split_once('(') else { return Ok((text, "")) };
    let arguments = rest.strip_suffix(')');
    Ok((name, arguments.ok_or_else(|| format!("`{text}` has no closing parenthesis"))?))
}

/// A word, as serde names the variants of `T`. The error lists the known words.
pub(crate) fn word<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, String> {
    T::deserialize(text.into_deserializer()).map_err(|error: value::Error| error.to_string())
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
