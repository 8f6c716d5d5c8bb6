//! The forms that a text field may demand.
//!
//! The checks catch slips of the keyboard. The server has the last word.

use std::fmt;

use serde::Deserialize;

/// The form of a text field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TextFormat {
    /// A mail address.
    Email,
    /// An absolute URI.
    Uri,
    /// A day, as in `2026-07-28`.
    Date,
    /// An RFC 3339 moment, as in `2026-07-28T12:00:00Z`.
    DateTime,
}

impl TextFormat {
    /// Whether `text` has this form.
    pub fn matches(self, text: &str) -> bool {
        match self {
            Self::Email => is_email(text),
            Self::Uri => is_uri(text),
            Self::Date => is_date(text),
            Self::DateTime => is_date_time(text),
        }
    }
}

impl fmt::Display for TextFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Email => "email",
            Self::Uri => "uri",
            Self::Date => "date",
            Self::DateTime => "date-time",
        })
    }
}

fn is_email(text: &str) -> bool {
    let Some((local, domain)) = text.rsplit_once('@') else {
        return false;
    };
    let odd = |it: char| it.is_whitespace() || it.is_control();
    let labels = domain.split('.').all(|it| !it.is_empty());
    !local.is_empty() && labels && !text.contains(odd)
}

fn is_uri(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once(':') else {
        return false;
    };
    let mut letters = scheme.bytes();
    let scheme = letters.next().is_some_and(|it| it.is_ascii_alphabetic())
        && letters.all(|it| it.is_ascii_alphanumeric() || matches!(it, b'+' | b'-' | b'.'));
    scheme && !rest.is_empty() && rest.bytes().all(|it| it.is_ascii_graphic())
}

fn is_date(text: &str) -> bool {
    let Some((year, month, day)) = parts(text, '-', [4, 2, 2]).map(|[y, m, d]| (y, m, d)) else {
        return false;
    };
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 if leap => 29,
        2 => 28,
        _ => return false,
    };
    (1..=days).contains(&day)
}

fn is_date_time(text: &str) -> bool {
    let Some((date, time)) = text.split_once(['T', 't', ' ']) else {
        return false;
    };
    let Some(zone) = time.find(['Z', 'z', '+', '-']) else {
        return false;
    };
    let (clock, zone) = time.split_at(zone);
    is_date(date) && is_clock(clock) && is_zone(zone)
}

fn is_clock(text: &str) -> bool {
    let (whole, fraction) = match text.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (text, None),
    };
    let digits = |it: &str| !it.is_empty() && it.bytes().all(|it| it.is_ascii_digit());
    // RFC 3339 has leap seconds.
    let sound = parts(whole, ':', [2, 2, 2]).is_some_and(|[h, m, s]| h < 24 && m < 60 && s <= 60);
    sound && fraction.is_none_or(digits)
}

fn is_zone(text: &str) -> bool {
    match text.strip_prefix(['+', '-']) {
        Some(offset) => parts(offset, ':', [2, 2]).is_some_and(|[h, m]| h < 24 && m < 60),
        None => matches!(text, "Z" | "z"),
    }
}

/// Splits into exactly `N` numbers of the given widths.
fn parts<const N: usize>(text: &str, mark: char, widths: [usize; N]) -> Option<[u32; N]> {
    let mut numbers = [0; N];
    let mut pieces = text.split(mark);
    for (number, width) in numbers.iter_mut().zip(widths) {
        let piece = pieces.next()?;
        if piece.len() != width || !piece.bytes().all(|it| it.is_ascii_digit()) {
            return None;
        }
        *number = piece.parse().ok()?;
    }
    pieces.next().is_none().then_some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(format: TextFormat, sound: &[&str], unsound: &[&str]) {
        for text in sound {
            assert!(format.matches(text), "{text} is a sound {format}");
        }
        for text in unsound {
            assert!(!format.matches(text), "{text} is no {format}");
        }
    }

    #[test]
    fn formats_catch_slips() {
        check(
            TextFormat::Email,
            &["a@b.org", "a+b@localhost", "é@ü.de"],
            &["", "a", "@b", "a@", "a b@c", "a@b..c"],
        );
        check(
            TextFormat::Uri,
            &["https://e.org/?q=1#f", "urn:x", "a+b-c.d:x"],
            &["", "e.org", "://x", "1a:x", "https://e .org", "x:"],
        );
        check(
            TextFormat::Date,
            &["2026-07-28", "2024-02-29", "2000-02-29"],
            &["2026-7-28", "2023-02-29", "1900-02-29", "2026-13-01", "2026-00-01", "2026-01-32"],
        );
        check(
            TextFormat::DateTime,
            &["2026-07-28T12:00:00Z", "2026-07-28t12:00:60.5+02:00", "2026-07-28 12:00:00-00:30"],
            &["2026-07-28", "2026-07-28T12:00Z", "2026-07-28T24:00:00Z", "2026-07-28T12:00:00"],
        );
        check(TextFormat::DateTime, &[], &["2026-07-28T12:00:00.Z", "2026-07-28T12:00:00+2", "TZ"]);
    }
}
