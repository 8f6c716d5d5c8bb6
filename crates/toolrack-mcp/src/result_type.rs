//! What kind of result a result is: `resultType`, since 2026-07-28.

use std::fmt;

use serde::Deserializer as _;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::serde_lenient::Text;

/// What kind of result a result is. In the legacy era it has no meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResultType {
    /// The answer to the request.
    Complete,
    /// The server needs answers first.
    InputRequired,
    /// The server goes on working; an extension.
    Task,
    /// A kind we do not know: the response is invalid.
    Other,
}

impl ResultType {
    /// Reads the kind of a raw result without reading the rest. Spec 2026-07-28: none is complete.
    ///
    /// What is no object has no kind either, and is left to whoever reads it whole.
    pub fn read(raw: &[u8]) -> Self {
        let mut found = None;
        let mut deserializer = serde_json::Deserializer::from_slice(raw);
        // Reading stops at the member, and serde_json complains about the rest, which does not
        // matter: what was found was found.
        match deserializer.deserialize_map(Finder(&mut found)) {
            Ok(()) | Err(_) => found.unwrap_or(Self::Complete),
        }
    }

    fn from_raw(raw: &RawValue) -> Self {
        match raw.get() {
            r#""complete""# => Self::Complete,
            r#""input_required""# => Self::InputRequired,
            r#""task""# => Self::Task,
            _ => Self::Other,
        }
    }
}

struct Finder<'a>(&'a mut Option<ResultType>);

impl<'de> Visitor<'de> for Finder<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(Text(key)) = map.next_key()? {
            if key == "resultType" {
                let raw: &RawValue = map.next_value()?;
                *self.0 = Some(ResultType::from_raw(raw));
                return Ok(());
            }
            let IgnoredAny = map.next_value()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(json: &str, expected: ResultType) {
        assert_eq!(ResultType::read(json.as_bytes()), expected, "{json}");
    }

    /// Protocol facts §4.2.
    #[test]
    fn an_absent_kind_is_complete_and_a_strange_one_is_not() {
        check("{}", ResultType::Complete);
        check(r#"{"content":[],"resultType":"complete"}"#, ResultType::Complete);
        check(r#"{"resultType":"input_required","inputRequests":{}}"#, ResultType::InputRequired);
        check(r#"{"taskId":"1", "resultType" : "task" }"#, ResultType::Task);
        check(r#"{"resultType":"partial"}"#, ResultType::Other);
        check(r#"{"resultType":null}"#, ResultType::Other);
        check(r#"{"resultType":7}"#, ResultType::Other);
    }

    #[test]
    fn only_the_top_level_counts() {
        check(r#"{"a":{"resultType":"task"},"b":"\"resultType\":\"task\""}"#, ResultType::Complete);
        check(r#"{"\u0072esultType":"task"}"#, ResultType::Task);
    }

    #[test]
    fn what_is_no_object_is_left_to_others() {
        check("", ResultType::Complete);
        check("[1]", ResultType::Complete);
        check(r#"{"resultType":"ta"#, ResultType::Complete);
    }
}
