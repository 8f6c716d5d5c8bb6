//! A string or an integer that its sender chose: a progress token, or a JSON-RPC id where a payload
//! repeats one.
//!
//! **Invariant:** `1` and `"1"` are different tokens.

use std::fmt;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A progress token or a repeated request id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Token {
    /// A JSON integer.
    Integer(i64),
    /// A JSON string.
    Text(String),
}

impl From<i64> for Token {
    fn from(number: i64) -> Self {
        Self::Integer(number)
    }
}

impl From<String> for Token {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for Token {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(number) => number.fmt(f),
            Self::Text(text) => text.fmt(f),
        }
    }
}

impl Serialize for Token {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Integer(number) => serializer.serialize_i64(*number),
            Self::Text(text) => serializer.serialize_str(text),
        }
    }
}

impl<'de> Deserialize<'de> for Token {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TokenVisitor;
        impl Visitor<'_> for TokenVisitor {
            type Value = Token;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or an integer")
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Token, E> {
                Ok(Token::Integer(number))
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Token, E> {
                i64::try_from(number).map(Token::Integer).map_err(E::custom)
            }

            fn visit_f64<E: Error>(self, number: f64) -> Result<Token, E> {
                whole(number).map(Token::Integer).ok_or_else(|| E::custom("not an integer"))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Token, E> {
                Ok(Token::Text(text.to_owned()))
            }
        }
        deserializer.deserialize_any(TokenVisitor)
    }
}

/// Some peers write an integer as `1.0`. Beyond 2^53 a float no longer says which integer it was.
fn whole(number: f64) -> Option<i64> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if number.fract() != 0.0 || number.abs() > EXACT {
        return None;
    }
    #[expect(clippy::cast_possible_truncation, reason = "whole and within 2^53, checked above")]
    Some(number as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(json: &str, expected: Option<Token>) {
        assert_eq!(serde_json::from_str(json).ok(), expected, "{json}");
    }

    #[test]
    fn tokens_keep_their_type() {
        check("1", Some(Token::Integer(1)));
        check("-7", Some(Token::Integer(-7)));
        check("\"1\"", Some(Token::Text("1".to_owned())));
        check("1.0", Some(Token::Integer(1)));
        check("1.5", None);
        check("1e300", None);
        check("18446744073709551615", None);
        check("null", None);
        check("true", None);
    }

    #[test]
    fn tokens_are_written_as_they_came() {
        let tokens = [Token::Integer(-7), Token::from("a\"b")];
        assert_eq!(serde_json::to_string(&tokens).unwrap(), r#"[-7,"a\"b"]"#);
    }
}
