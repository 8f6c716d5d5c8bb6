//! `resultType` and cache hints (`ttlMs`, `cacheScope`) of a result.

use std::fmt;
use std::time::Duration;

use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer as _};
use serde_json::value::RawValue;

use crate::error::DecodeError;
use crate::serde_lenient::{Text, decode};

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

/// Cache hints of a result. The default is the meaning of absent hints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheHint {
    /// How long the result is fresh after receipt. Zero means stale at once.
    pub ttl: Duration,
    /// Who may get the cached result.
    pub scope: CacheScope,
}

/// Who may get a cached result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CacheScope {
    /// Every user.
    Public,
    /// Only callers with the same authorization.
    #[default]
    Private,
}

/// Cache hint members of a result, as written.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Hints<'a> {
    #[serde(borrow, rename = "ttlMs")]
    pub(crate) ttl: Option<&'a RawValue>,
    #[serde(borrow, rename = "cacheScope")]
    pub(crate) scope: Option<&'a RawValue>,
}

impl CacheHint {
    /// Reads the cache hints of any result. Fails only if the result is not a JSON object.
    pub fn parse(raw: &[u8]) -> Result<Self, DecodeError> {
        let hints: Hints<'_> = decode(raw)?;
        Ok(hints.read())
    }
}

impl Hints<'_> {
    pub(crate) fn read(&self) -> CacheHint {
        // Negative, fractional or malformed: not cacheable.
        let ttl = self
            .ttl
            .and_then(|ttl| ttl.get().parse().ok())
            .map_or(Duration::ZERO, Duration::from_millis);
        let scope = match self.scope.map(RawValue::get) {
            Some("\"public\"") => CacheScope::Public,
            _ => CacheScope::Private,
        };
        CacheHint { ttl, scope }
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

#[cfg(test)]
mod cache_hint_tests {
    use super::*;

    #[track_caller]
    fn check(json: &str, ttl: u64, scope: CacheScope) {
        let expected = CacheHint { ttl: Duration::from_millis(ttl), scope };
        assert_eq!(CacheHint::parse(json.as_bytes()).unwrap(), expected, "{json}");
    }

    /// Protocol facts §14.6.
    #[test]
    fn unclear_cache_hints_are_stale_and_private() {
        check(r#"{"ttlMs":60000,"cacheScope":"public","x":[1]}"#, 60_000, CacheScope::Public);
        check(r#"{"ttlMs": 0 ,"cacheScope":"private"}"#, 0, CacheScope::Private);
        check("{}", 0, CacheScope::Private);
        check(r#"{"ttlMs":null,"cacheScope":null}"#, 0, CacheScope::Private);
        check(r#"{"ttlMs":-1,"cacheScope":"shared"}"#, 0, CacheScope::Private);
        check(r#"{"ttlMs":"5","cacheScope":7}"#, 0, CacheScope::Private);
        check(r#"{"ttlMs":1.5}"#, 0, CacheScope::Private);
        check(r#"{"ttlMs":99999999999999999999}"#, 0, CacheScope::Private);
    }

    #[test]
    fn non_objects_have_no_cache_hints() {
        assert!(CacheHint::parse(b"[]").is_err());
    }
}
