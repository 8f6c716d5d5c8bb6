//! Fuzz targets of call expressions and arguments. docs/internal/fuzzing.md says how to run them.

use serde_json::{Map, Value};

use super::call_expr::{parse_members, split};
use super::coerce::{build_arguments, signature};
use super::schema::Schema;
use super::{ArgValue, KeyValue, TypedArguments, ValueSource};

type FuzzTarget = (&'static str, fn(&[u8]));

/// Name and function of every target.
pub(crate) const TARGETS: &[FuzzTarget] =
    &[("call_expression", call_expression), ("tool_arguments", tool_arguments)];

/// JSON is a call expression, so the members of an expression can be written as JSON and read again.
fn call_expression(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Ok((name, members)) = split(&text) {
        assert_eq!(name, name.trim());
        assert!(text.contains(name));
        assert!(members.is_some() == text.contains('('));
    }
    let Ok(members) = parse_members(&text) else { return };
    let json = Value::Object(members.clone()).to_string();
    let inner = json.strip_prefix('{').and_then(|json| json.strip_suffix('}')).unwrap_or_default();
    let again = parse_members(inner);
    // The last digit of a fraction may change when it is written and read.
    if members.values().any(has_fraction) {
        assert!(again.is_ok(), "{json}");
    } else {
        assert_eq!(again, Ok(members), "{json}");
    }
}

fn has_fraction(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.is_f64(),
        Value::Array(items) => items.iter().any(has_fraction),
        Value::Object(members) => members.values().any(has_fraction),
        _ => false,
    }
}

/// The first line is a schema, the others are arguments. What is accepted is valid, and text for a string stays.
fn tool_arguments(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut lines = text.lines();
    let Ok(schema) = serde_json::from_str::<Value>(lines.next().unwrap_or_default()) else {
        return;
    };
    let schema = Schema::new(&schema);
    let _shown = (signature(schema), schema.describe());
    let mut members = Vec::new();
    for word in lines {
        let Ok(argument) = KeyValue::parse(word) else { continue };
        assert!(word.starts_with(&argument.path) && !argument.path.is_empty());
        // Files are not read here.
        if !matches!(argument.source, ValueSource::Inline(_)) {
            continue;
        }
        if let Ok(value) = argument.read() {
            members.push((argument.path, value));
        }
    }
    let arguments =
        TypedArguments { object: Map::new(), members: members.clone(), is_unchecked: false };
    let Ok(object) = build_arguments(arguments, schema) else { return };
    let again = TypedArguments { object: object.clone(), members: Vec::new(), is_unchecked: false };
    assert_eq!(build_arguments(again, schema).ok().as_ref(), Some(&object));
    for (path, value) in &members {
        // No other argument is at, below or above this place.
        let is_near = |other: &str| other.split('.').next() == path.split('.').next();
        let is_single = members.iter().filter(|(other, _)| is_near(other)).count() == 1;
        if let (ArgValue::Json(value), true, true) = (value, is_single, !path.contains('.')) {
            assert_eq!(object.get(path), Some(value));
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn fuzz_targets_hold() {
        toolrack_fuzz::check_targets(super::TARGETS);
    }
}
