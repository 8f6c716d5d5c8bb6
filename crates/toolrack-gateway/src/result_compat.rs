//! Results between the eras: the few members at the top that one era has and the other has not.
//!
//! **Invariant:** only members at the top of a result are added or left out. Every other byte stays.

use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use toolrack_mcp::{Era, Method};
use toolrack_transport::{RawJson, write_text};

const RESULT_TYPE: &str = "resultType";
/// What only modern results have.
const MODERN_ONLY: [&str; 3] = [RESULT_TYPE, "ttlMs", "cacheScope"];

/// Makes a server's result into one that a client of `era` understands.
pub(crate) fn reshape(raw: RawJson, era: Era, method: Method) -> RawJson {
    let may_say_type = memchr::memmem::find(raw.as_bytes(), br#""resultType""#).is_some();
    match era {
        Era::Legacy if !may_say_type => raw,
        Era::Legacy => without(&raw, &MODERN_ONLY).unwrap_or(raw),
        Era::Modern if may_say_type && says_type(&raw) => raw,
        Era::Modern => completed(&raw, method).unwrap_or(raw),
    }
}

/// Spec 2026-07-28, basic §Result Types and caching: what a modern result must say.
fn completed(raw: &RawJson, method: Method) -> Option<RawJson> {
    let hints =
        if method == Method::ReadResource { r#","ttlMs":0,"cacheScope":"private""# } else { "" };
    let rest = raw.as_bytes().trim_ascii().strip_prefix(b"{")?;
    let comma: &[u8] = if rest.trim_ascii_start().starts_with(b"}") { b"" } else { b"," };
    let head = format!(r#"{{"{RESULT_TYPE}":"complete"{hints}"#);
    Some(RawJson::new([head.as_bytes(), comma, rest].concat()))
}

fn says_type(raw: &RawJson) -> bool {
    top_level(raw).is_some_and(|it| it.iter().any(|(key, _)| key == RESULT_TYPE))
}

fn without(raw: &RawJson, names: &[&str]) -> Option<RawJson> {
    let members = top_level(raw)?;
    let mut out = vec![b'{'];
    for (key, value) in members.iter().filter(|(key, _)| !names.contains(&key.as_str())) {
        if out.len() > 1 {
            out.push(b',');
        }
        write_text(&mut out, key).ok()?;
        out.push(b':');
        out.extend_from_slice(value.get().as_bytes());
    }
    out.push(b'}');
    Some(RawJson::new(out))
}

/// The members of an object, in their order.
pub(crate) fn top_level(raw: &RawJson) -> Option<Vec<(String, &RawValue)>> {
    raw.decode::<Members<'_>>().ok().map(|it| it.0)
}

struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(raw: &str, era: Era, method: Method, expected: &str) {
        let shaped = reshape(RawJson::new(raw.to_owned()), era, method);
        assert_eq!(String::from_utf8_lossy(shaped.as_bytes()), expected, "{raw} for {era:?}");
    }

    #[test]
    fn a_modern_client_is_told_the_kind_of_a_result() {
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
    fn a_legacy_client_is_spared_what_it_does_not_know() {
        let legacy = |raw, expected| check(raw, Era::Legacy, Method::CallTool, expected);
        legacy(r#"{"content":[ 1.0 ]}"#, r#"{"content":[ 1.0 ]}"#);
        legacy(
            r#"{"resultType":"complete","content":[ {"resultType":1.50} ],"ttlMs":5}"#,
            r#"{"content":[ {"resultType":1.50} ]}"#,
        );
        legacy("[]", "[]");
    }
}
