//! Tools as the makers of models want them described.
//!
//! **Invariant:** what comes out is an object with an object for the arguments, whatever a server has listed.

use serde_json::{Value, json};
use toolrack_client::McpToolDef;

/// A tool for `tools` of `OpenAI`'s chat completions, and of the many services that take the same.
///
/// ```
/// # fn demo(rack: &toolrack::Toolrack) -> Vec<serde_json::Value> {
/// rack.tools().iter().map(|tool| toolrack::to_openai(&tool.definition())).collect()
/// # }
/// ```
pub fn to_openai(tool: &McpToolDef) -> Value {
    let mut function = json!({"name": tool.name, "parameters": schema(&tool.input_schema)});
    describe(&mut function, tool);
    json!({"type": "function", "function": function})
}

/// A tool for `tools` of Anthropic's messages.
///
/// ```
/// # fn demo(rack: &toolrack::Toolrack) -> Vec<serde_json::Value> {
/// rack.tools().iter().map(|tool| toolrack::to_anthropic(&tool.definition())).collect()
/// # }
/// ```
pub fn to_anthropic(tool: &McpToolDef) -> Value {
    let mut described = json!({"name": tool.name, "input_schema": schema(&tool.input_schema)});
    describe(&mut described, tool);
    described
}

/// Neither wants a description that says nothing.
fn describe(described: &mut Value, tool: &McpToolDef) {
    if let (Some(members), false) = (described.as_object_mut(), tool.description.is_empty()) {
        members.insert("description".to_owned(), Value::from(tool.description.as_str()));
    }
}

/// The schema, which has to be one of an object. Many servers leave that out for tools without arguments.
fn schema(schema: &Value) -> Value {
    let mut members = schema.as_object().cloned().unwrap_or_default();
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
        let taken =
            json!({"type": "object", "properties": {"n": {"type": "integer"}}, "$defs": {}});
        check(
            "Shows commits",
            taken.clone(),
            json!({"type": "function", "function": {
                "name": "git_log", "description": "Shows commits", "parameters": taken,
            }}),
            json!({"name": "git_log", "description": "Shows commits", "input_schema": taken}),
        );
    }

    #[test]
    fn tool_without_schema_gets_an_empty_object() {
        let nothing = json!({"type": "object", "properties": {}});
        for given in [json!(null), json!({}), json!({"type": "object"}), json!(true)] {
            check(
                "",
                given,
                json!({"type": "function", "function": {"name": "git_log", "parameters": nothing}}),
                json!({"name": "git_log", "input_schema": nothing}),
            );
        }
    }
}
