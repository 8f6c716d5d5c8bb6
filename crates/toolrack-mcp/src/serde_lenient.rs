//! Lenient serde helpers for members that real servers get wrong, and for optional fields of list entries.
//!
//! **Invariant:** these functions accept any well-formed JSON, except where their docs say otherwise.

use std::borrow::Cow;
use std::marker::PhantomData;

use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::content::Role;
use crate::error::DecodeError;

/// A string that borrows from the input unless it has escapes. `Option<Cow<str>>` would always copy.
#[derive(Debug, Clone, Deserialize)]
#[serde(transparent)]
pub(crate) struct Text<'a>(#[serde(borrow)] pub(crate) Cow<'a, str>);

/// Distinguishes `null` from an absent member, which serde's `Option` does not.
pub(crate) fn present<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    T::deserialize(deserializer).map(Some)
}

/// Reads an optional member: a value of the wrong type counts as absent.
pub(crate) fn or_absent<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    // Raw first: a typed read that fails would leave the deserializer in the middle of the value.
    let raw: Box<RawValue> = Deserialize::deserialize(deserializer)?;
    Ok(serde_json::from_str(raw.get()).unwrap_or_default())
}

/// Like [`or_absent`], with the default for any unreadable value, `null` included.
pub(crate) fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned + Default,
{
    or_absent(deserializer).map(Option::unwrap_or_default)
}

/// A capability flag: an empty object. On input, anything but `null` and `false` counts.
pub(crate) mod flag {
    use serde::ser::{SerializeMap as _, Serializer};
    use serde::{Deserialize as _, Deserializer};
    use serde_json::value::RawValue;

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<bool, D::Error> {
        let raw: Box<RawValue> = Box::deserialize(input)?;
        Ok(!matches!(raw.get(), "null" | "false"))
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes the field by reference")]
    pub(crate) fn serialize<S: Serializer>(_is_on: &bool, output: S) -> Result<S::Ok, S::Error> {
        output.serialize_map(Some(0))?.end()
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes the field by reference")]
pub(crate) fn is_off(switch: &bool) -> bool {
    !switch
}

/// The integer that a float stands for: some peers write `1` as `1.0`. Above 2^53 a float is no longer exact.
pub(crate) fn as_integer(number: f64) -> Option<i64> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if number.fract() != 0.0 || number.abs() > EXACT {
        return None;
    }
    #[expect(clippy::cast_possible_truncation, reason = "whole and within 2^53, checked above")]
    Some(number as i64)
}

/// Keeps an object as written. Fails on anything else.
pub(crate) fn object<'de, D>(deserializer: D) -> Result<Box<RawValue>, D::Error>
where
    D: Deserializer<'de>,
{
    let raw: Box<RawValue> = Deserialize::deserialize(deserializer)?;
    if is_object(&raw) { Ok(raw) } else { Err(D::Error::custom("not an object")) }
}

/// Reads a payload, which must be an object. Derived implementations would also accept an array.
pub(crate) fn decode<'a, T: Deserialize<'a>>(raw: &'a [u8]) -> Result<T, DecodeError> {
    if raw.trim_ascii_start().first() != Some(&b'{') {
        return Err(DecodeError::Shape(serde_json::Error::custom("not an object")));
    }
    Ok(serde_json::from_slice(raw)?)
}

/// Reads parameters. Absent parameters (an empty slice) are the same as `{}`.
pub(crate) fn decode_params<'a, T: Deserialize<'a>>(params: &'a [u8]) -> Result<T, DecodeError> {
    decode(if params.is_empty() { b"{}" } else { params })
}

/// Keeps a value as written if it parses as `T`. Anything else counts as absent.
pub(crate) fn fitting<'de, D, T>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    let raw: Box<RawValue> = Deserialize::deserialize(deserializer)?;
    Ok(fits::<T>(&raw).then_some(raw))
}

/// Whether a value parses as `T`.
pub(crate) fn fits<T: DeserializeOwned>(raw: &RawValue) -> bool {
    serde_json::from_str::<T>(raw.get()).is_ok()
}

pub(crate) fn is_object(raw: &RawValue) -> bool {
    // A raw value has no whitespace around it.
    raw.get().starts_with('{')
}

/// A `T` that is written as an object. Derived implementations would also accept an array.
pub(crate) struct Object<T>(PhantomData<T>);

impl<'de, T: DeserializeOwned> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = object(deserializer)?;
        serde_json::from_str::<T>(raw.get()).map_err(D::Error::custom)?;
        Ok(Self(PhantomData))
    }
}

/// Icons, since 2025-11-25.
pub(crate) type Icons = Vec<Object<Icon>>;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "parsed only to validate it")]
pub(crate) struct Icon {
    src: String,
    mime_type: Option<String>,
    sizes: Option<Vec<String>>,
    theme: Option<String>,
}

/// `execution` of a tool, in 2025-11-25.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Execution {
    pub(crate) task_support: Option<TaskSupport>,
}

#[derive(PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum TaskSupport {
    Forbidden,
    Optional,
    Required,
}

/// Audience and priority.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "parsed only to validate it")]
pub(crate) struct Annotations {
    audience: Option<Vec<Role>>,
    priority: Option<f64>,
    last_modified: Option<String>,
}

#[cfg(test)]
mod optional_fields_tests {
    use super::*;
    use crate::prompt::Prompt;
    use crate::resource::{Resource, ResourceTemplate};
    use crate::tool::Tool;

    #[track_caller]
    fn check<T: DeserializeOwned + serde::Serialize>(sound: &str, with: &[&str]) {
        for odd in with {
            let json = format!("{},{odd}}}", sound.strip_suffix('}').unwrap());
            let read: T = serde_json::from_str(&json).unwrap();
            assert_eq!(serde_json::to_string(&read).unwrap(), sound, "{odd}");
        }
    }

    #[test]
    fn malformed_optional_fields_count_as_absent() {
        let everybody = [
            r#""title":[]"#,
            r#""description":5"#,
            r#""icons":"x""#,
            r#""icons":[5]"#,
            r#""icons":[{"src":5}]"#,
            r#""_meta":5"#,
            r#""_meta":[]"#,
            r#""annotations":5"#,
            r#""icons":[["x"]]"#,
        ];
        let tool = r#"{"name":"a","inputSchema":{}}"#;
        check::<Tool>(tool, &everybody);
        let only = [r#""outputSchema":7"#, r#""execution":5"#, r#""execution":{"taskSupport":1}"#];
        check::<Tool>(tool, &only);
        check::<Prompt>(r#"{"name":"a"}"#, &everybody);
        check::<Prompt>(
            r#"{"name":"a","arguments":[{"name":"x"}]}"#,
            &[r#""x":1"#, r#""title":7"#],
        );
        let resource = [r#""mimeType":5"#, r#""annotations":{"audience":"x"}"#, r#""size":"x""#];
        check::<Resource>(r#"{"uri":"u:","name":"a"}"#, &everybody);
        check::<Resource>(r#"{"uri":"u:","name":"a"}"#, &resource);
        check::<ResourceTemplate>(r#"{"uriTemplate":"u:","name":"a"}"#, &everybody);
        check::<ResourceTemplate>(r#"{"uriTemplate":"u:","name":"a"}"#, &resource[..2]);
    }

    #[test]
    fn valid_optional_fields_are_kept_byte_for_byte() {
        let json = concat!(
            r#"{"name":"a","inputSchema":{},"icons":[{ "src":"x","sizes":["1x1"],"new":1 }],"#,
            r#""execution":{ "taskSupport":"optional" },"_meta":{ "a":1 }}"#
        );
        let tool: Tool = serde_json::from_str(json).unwrap();
        assert_eq!(serde_json::to_string(&tool).unwrap(), json);
    }
}
