//! `x-mcp-header`: tool arguments that HTTP repeats in request headers.
//!
//! Spec 2026-07-28, transports §Custom Headers: a property with `x-mcp-header` is repeated in a header, and a
//! tool with invalid annotations must not be offered.
//!
//! **Invariant:** [`ParamHeaders`] holds only properties that are reachable from the root by `properties`
//! alone, each with a unique header.

use std::collections::HashSet;

use memchr::memmem;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::call::Arguments;
use crate::serde_lenient::as_integer;

const KEYWORD: &str = "x-mcp-header";

/// Keywords whose members are schemas with names of the server's choice.
const MAPS: &[&str] =
    &["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"];

/// Keywords with example data, which contains no schemas.
const DATA: &[&str] = &["default", "examples", "const", "enum"];

/// The largest integer that every JSON parser reads exactly.
const MAX_INTEGER: u64 = (1 << 53) - 1;

/// Arguments of a tool that become headers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParamHeaders {
    entries: Box<[Mirrored]>,
}

/// An argument and its header.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mirrored {
    header: String,
    path: Box<[String]>,
}

/// Why a tool must not be offered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the header of property `{property}` {reason}")]
pub struct ParamHeadersError {
    property: String,
    reason: &'static str,
}

impl ParamHeaders {
    /// Reads the annotations of an input schema. `None` if there are none.
    pub fn from_schema(schema: &RawValue) -> Result<Option<Self>, ParamHeadersError> {
        // Few tools have annotations, and most schemas are long: skip the parse without a match.
        if memmem::find(schema.get().as_bytes(), KEYWORD.as_bytes()).is_none() {
            return Ok(None);
        }
        let Ok(schema) = serde_json::from_str::<Value>(schema.get()) else { return Ok(None) };
        let mut walk = Walk::default();
        walk.reachable(&schema, &mut Vec::new())?;
        let entries = walk.found.into_boxed_slice();
        Ok((!entries.is_empty()).then_some(Self { entries }))
    }

    /// The header names.
    pub fn headers(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|entry| entry.header.as_str())
    }

    /// Calls `add` with the header name and value of each argument that is present.
    pub fn for_each(&self, arguments: Arguments<'_>, add: &mut dyn FnMut(&str, &str)) {
        let parsed;
        let arguments = match arguments {
            Arguments::Value(value) => value,
            Arguments::Raw(raw) => match serde_json::from_str::<Value>(raw.get()) {
                Ok(value) => {
                    parsed = value;
                    &parsed
                }
                Err(_not_ours_to_judge) => return,
            },
        };
        for Mirrored { header, path } in &self.entries {
            let value = path.iter().try_fold(arguments, |value, name| value.get(name));
            if let Some(text) = value.and_then(header_text) {
                add(header, &text);
            }
        }
    }
}

/// Header text of a value; `None` for a value that cannot be a header.
fn header_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Number(number) => {
            // `1.0` is an integer in JSON Schema.
            let whole = number.as_i64().or_else(|| as_integer(number.as_f64()?))?;
            (whole.unsigned_abs() <= MAX_INTEGER).then(|| whole.to_string())
        }
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

#[derive(Default)]
struct Walk {
    found: Vec<Mirrored>,
    taken: HashSet<String>,
}

impl Walk {
    /// A schema that is reachable by `properties` alone.
    fn reachable(
        &mut self,
        schema: &Value,
        path: &mut Vec<String>,
    ) -> Result<(), ParamHeadersError> {
        let Value::Object(members) = schema else { return Ok(()) };
        if let Some(name) = members.get(KEYWORD) {
            self.annotated(name, members, path)?;
        }
        for (keyword, value) in members {
            match (keyword.as_str(), value) {
                (KEYWORD, _) => {}
                ("properties", Value::Object(properties)) => {
                    for (name, property) in properties {
                        path.push(name.clone());
                        self.reachable(property, path)?;
                        path.pop();
                    }
                }
                _ => unreachable_from(keyword, value, path)?,
            }
        }
        Ok(())
    }

    fn annotated(
        &mut self,
        name: &Value,
        members: &Map<String, Value>,
        path: &[String],
    ) -> Result<(), ParamHeadersError> {
        let kind = members.get("type").and_then(Value::as_str);
        let name = name.as_str().unwrap_or_default();
        let is_token = !name.is_empty() && name.bytes().all(is_token_byte);
        if !is_token {
            return Err(fault(path, "has a name that no header can have"));
        }
        // Spec 2026-07-28: `number` is not allowed, although early clients accepted it.
        if !matches!(kind, Some("string" | "integer" | "boolean")) {
            return Err(fault(path, "is for a value that is no string, integer or boolean"));
        }
        // Header names are case-insensitive.
        if !self.taken.insert(name.to_ascii_lowercase()) {
            return Err(fault(path, "is used twice"));
        }
        self.found.push(Mirrored { header: name.to_owned(), path: path.into() });
        Ok(())
    }
}

/// Rejects annotations below any other keyword.
fn unreachable_from(
    keyword: &str,
    value: &Value,
    path: &[String],
) -> Result<(), ParamHeadersError> {
    if DATA.contains(&keyword) {
        return Ok(());
    }
    let inside = |value: &Value| match value {
        Value::Object(members) => no_annotation(members, path),
        _ => Ok(()),
    };
    match value {
        // The keys are names, not keywords: a property may be called `x-mcp-header`.
        Value::Object(named) if MAPS.contains(&keyword) => named.values().try_for_each(inside),
        Value::Object(members) => no_annotation(members, path),
        Value::Array(items) => items.iter().try_for_each(inside),
        _ => Ok(()),
    }
}

fn no_annotation(members: &Map<String, Value>, path: &[String]) -> Result<(), ParamHeadersError> {
    if members.contains_key(KEYWORD) {
        return Err(fault(path, "is in a place that not every call has"));
    }
    members.iter().try_for_each(|(keyword, value)| unreachable_from(keyword, value, path))
}

fn fault(path: &[String], reason: &'static str) -> ParamHeadersError {
    ParamHeadersError { property: path.join("."), reason }
}

/// RFC 9110, section 5.6.2.
fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use serde_json::value::to_raw_value;

    use super::*;

    fn read(properties: Value) -> Result<Option<ParamHeaders>, ParamHeadersError> {
        ParamHeaders::from_schema(
            &to_raw_value(&json!({"type": "object", "properties": properties})).unwrap(),
        )
    }

    #[track_caller]
    fn check_fault(properties: Value, expected: &str) {
        let shown = read(properties.clone()).map_err(|fault| fault.to_string());
        assert_eq!(shown, Err(expected.to_owned()), "{properties}");
    }

    #[track_caller]
    fn check(properties: Value, arguments: Value, expected: &[(&str, &str)]) {
        let headers = read(properties).unwrap().unwrap();
        let raw = to_raw_value(&arguments).unwrap();
        for arguments in [Arguments::Value(&arguments), Arguments::Raw(&raw)] {
            let mut headers_seen = Vec::new();
            headers.for_each(arguments, &mut |name, value| {
                headers_seen.push((name.to_owned(), value.to_owned()));
            });
            headers_seen.sort();
            let headers_seen: Vec<_> =
                headers_seen.iter().map(|(name, value)| (&**name, &**value)).collect();
            assert_eq!(headers_seen, expected);
        }
    }

    /// Protocol facts §18.5, the rules of validity.
    #[test]
    fn invalid_header_annotations_are_refused() {
        let name = "the header of property `a` has a name that no header can have";
        for bad in [json!(""), json!("a b"), json!("a:b"), json!("é"), json!("a\n"), json!(7)] {
            check_fault(json!({"a": {"type": "string", KEYWORD: bad}}), name);
        }
        let kind =
            "the header of property `a` is for a value that is no string, integer or boolean";
        for bad in ["number", "object", "array", "null"] {
            check_fault(json!({"a": {"type": bad, KEYWORD: "A"}}), kind);
        }
        check_fault(json!({"a": {KEYWORD: "A"}}), kind);
        check_fault(
            json!({"a": {"type": "string", KEYWORD: "A"}, "b": {"type": "string", KEYWORD: "a"}}),
            "the header of property `b` is used twice",
        );
        let place = "the header of property `a` is in a place that not every call has";
        let marked = json!({"type": "string", KEYWORD: "A"});
        check_fault(json!({"a": {"type": "array", "items": marked}}), place);
        check_fault(json!({"a": {"anyOf": [{"type": "null"}, marked]}}), place);
        check_fault(json!({"a": {"additionalProperties": marked}}), place);
        check_fault(json!({"a": {"not": {"properties": {"b": marked}}}}), place);
        check_fault(json!({"a": {"$defs": {"x": marked}}}), place);
    }

    #[test]
    fn property_names_and_examples_are_not_annotations() {
        assert_eq!(read(json!({"a": {"type": "string"}})), Ok(None));
        assert_eq!(read(json!({"x-mcp-header": {"type": "string"}})), Ok(None));
        let example = json!({"a": {"type": "object", "default": {"x-mcp-header": "A"}}});
        assert_eq!(read(example), Ok(None));
    }

    #[test]
    fn header_values_are_written_as_in_the_arguments() {
        let properties = json!({
            "region": {"type": "string", KEYWORD: "Region"},
            "n": {"type": "integer", KEYWORD: "N"},
            "dry": {"type": "boolean", KEYWORD: "Dry"},
            "deep": {"type": "object", "properties": {"id": {"type": "string", KEYWORD: "Id"}}},
            "other": {"type": "string"},
        });
        check(
            properties.clone(),
            json!({"region": " é", "n": -7, "dry": false, "deep": {"id": "x"}, "other": "no"}),
            &[("Dry", "false"), ("Id", "x"), ("N", "-7"), ("Region", " é")],
        );
        check(properties.clone(), json!({"region": null, "n": 3.0}), &[("N", "3")]);
        check(properties.clone(), json!({"n": 3.5, "deep": 7}), &[]);
        check(
            properties.clone(),
            json!({"n": 9_007_199_254_740_991_u64}),
            &[("N", "9007199254740991")],
        );
        check(properties, json!({"n": 9_007_199_254_740_992_u64, "region": ""}), &[("Region", "")]);
    }
}
