//! What kind of result came, found without decoding it.
//!
//! Spec 2026-07-28, basic §Result Types: every result has a `resultType`; absent means complete, and one
//! that we do not know makes the answer invalid.

use std::sync::LazyLock;

use memchr::memmem::Finder;
use toolrack_mcp::ResultType;

static KEY: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(br#""resultType""#));
/// The two places where servers put it. No quote in them can be part of a longer string, because a
/// quote inside a string has a backslash before it.
const IN_FRONT: &[u8] = br#"{"resultType":"complete""#;
const AT_END: &[u8] = br#","resultType":"complete"}"#;

/// Finds out what kind of result `raw` is, most often from its ends alone.
pub(crate) fn kind_of(raw: &[u8]) -> ResultType {
    let decided = raw.starts_with(IN_FRONT) || raw.ends_with(AT_END) || KEY.find(raw).is_none();
    if decided { ResultType::Complete } else { ResultType::read(raw) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(raw: &str, expected: ResultType) {
        assert_eq!(kind_of(raw.as_bytes()), expected, "{raw}");
    }

    #[test]
    fn the_kind_is_found_wherever_it_stands() {
        check("{}", ResultType::Complete);
        check(r#"{"content":[]}"#, ResultType::Complete);
        check(r#"{"resultType":"complete"}"#, ResultType::Complete);
        check(r#"{"resultType":"complete","content":[]}"#, ResultType::Complete);
        check(r#"{"content":[],"resultType":"complete"}"#, ResultType::Complete);
        check(r#"{ "resultType" : "complete" }"#, ResultType::Complete);
        check(r#"{"a":1,"resultType":"input_required","b":2}"#, ResultType::InputRequired);
        check(r#"{"resultType":"task","taskId":"1"}"#, ResultType::Task);
        check(r#"{"resultType":"completely"}"#, ResultType::Other);
        check(r#"{"resultType":7}"#, ResultType::Other);
    }

    #[test]
    fn only_the_top_level_counts() {
        check(r#"{"a":{"resultType":"task"}}"#, ResultType::Complete);
        check(r#"{"a":"\"resultType\":\"task\""}"#, ResultType::Complete);
        check(
            r#"{"a":"x,\"resultType\":\"complete\"}","resultType":"input_required"}"#,
            ResultType::InputRequired,
        );
    }
}
