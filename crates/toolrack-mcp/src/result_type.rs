//! `resultType` of a result, since 2026-07-28.

use std::fmt;

use serde::Deserializer as _;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::serde_lenient::Text;

/// Type of a result. Has no meaning in the legacy era.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResultType {
    /// Complete result.
    Complete,
    /// The server needs input first.
    InputRequired,
    /// The server continues as a task; an extension.
    Task,
    /// Unknown type: the response is invalid.
    Other,
}

impl ResultType {
    /// Reads the type of a raw result without decoding the rest. Spec 2026-07-28: absent means complete.
    ///
    /// A result that is not an object counts as complete; decoding it fails later.
    pub fn read(raw: &[u8]) -> Self {
        let mut found = None;
        let mut deserializer = serde_json::Deserializer::from_slice(raw);
        // The visitor stops at the member, so serde_json reports an error for the rest, which is
        // ignored.
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
    fn absent_result_type_means_complete() {
        check("{}", ResultType::Complete);
        check(r#"{"content":[],"resultType":"complete"}"#, ResultType::Complete);
        check(r#"{"resultType":"input_required","inputRequests":{}}"#, ResultType::InputRequired);
        check(r#"{"taskId":"1", "resultType" : "task" }"#, ResultType::Task);
        check(r#"{"resultType":"partial"}"#, ResultType::Other);
        check(r#"{"resultType":null}"#, ResultType::Other);
        check(r#"{"resultType":7}"#, ResultType::Other);
    }

    #[test]
    fn only_top_level_result_type_counts() {
        check(r#"{"a":{"resultType":"task"},"b":"\"resultType\":\"task\""}"#, ResultType::Complete);
        check(r#"{"\u0072esultType":"task"}"#, ResultType::Task);
    }

    #[test]
    fn non_objects_count_as_complete() {
        check("", ResultType::Complete);
        check("[1]", ResultType::Complete);
        check(r#"{"resultType":"ta"#, ResultType::Complete);
    }
}
