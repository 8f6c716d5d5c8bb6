//! Tool schemas: repairs or rejects the outermost members of input and output schemas.
//!
//! Strict clients reject a whole tool list because of one malformed schema.
//!
//! **Invariant:** only the outermost members are inspected. Nested content is kept byte for byte.

use std::borrow::Cow;
use std::fmt;

use indexmap::IndexMap;
use serde::de::{Error as _, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::json_scan::sound_schema_depth;
use crate::serde_lenient::Text;

const TYPE: &str = "type";
const OBJECT: &str = r#""object""#;

/// The input schema of a tool without one.
pub(crate) fn any_arguments() -> Box<RawValue> {
    RawValue::from_string(format!(r#"{{"{TYPE}":{OBJECT}}}"#)).unwrap_or_default()
}

/// Reads an input schema; `null` is none. Fails if no client could use it.
pub(crate) fn input_schema<'de, D>(deserializer: D) -> Result<Box<RawValue>, D::Error>
where
    D: Deserializer<'de>,
{
    let schema: Box<RawValue> = Box::deserialize(deserializer)?;
    match schema.get() {
        "null" => Ok(any_arguments()),
        // A raw value has no whitespace around it.
        text if !text.starts_with('{') => Err(D::Error::custom("inputSchema is not an object")),
        text if sound_schema_depth(text).is_some() => Ok(schema),
        _ => match flaw(&schema) {
            Some(flaw) => Err(D::Error::custom(format_args!("inputSchema {flaw}"))),
            None => Ok(schema),
        },
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

/// The members that clients depend on. `null` counts as absent: servers in languages with nil lists write an
/// empty list as `null`, and it is omitted for clients.
#[derive(Deserialize)]
struct Outline<'a, P, R> {
    #[serde(borrow, rename = "type")]
    kind: Option<&'a RawValue>,
    properties: Option<P>,
    required: Option<R>,
}

fn flaw(schema: &RawValue) -> Option<&'static str> {
    // A missing type is repaired by `strict_schema`; another type cannot be.
    let is_other_type = |kind: &RawValue| kind.get() != OBJECT;
    let Outline { kind, properties, required } = outline(schema)?;
    let properties = properties.map(|raw| serde_json::from_str::<Properties>(raw.get()));
    let names = required.map(|raw| serde_json::from_str::<Vec<Text<'_>>>(raw.get()));
    match (properties, names) {
        _ if kind.is_some_and(is_other_type) => Some("is not of the type `object`"),
        (Some(Err(_)), _) => Some("has properties that are no object"),
        (Some(Ok(properties)), _) if !properties.are_schemas => {
            Some("has a property that is no schema")
        }
        (_, Some(Err(_))) => Some("has a `required` that is no list of names"),
        _ => None,
    }
}

/// The outline of an object.
fn outline(schema: &RawValue) -> Option<Outline<'_, &RawValue, &RawValue>> {
    serde_json::from_str(schema.get()).ok().or_else(|| {
        let members = object_members(schema)?;
        let member = |name| members.get(name).copied().filter(|value| value.get() != "null");
        let (kind, properties, required) =
            (member("type"), member("properties"), member("required"));
        Some(Outline { kind, properties, required })
    })
}

struct Properties {
    are_schemas: bool,
}

impl<'de> Deserialize<'de> for Properties {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PropertiesVisitor;
        impl<'de> Visitor<'de> for PropertiesVisitor {
            type Value = Properties;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Properties, A::Error> {
                let mut are_schemas = true;
                while let Some((IgnoredAny, schema)) = map.next_entry::<_, &RawValue>()? {
                    // `true` and `false` are schemas too.
                    are_schemas &= schema.get().starts_with(['{', 't', 'f']);
                }
                Ok(Properties { are_schemas })
            }
        }
        deserializer.deserialize_map(PropertiesVisitor)
    }
}

/// Members of a JSON object in their order, as written. Of a repeated member the last one counts.
pub fn object_members(raw: &RawValue) -> Option<IndexMap<String, &RawValue>> {
    serde_json::from_str(raw.get()).ok()
}

/// Whether the schema is an object schema, as output schemas had to be before 2026-07-28.
pub fn is_object_schema(schema: &RawValue) -> bool {
    outline(schema).and_then(|outline| outline.kind).is_some_and(|kind| kind.get() == OBJECT)
}

/// The input schema for strict clients: `type` is `object`, and no member
/// is `null`.
pub fn strict_schema(schema: &RawValue) -> Cow<'_, RawValue> {
    let Some(members) = object_members(schema) else { return Cow::Borrowed(schema) };
    let is_void = |(key, value): &(&String, &&RawValue)| {
        value.get() == "null" && [TYPE, "properties", "required"].contains(&key.as_str())
    };
    if members.contains_key(TYPE) && !members.iter().any(|member| is_void(&member)) {
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
        // Of a repeated member the last one counts.
        check(r#"{"type":"string","type":"object"}"#, None);
        check(r#"{"type":"object","type":"string"}"#, Some("is not of the type `object`"));
        check(r#"{"properties":5,"properties":5}"#, Some("has properties that are no object"));
        check(r#"{"\u0074ype":"string"}"#, Some("is not of the type `object`"));
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
