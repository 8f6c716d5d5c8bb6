//! The id of a request: a number or a text, as the sender chose.
//!
//! We send numbers. What others send is read leniently (`1.0` is `1`) and given back as it came.

use std::fmt;

use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The largest integer that survives a peer which keeps numbers as doubles.
const MAX_EXACT: f64 = 9_007_199_254_740_991.0;

/// What ties an answer to its request.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum RequestId {
    /// An integer. Ours are always of this kind.
    Number(i64),
    /// Any text, compared byte for byte.
    Text(Box<str>),
}

impl RequestId {
    /// The number one of our own requests would have, if this can be one of them.
    ///
    /// Some servers give a number back as text; `"7"` cannot be anything but our 7, since we never
    /// send text.
    pub fn as_ours(&self) -> Option<u64> {
        match self {
            RequestId::Number(number) => u64::try_from(*number).ok(),
            RequestId::Text(text) => text.parse().ok(),
        }
    }
}

impl From<u64> for RequestId {
    /// Ids are counted up from one, so the upper half of `u64` is out of reach.
    fn from(number: u64) -> Self {
        RequestId::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<&str> for RequestId {
    fn from(text: &str) -> Self {
        RequestId::Text(text.into())
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RequestId::Number(number) => number.fmt(f),
            RequestId::Text(text) => write!(f, "{text:?}"),
        }
    }
}

impl Serialize for RequestId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            RequestId::Number(number) => serializer.serialize_i64(*number),
            RequestId::Text(text) => serializer.serialize_str(text),
        }
    }
}

impl<'de> Deserialize<'de> for RequestId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(IdVisitor)
    }
}

struct IdVisitor;

impl Visitor<'_> for IdVisitor {
    type Value = RequestId;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an integer or a text as id")
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<RequestId, E> {
        Ok(RequestId::Number(number))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<RequestId, E> {
        i64::try_from(number)
            .map(RequestId::Number)
            .map_err(|_too_large| E::invalid_value(Unexpected::Unsigned(number), &self))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<RequestId, E> {
        if number.fract() != 0.0 || number.abs() > MAX_EXACT {
            return Err(E::invalid_value(Unexpected::Float(number), &self));
        }
        #[expect(
            clippy::cast_possible_truncation,
            reason = "checked to be a whole number below 2^53"
        )]
        Ok(RequestId::Number(number as i64))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<RequestId, E> {
        Ok(RequestId::Text(text.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(json: &str, expected: Option<RequestId>) {
        assert_eq!(serde_json::from_str(json).ok(), expected, "{json}");
    }

    #[test]
    fn ids_are_read_leniently() {
        check("7", Some(RequestId::Number(7)));
        check("-7", Some(RequestId::Number(-7)));
        check("7.0", Some(RequestId::Number(7)));
        check("7e0", Some(RequestId::Number(7)));
        check("\"7\"", Some(RequestId::from("7")));
        check("\"probe\"", Some(RequestId::from("probe")));
        check("7.5", None);
        check("18446744073709551615", None);
        check("18446744073709551616", None);
        check("null", None);
        check("true", None);
        check("[7]", None);
    }

    #[test]
    fn a_number_given_back_as_text_is_still_ours() {
        assert_eq!(RequestId::from("7").as_ours(), Some(7));
        assert_eq!(RequestId::from("seven").as_ours(), None);
        assert_eq!(RequestId::Number(-1).as_ours(), None);
    }

    #[test]
    fn ids_are_written_as_they_came() {
        assert_eq!(serde_json::to_string(&RequestId::Number(7)).unwrap(), "7");
        assert_eq!(serde_json::to_string(&RequestId::from("7")).unwrap(), "\"7\"");
    }
}
