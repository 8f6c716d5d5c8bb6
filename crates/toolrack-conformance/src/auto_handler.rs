//! Client handler that accepts every elicitation, and sample values for required arguments and form fields.

use serde_json::{Map, Value, json};
use toolrack_client::ClientHandler;
use toolrack_mcp::{
    ClientCapabilities, Elicitation, ElicitationCapability, ElicitationResult, FieldKind,
    FieldValue, FormContent, Tool,
};
use toolrack_transport::BoxFuture;

#[derive(Debug)]
pub(crate) struct AutoHandler;

impl ClientHandler for AutoHandler {
    fn capabilities(&self) -> ClientCapabilities {
        ClientCapabilities {
            elicitation: Some(ElicitationCapability { form: true, url: false }),
            ..ClientCapabilities::default()
        }
    }

    fn elicit<'a>(
        &'a self,
        _server: &'a str,
        elicitation: Elicitation,
    ) -> BoxFuture<'a, ElicitationResult> {
        Box::pin(async move {
            let Elicitation::Form(form) = elicitation else { return ElicitationResult::Decline };
            let mut content = FormContent::new();
            form.schema.fill_defaults(&mut content);
            for field in form.schema.fields().iter().filter(|field| field.required) {
                content.entry(field.name.clone()).or_insert_with(|| field_value(&field.kind));
            }
            ElicitationResult::Accept { content: Some(content) }
        })
    }
}

/// Returns a value for each argument that the tool's schema requires.
pub(crate) fn tool_arguments(tool: &Tool) -> Value {
    let schema: Value = serde_json::from_str(tool.input_schema.get()).unwrap_or_default();
    let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
    let made: Map<String, Value> = required
        .filter_map(Value::as_str)
        .map(|name| {
            let property = schema.get("properties").and_then(|properties| properties.get(name));
            (name.to_owned(), argument_value(property.unwrap_or(&Value::Null)))
        })
        .collect();
    Value::Object(made)
}

fn argument_value(schema: &Value) -> Value {
    let first = schema.get("enum").and_then(|values| values.get(0));
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

/// Returns a value for a form field without a default.
pub(crate) fn field_value(kind: &FieldKind) -> FieldValue {
    match kind {
        FieldKind::Boolean => FieldValue::Boolean(true),
        FieldKind::Number { .. } => FieldValue::Number(1.into()),
        _ => FieldValue::Text("text".to_owned()),
    }
}
