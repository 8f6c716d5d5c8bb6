//! Tool schemas: repairs or rejects the outermost members of input and output schemas.
//!
//! Strict clients reject a whole tool list because of one malformed schema.
//!
//! **Invariant:** only the outermost members are inspected. Nested content is kept byte for byte.

use std::borrow::Cow;

use serde::de::Error as _;
use serde::{Deserialize as _, Deserializer};
use serde_json::value::RawValue;

use crate::serde_lenient::{Ordered, object};

const TYPE: &str = "type";
const PROPERTIES: &str = "properties";
const REQUIRED: &str = "required";

/// Reads an input schema. Fails if no client could use it.
pub(crate) fn input_schema<'de, D>(deserializer: D) -> Result<Box<RawValue>, D::Error>
where
    D: Deserializer<'de>,
{
    let schema = object(deserializer)?;
    match flaw(&schema) {
        Some(flaw) => Err(D::Error::custom(format_args!("inputSchema {flaw}"))),
        None => Ok(schema),
    }
}

/// Keeps an output schema as written. An invalid one counts as absent.
pub(crate) fn output_schema<'de, D>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error>
where
    D: Deserializer<'de>,
{
    let raw: Box<RawValue> = Box::deserialize(deserializer)?;
    Ok(raw.get().starts_with('{').then_some(raw))
}

fn flaw(schema: &RawValue) -> Option<&'static str> {
    let members = outline(schema)?;
    // Servers in languages with nil lists write an empty list as `null`. It is omitted for clients.
    let given = |name: &str| member(&members, name).filter(|value| value.get() != "null");
    // A missing type is repaired by `strict_schema`; another type cannot be.
    if given(TYPE).is_some_and(|value| value.get() != r#""object""#) {
        return Some("is not of the type `object`");
    }
    if let Some(properties) = given(PROPERTIES) {
        let Some(each) = outline(properties) else {
            return Some("has properties that are no object");
        };
        if !each.iter().all(|(_, schema)| is_schema(schema)) {
            return Some("has a property that is no schema");
        }
    }
    let is_unsound = |value: &RawValue| serde_json::from_str::<Vec<String>>(value.get()).is_err();
    given(REQUIRED).is_some_and(is_unsound).then_some("has a `required` that is no list of names")
}

/// Members of an object, as written.
fn outline(raw: &RawValue) -> Option<Vec<(String, &RawValue)>> {
    serde_json::from_str(raw.get()).ok().map(|Ordered(members)| members)
}

fn member<'a>(members: &[(String, &'a RawValue)], name: &str) -> Option<&'a RawValue> {
    members.iter().find(|(key, _)| key == name).map(|(_, value)| *value)
}

fn is_schema(raw: &RawValue) -> bool {
    // `true` and `false` are schemas too.
    matches!(raw.get().as_bytes().first(), Some(b'{' | b't' | b'f'))
}

/// Whether the schema is an object schema, as output schemas had to be before 2026-07-28.
pub fn is_object_schema(schema: &RawValue) -> bool {
    let members = outline(schema).unwrap_or_default();
    member(&members, TYPE).is_some_and(|value| value.get() == r#""object""#)
}

/// The input schema for strict clients: `type` is `object`, and no member
/// is `null`.
pub fn strict_schema(schema: &RawValue) -> Cow<'_, RawValue> {
    let Some(members) = outline(schema) else { return Cow::Borrowed(schema) };
    let is_void = |(key, value): &(String, &RawValue)| {
        value.get() == "null" && [TYPE, PROPERTIES, REQUIRED].contains(&key.as_str())
    };
    if member(&members, TYPE).is_some() && !members.iter().any(is_void) {
        return Cow::Borrowed(schema);
    }
    let rest = members.iter().filter(|member| member.0 != TYPE && !is_void(member));
    let mut text = format!(r#"{{"{TYPE}":"object""#);
    for (key, value) in rest {
        text.push(',');
        text.push_str(&serde_json::Value::from(key.as_str()).to_string());
        text.push(':');
        text.push_str(value.get());
    }
    text.push('}');
    RawValue::from_string(text).map_or(Cow::Borrowed(schema), Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(json: &str) -> Box<RawValue> {
        RawValue::from_string(json.to_owned()).unwrap()
    }

    #[test]
    fn unusable_schema_is_rejected() {
        let check = |json: &str, expected: Option<&str>| {
            assert_eq!(flaw(&raw(json)), expected, "{json}");
        };
        check("{}", None);
        check(r#"{"type":"object","properties":{"a":{},"b":true},"required":["a"]}"#, None);
        check(r#"{"properties":null,"required":null,"type":null}"#, None);
        check(r#"{"type":"string"}"#, Some("is not of the type `object`"));
        check(r#"{"type":["object"]}"#, Some("is not of the type `object`"));
        check(r#"{"properties":5}"#, Some("has properties that are no object"));
        check(r#"{"properties":{"x":5}}"#, Some("has a property that is no schema"));
        check(r#"{"required":"x"}"#, Some("has a `required` that is no list of names"));
        check(r#"{"required":[5]}"#, Some("has a `required` that is no list of names"));
    }

    #[test]
    fn schema_is_repaired_only_where_it_is_silent() {
        let check = |json: &str, expected: &str| {
            assert_eq!(strict_schema(&raw(json)).get(), expected);
        };
        check(r#"{ "type" : "object" }"#, r#"{ "type" : "object" }"#);
        check("{}", r#"{"type":"object"}"#);
        check(r#"{"a\"b": 1.50,"x":[ ]}"#, r#"{"type":"object","a\"b":1.50,"x":[ ]}"#);
        check(r#"{"type":"object","required":null,"x":null}"#, r#"{"type":"object","x":null}"#);
        assert!(is_object_schema(&raw(r#"{"type":"object"}"#)));
        assert!(!is_object_schema(&raw("{}")) && !is_object_schema(&raw(r#"{"type":"array"}"#)));
    }
}
