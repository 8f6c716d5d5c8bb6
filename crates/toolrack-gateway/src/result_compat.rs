//! Adapts results between protocol eras: adds or removes the few top-level members that only one era has.
//!
//! **Invariant:** only top-level members of a result are added or removed. The rest is forwarded byte for byte.

use toolrack_mcp::{Era, Method, object_members};
use toolrack_transport::{RawJson, write_string};

const RESULT_TYPE: &str = "resultType";
/// Members that only modern results have.
const MODERN_ONLY: [&str; 3] = [RESULT_TYPE, "ttlMs", "cacheScope"];

/// Converts a server's result for a client of `era`.
pub(crate) fn adapt_result(raw: RawJson, era: Era, method: Method) -> RawJson {
    // A substring search is enough to leave most results untouched; only a hit costs a parse.
    let may_have_type = memchr::memmem::find(raw.as_bytes(), br#""resultType""#).is_some();
    let has_type = || {
        let members = raw.as_raw_value().ok().and_then(object_members).unwrap_or_default();
        members.contains_key(RESULT_TYPE)
    };
    match era {
        Era::Legacy if !may_have_type => raw,
        Era::Legacy => without_modern_members(&raw).unwrap_or(raw),
        Era::Modern if may_have_type && has_type() => raw,
        Era::Modern => add_modern_members(&raw, method).unwrap_or(raw),
    }
}

/// Spec 2026-07-28, basic §Result Types and caching: members that a modern result must have.
fn add_modern_members(raw: &RawJson, method: Method) -> Option<RawJson> {
    let cache_hints =
        if method == Method::ReadResource { r#","ttlMs":0,"cacheScope":"private""# } else { "" };
    let rest = raw.as_bytes().trim_ascii().strip_prefix(b"{")?;
    let comma: &[u8] = if rest.trim_ascii_start().starts_with(b"}") { b"" } else { b"," };
    let head = format!(r#"{{"{RESULT_TYPE}":"complete"{cache_hints}"#);
    Some(RawJson::new([head.as_bytes(), comma, rest].concat()))
}

fn without_modern_members(raw: &RawJson) -> Option<RawJson> {
    let members = object_members(raw.as_raw_value().ok()?)?;
    let kept = members.iter().filter(|(key, _)| !MODERN_ONLY.contains(&key.as_str()));
    write_object(kept.map(|(key, value)| (key.as_str(), value.get())))
}

/// A JSON object with these members, whose values are JSON.
pub(crate) fn write_object<'a>(
    members: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Option<RawJson> {
    let mut out = vec![b'{'];
    for (key, value) in members {
        if out.len() > 1 {
            out.push(b',');
        }
        write_string(&mut out, key).ok()?;
        out.push(b':');
        out.extend_from_slice(value.as_bytes());
    }
    out.push(b'}');
    Some(RawJson::new(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(raw: &str, era: Era, method: Method, expected: &str) {
        let adapted = adapt_result(RawJson::new(raw.to_owned()), era, method);
        assert_eq!(String::from_utf8_lossy(adapted.as_bytes()), expected, "{raw} for {era:?}");
    }

    #[test]
    fn modern_client_gets_result_type() {
        let modern = |raw, expected| check(raw, Era::Modern, Method::CallTool, expected);
        modern("{}", r#"{"resultType":"complete"}"#);
        modern("{ }", r#"{"resultType":"complete" }"#);
        modern(r#"{"content":[ 1.0 ]}"#, r#"{"resultType":"complete","content":[ 1.0 ]}"#);
        modern(
            r#"{"a":1,"resultType":"input_required"}"#,
            r#"{"a":1,"resultType":"input_required"}"#,
        );
        modern(r#"{"a":"\"resultType\""}"#, r#"{"resultType":"complete","a":"\"resultType\""}"#);
        modern(r#"{"a":{"resultType":1}}"#, r#"{"resultType":"complete","a":{"resultType":1}}"#);
        check(
            r#"{"contents":[]}"#,
            Era::Modern,
            Method::ReadResource,
            r#"{"resultType":"complete","ttlMs":0,"cacheScope":"private","contents":[]}"#,
        );
    }

    #[test]
    fn legacy_client_gets_no_modern_members() {
        let legacy = |raw, expected| check(raw, Era::Legacy, Method::CallTool, expected);
        legacy(r#"{"content":[ 1.0 ]}"#, r#"{"content":[ 1.0 ]}"#);
        legacy(
            r#"{"resultType":"complete","content":[ {"resultType":1.50} ],"ttlMs":5}"#,
            r#"{"content":[ {"resultType":1.50} ]}"#,
        );
        legacy("[]", "[]");
    }
}
