//! Form fields and their types, with string formats.

use std::collections::BTreeSet;
use std::fmt;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::{FieldErrorKind, FieldValue};

/// A form field.
#[derive(Debug, Clone)]
pub struct Field {
    /// Field name.
    pub name: String,
    /// Display name.
    pub title: Option<String>,
    /// Description.
    pub description: Option<String>,
    /// The field is required.
    pub required: bool,
    /// Field type.
    pub kind: FieldKind,
    /// Default value. One of the wrong type counts as absent.
    pub default: Option<FieldValue>,
}

/// Field types.
#[derive(Debug, Clone)]
pub enum FieldKind {
    /// A string.
    Text {
        /// Minimum length in characters.
        min_length: Option<u64>,
        /// Maximum length in characters.
        max_length: Option<u64>,
        /// String format.
        format: Option<StringFormat>,
        /// Regular expression, enforced by the server only: running a server's pattern could hang.
        pattern: Option<String>,
    },
    /// A number.
    Number {
        /// Only whole numbers are allowed.
        is_integer: bool,
        /// Minimum.
        minimum: Option<f64>,
        /// Maximum.
        maximum: Option<f64>,
    },
    /// A boolean.
    Boolean,
    /// One of several options.
    Choice {
        /// Options in the server's order.
        options: Vec<Choice>,
    },
    /// Any number of several options.
    MultiChoice {
        /// Options in the server's order.
        options: Vec<Choice>,
        /// Minimum number of options.
        min_items: Option<u64>,
        /// Maximum number of options.
        max_items: Option<u64>,
    },
    /// A schema that the protocol does not allow here, as written. Any value is accepted.
    Other(Box<RawValue>),
}

/// An option.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// Value to send.
    pub value: String,
    /// Label to show.
    pub title: String,
}

impl Field {
    pub(super) fn read(name: String, required: &BTreeSet<String>, schema: Box<RawValue>) -> Self {
        let members: Value = serde_json::from_str(schema.get()).unwrap_or_default();
        let kind = FieldKind::read(&members);
        let default = kind.as_ref().and_then(|kind| {
            let default = FieldValue::deserialize(members.get("default")?).ok()?;
            (kind.error(&default) != Some(FieldErrorKind::WrongType)).then_some(default)
        });
        Self {
            required: required.contains(&name),
            name,
            title: text(&members, "title"),
            description: text(&members, "description"),
            kind: kind.unwrap_or(FieldKind::Other(schema)),
            default,
        }
    }

    /// Display name, or the field name.
    pub fn display_name(&self) -> &str {
        self.title.as_deref().unwrap_or(&self.name)
    }
}

impl FieldKind {
    /// Malformed limits count as absent.
    fn read(schema: &Value) -> Option<Self> {
        let count = |member| schema.get(member).and_then(Value::as_u64);
        let bound = |member| schema.get(member).and_then(Value::as_f64);
        let options = Options::deserialize(schema).ok()?;
        Some(match schema.get("type")?.as_str()? {
            "string" => match options.list() {
                Some(options) => Self::Choice { options },
                None => Self::Text {
                    min_length: count("minLength"),
                    max_length: count("maxLength"),
                    format: schema
                        .get("format")
                        .and_then(|name| Deserialize::deserialize(name).ok()),
                    pattern: text(schema, "pattern"),
                },
            },
            kind @ ("number" | "integer") => Self::Number {
                is_integer: kind == "integer",
                minimum: bound("minimum"),
                maximum: bound("maximum"),
            },
            "boolean" => Self::Boolean,
            "array" => Self::MultiChoice {
                options: Options::deserialize(schema.get("items")?).ok()?.list()?,
                min_items: count("minItems"),
                max_items: count("maxItems"),
            },
            _ => return None,
        })
    }
}

fn text(schema: &Value, member: &str) -> Option<String> {
    schema.get(member)?.as_str().map(str::to_owned)
}

/// The three encodings of options.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Options {
    #[serde(rename = "enum")]
    values: Option<Vec<String>>,
    // Titles by position: the form before 2025-11-25, which stays valid.
    #[serde(default)]
    enum_names: Vec<String>,
    // A single choice has `oneOf`, a multiple choice has `anyOf`.
    #[serde(alias = "anyOf")]
    one_of: Option<Vec<Titled>>,
}

#[derive(Deserialize)]
struct Titled {
    #[serde(rename = "const")]
    value: String,
    title: Option<String>,
}

impl Options {
    fn list(self) -> Option<Vec<Choice>> {
        let titled: Vec<Titled> = match self.one_of {
            Some(titled) => titled,
            None => {
                let titles = self.enum_names.into_iter().map(Some).chain(std::iter::repeat(None));
                let values = self.values?.into_iter().zip(titles);
                values.map(|(value, title)| Titled { value, title }).collect()
            }
        };
        let choice = |Titled { value, title }| {
            let title = title.unwrap_or_else(|| value.clone());
            Choice { value, title }
        };
        Some(titled.into_iter().map(choice).collect())
    }
}

/// Format of a string field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StringFormat {
    /// Email address.
    Email,
    /// An absolute URI.
    Uri,
    /// Date, such as `2026-07-28`.
    Date,
    /// RFC 3339 date-time, such as `2026-07-28T12:00:00Z`.
    DateTime,
}

impl StringFormat {
    /// Whether `text` has this format.
    pub fn matches(self, text: &str) -> bool {
        match self {
            Self::Email => is_email(text),
            Self::Uri => is_uri(text),
            Self::Date => is_date(text),
            Self::DateTime => is_date_time(text),
        }
    }
}

impl fmt::Display for StringFormat {
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
    let odd = |character: char| character.is_whitespace() || character.is_control();
    let labels = domain.split('.').all(|label| !label.is_empty());
    !local.is_empty() && labels && !text.contains(odd)
}

fn is_uri(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once(':') else {
        return false;
    };
    let mut letters = scheme.bytes();
    let scheme = letters.next().is_some_and(|byte| byte.is_ascii_alphabetic())
        && letters.all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'));
    scheme && !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_graphic())
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
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
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
        if piece.len() != width || !piece.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        *number = piece.parse().ok()?;
    }
    pieces.next().is_none().then_some(numbers)
}

#[cfg(test)]
mod string_format_tests {
    use super::*;

    #[track_caller]
    fn check(format: StringFormat, sound: &[&str], unsound: &[&str]) {
        for text in sound {
            assert!(format.matches(text), "{text} is a sound {format}");
        }
        for text in unsound {
            assert!(!format.matches(text), "{text} is no {format}");
        }
    }

    #[test]
    fn string_formats_catch_typos() {
        check(
            StringFormat::Email,
            &["a@b.org", "a+b@localhost", "é@ü.de"],
            &["", "a", "@b", "a@", "a b@c", "a@b..c"],
        );
        check(
            StringFormat::Uri,
            &["https://e.org/?q=1#f", "urn:x", "a+b-c.d:x"],
            &["", "e.org", "://x", "1a:x", "https://e .org", "x:"],
        );
        check(
            StringFormat::Date,
            &["2026-07-28", "2024-02-29", "2000-02-29"],
            &["2026-7-28", "2023-02-29", "1900-02-29", "2026-13-01", "2026-00-01", "2026-01-32"],
        );
        check(
            StringFormat::DateTime,
            &["2026-07-28T12:00:00Z", "2026-07-28t12:00:60.5+02:00", "2026-07-28 12:00:00-00:30"],
            &["2026-07-28", "2026-07-28T12:00Z", "2026-07-28T24:00:00Z", "2026-07-28T12:00:00"],
        );
        check(
            StringFormat::DateTime,
            &[],
            &["2026-07-28T12:00:00.Z", "2026-07-28T12:00:00+2", "TZ"],
        );
    }
}
