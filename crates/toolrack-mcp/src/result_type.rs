//! `resultType` of a result.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::serde_lenient::{decode, present};

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
    /// A result that is not an object counts as complete; decoding it fails later. An object that cannot be read may
    /// be anything.
    pub fn read(raw: &[u8]) -> Self {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Members<'a> {
            #[serde(borrow, default, deserialize_with = "present")]
            result_type: Option<&'a RawValue>,
        }
        let found = match decode(raw) {
            Ok(Members { result_type }) => result_type,
            Err(_) if raw.trim_ascii_start().starts_with(b"{") => return Self::Other,
            Err(_) => None,
        };
        match found.map(RawValue::get) {
            None | Some(r#""complete""#) => Self::Complete,
            Some(r#""input_required""#) => Self::InputRequired,
            Some(r#""task""#) => Self::Task,
            Some(_) => Self::Other,
        }
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
        check(r#"{"resultType":"ta"#, ResultType::Other);
        let repeated = r#"{"resultType":"input_required","resultType":"input_required"}"#;
        check(repeated, ResultType::Other);
    }
}
