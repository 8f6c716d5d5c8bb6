//! Tool definitions for LLM APIs: `OpenAI` and Anthropic.
//!
//! **Invariant:** the result always has an object schema for the arguments, even if the server sends none.

use serde_json::{Value, json};
use toolrack_client::McpToolDef;

/// Converts a tool for `tools` of `OpenAI` chat completions and compatible APIs.
///
/// ```
/// # fn demo(rack: &toolrack::Toolrack) -> Vec<serde_json::Value> {
/// rack.tools().iter().map(|tool| toolrack::to_openai(&tool.definition())).collect()
/// # }
/// ```
pub fn to_openai(tool: &McpToolDef) -> Value {
    let mut function = json!({"name": tool.name, "parameters": object_schema(&tool.input_schema)});
    add_description(&mut function, tool);
    json!({"type": "function", "function": function})
}

/// Converts a tool for `tools` of Anthropic messages.
///
/// ```
/// # fn demo(rack: &toolrack::Toolrack) -> Vec<serde_json::Value> {
/// rack.tools().iter().map(|tool| toolrack::to_anthropic(&tool.definition())).collect()
/// # }
/// ```
pub fn to_anthropic(tool: &McpToolDef) -> Value {
    let mut definition =
        json!({"name": tool.name, "input_schema": object_schema(&tool.input_schema)});
    add_description(&mut definition, tool);
    definition
}

/// Adds the description, unless it is empty.
fn add_description(definition: &mut Value, tool: &McpToolDef) {
    if let (Some(members), false) = (definition.as_object_mut(), tool.description.is_empty()) {
        members.insert("description".to_owned(), Value::from(tool.description.as_str()));
    }
}

/// Makes the schema an object schema. Many servers omit `type` or `properties` for tools without arguments.
fn object_schema(schema: &Value) -> Value {
    let mut members = schema.as_object().cloned().unwrap_or_default();
    // The APIs reject a tool without an object schema, and with it the whole request.
    members.entry("type").or_insert_with(|| Value::from("object"));
    if members.get("type") == Some(&Value::from("object")) {
        members.entry("properties").or_insert_with(|| json!({}));
    }
    Value::Object(members)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(description: &str, input_schema: Value, openai: Value, anthropic: Value) {
        let (name, description) = ("git_log".to_owned(), description.to_owned());
        let tool = McpToolDef { name, description, input_schema };
        assert_eq!((to_openai(&tool), to_anthropic(&tool)), (openai, anthropic));
    }

    #[test]
    fn tool_definitions_follow_each_api() {
        let schema =
            json!({"type": "object", "properties": {"n": {"type": "integer"}}, "$defs": {}});
        check(
            "Shows commits",
            schema.clone(),
            json!({"type": "function", "function": {
                "name": "git_log", "description": "Shows commits", "parameters": schema,
            }}),
            json!({"name": "git_log", "description": "Shows commits", "input_schema": schema}),
        );
    }

    #[test]
    fn tool_without_schema_gets_an_empty_object() {
        let empty = json!({"type": "object", "properties": {}});
        for input in [json!(null), json!({}), json!({"type": "object"}), json!(true)] {
            check(
                "",
                input,
                json!({"type": "function", "function": {"name": "git_log", "parameters": empty}}),
                json!({"name": "git_log", "input_schema": empty}),
            );
        }
    }
}
