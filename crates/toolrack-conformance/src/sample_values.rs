//! Values for arguments and fields that nobody has named.

use serde_json::{Map, Value, json};
use toolrack_mcp::{FieldKind, FieldValue, Tool};

/// Arguments that fit the tool's schema: whatever it requires.
pub(crate) fn arguments(tool: &Tool) -> Value {
    let schema: Value = serde_json::from_str(tool.input_schema.get()).unwrap_or_default();
    let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
    let made: Map<String, Value> = required
        .filter_map(Value::as_str)
        .map(|name| {
            let property = schema.get("properties").and_then(|properties| properties.get(name));
            (name.to_owned(), argument(property.unwrap_or(&Value::Null)))
        })
        .collect();
    Value::Object(made)
}

fn argument(schema: &Value) -> Value {
    let first = schema.get("enum").and_then(|value| value.get(0));
    if let Some(fixed) = schema.get("default").or(schema.get("const")).or(first) {
        return fixed.clone();
    }
    match schema.get("type").and_then(Value::as_str) {
        Some("number") => json!(1.5),
        Some("integer") => json!(2),
        Some("boolean") => json!(true),
        Some("array") => json!([]),
        Some("object") => json!({}),
        _ => json!("text"),
    }
}

/// A value for a field of a form that has no default.
pub(crate) fn field(kind: &FieldKind) -> FieldValue {
    match kind {
        FieldKind::Boolean { .. } => FieldValue::Boolean(true),
        FieldKind::Number { .. } => FieldValue::Number(1.into()),
        _ => FieldValue::Text("text".to_owned()),
    }
}
