//! Cache hints of a result: `ttlMs` and `cacheScope`.
//!
//! **Invariant:** a missing or malformed hint is read as the safe value: stale at once, and private.

use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::error::DecodeError;
use crate::serde_lenient::decode;

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
