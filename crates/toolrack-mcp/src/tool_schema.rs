//! What the schema of a tool has to look like, so that one tool of one server does not cost a client its whole list.
//!
//! Strict clients refuse a list of tools as a whole if a single schema in it is out of shape.
//!
//! **Invariant:** only the outermost members are looked at. Everything within is kept byte for byte.

use std::borrow::Cow;

use serde::de::Error as _;
use serde::{Deserialize as _, Deserializer};
use serde_json::value::RawValue;

use crate::serde_lenient::{Ordered, object};

const TYPE: &str = "type";
const PROPERTIES: &str = "properties";
const REQUIRED: &str = "required";

/// Reads the schema of a tool's arguments. Fails if no client could take it for one.
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

/// Keeps a schema of results as it is written. What is none counts as absent.
pub(crate) fn output_schema<'de, D>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error>
where
    D: Deserializer<'de>,
{
    let raw: Box<RawValue> = Box::deserialize(deserializer)?;
    Ok(raw.get().starts_with('{').then_some(raw))
}

fn flaw(schema: &RawValue) -> Option<&'static str> {
    let members = outline(schema)?;
    // Servers in languages where an empty list is nil write it as `null`. That is left out for clients.
    let given = |name: &str| member(&members, name).filter(|it| it.get() != "null");
    if given(TYPE).is_some_and(|it| it.get() != r#""object""#) {
        return Some("is not of the type `object`");
    }
    if let Some(properties) = given(PROPERTIES) {
        let Some(each) = outline(properties) else {
            return Some("has properties that are no object");
        };
        if !each.iter().all(|(_, it)| is_schema(it)) {
            return Some("has a property that is no schema");
        }
    }
    let is_unsound = |it: &RawValue| serde_json::from_str::<Vec<String>>(it.get()).is_err();
    given(REQUIRED).is_some_and(is_unsound).then_some("has a `required` that is no list of names")
}

/// The members of an object as they are written.
fn outline(raw: &RawValue) -> Option<Vec<(String, &RawValue)>> {
    serde_json::from_str(raw.get()).ok().map(|Ordered(members)| members)
}

fn member<'a>(members: &[(String, &'a RawValue)], name: &str) -> Option<&'a RawValue> {
    members.iter().find(|(key, _)| key == name).map(|(_, value)| *value)
}

fn is_schema(raw: &RawValue) -> bool {
    matches!(raw.get().as_bytes().first(), Some(b'{' | b't' | b'f'))
}

/// Whether a schema is that of an object, as results had to be before 2026-07-28.
pub fn is_object_schema(schema: &RawValue) -> bool {
    let members = outline(schema).unwrap_or_default();
    member(&members, TYPE).is_some_and(|it| it.get() == r#""object""#)
}

/// The schema of a tool's arguments as strict clients want it: it says that it is one of an object, and has no member
/// that is `null` instead of missing.
pub fn strict_schema(schema: &RawValue) -> Cow<'_, RawValue> {
    let Some(members) = outline(schema) else { return Cow::Borrowed(schema) };
    let is_void = |(key, value): &(String, &RawValue)| {
        value.get() == "null" && [TYPE, PROPERTIES, REQUIRED].contains(&key.as_str())
    };
    if member(&members, TYPE).is_some() && !members.iter().any(is_void) {
        return Cow::Borrowed(schema);
    }
    let rest = members.iter().filter(|it| it.0 != TYPE && !is_void(it));
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
    fn a_schema_that_no_client_takes_is_found_out() {
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
    fn a_schema_is_mended_only_where_it_says_nothing() {
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
