//! How long a result may be kept, and for whom.
//!
//! **Invariant:** whatever a server writes here, the reading is the careful one: stale at once, and
//! for the asker alone.

use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::error::DecodeError;
use crate::serde_lenient::decode;

/// The cache hints of a result. The default is what the absence of hints means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheHint {
    /// How long after its receipt the result is fresh. Zero is stale at once.
    pub ttl: Duration,
    /// Who may be given the kept result.
    pub scope: CacheScope,
}

/// Who may be given a kept result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CacheScope {
    /// Everybody.
    Public,
    /// Only whoever presented the same authorization.
    #[default]
    Private,
}

/// The members of a result that are hints, as they are written.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Hints<'a> {
    #[serde(borrow, rename = "ttlMs")]
    pub(crate) ttl: Option<&'a RawValue>,
    #[serde(borrow, rename = "cacheScope")]
    pub(crate) scope: Option<&'a RawValue>,
}

impl CacheHint {
    /// Reads the hints of any result. Fails only if it is no JSON object.
    pub fn parse(raw: &[u8]) -> Result<Self, DecodeError> {
        let hints: Hints<'_> = decode(raw)?;
        Ok(hints.read())
    }
}

impl Hints<'_> {
    pub(crate) fn read(&self) -> CacheHint {
        // Negative, fractional or malformed: nothing may be kept.
        let ttl = self
            .ttl
            .and_then(|it| it.get().parse().ok())
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
    fn check(json: &str, ttl: u64, scope: CacheScope) {
        let expected = CacheHint { ttl: Duration::from_millis(ttl), scope };
        assert_eq!(CacheHint::parse(json.as_bytes()).unwrap(), expected, "{json}");
    }

    /// Protocol facts §14.6.
    #[test]
    fn anything_unclear_is_stale_and_private() {
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
    fn what_is_no_object_has_no_hints() {
        assert!(CacheHint::parse(b"[]").is_err());
    }
}
