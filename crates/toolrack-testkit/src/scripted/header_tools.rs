//! Tools with `x-mcp-header` annotations, valid and invalid ones.

use serde::Deserialize;
use serde_json::{Value, json};

/// Which of these tools the server offers.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum HeaderTools {
    #[default]
    #[serde(skip)]
    None,
    Valid,
    Invalid,
    All,
}

impl HeaderTools {
    /// Definitions in list order.
    pub(super) fn list(self) -> Vec<Value> {
        let mut tools = Vec::new();
        if matches!(self, Self::Valid | Self::All) {
            tools.push(tool(NAME, "Returns its arguments", &valid()));
        }
        if matches!(self, Self::Invalid | Self::All) {
            let wrong = invalid().into_iter();
            tools.extend(wrong.map(|(name, why, properties)| tool(name, why, &properties)));
        }
        tools
    }
}

/// The tool with valid annotations.
const NAME: &str = "routed";

/// Header without its prefix, and argument path, for each argument that a call must mirror.
pub(super) fn mirrored_headers(tool: &str) -> &'static [(&'static str, &'static [&'static str])] {
    if tool != NAME {
        return &[];
    }
    &[
        ("region", &["region"]),
        ("count", &["count"]),
        ("dry-run", &["dry_run"]),
        ("zone", &["target", "zone"]),
    ]
}

fn valid() -> Value {
    json!({
        "region": { "type": "string", "x-mcp-header": "Region" },
        "count": { "type": "integer", "x-mcp-header": "Count" },
        "dry_run": { "type": "boolean", "x-mcp-header": "Dry-Run" },
        "target": {
            "type": "object",
            "properties": { "zone": { "type": "string", "x-mcp-header": "Zone" } },
        },
        "note": { "type": "string" },
    })
}

/// Name, defect, and input properties.
fn invalid() -> Vec<(&'static str, &'static str, Value)> {
    let text = |header: &str| json!({ "type": "string", "x-mcp-header": header });
    let typed = |kind: &str| json!({ "a": { "type": kind, "x-mcp-header": "A" } });
    let array = json!({ "type": "array", "items": text("A") });
    vec![
        ("bad_empty", "An empty name", json!({ "a": text("") })),
        ("bad_space", "A space", json!({ "a": text("My Header") })),
        ("bad_colon", "A colon", json!({ "a": text("My:Header") })),
        ("bad_accent", "Not ASCII", json!({ "a": text("Région") })),
        ("bad_no_text", "No string", json!({ "a": { "type": "string", "x-mcp-header": 7 } })),
        ("bad_number", "A number", typed("number")),
        ("bad_object", "An object", typed("object")),
        ("bad_untyped", "No type", json!({ "a": { "x-mcp-header": "A" } })),
        ("bad_twins", "One name twice", json!({ "a": text("Same"), "b": text("same") })),
        ("bad_items", "Inside of an array", json!({ "a": array })),
        ("bad_any_of", "Inside of a choice", json!({ "a": { "anyOf": [text("A")] } })),
    ]
}

fn tool(name: &str, description: &str, properties: &Value) -> Value {
    json!({
        "name": name,
        "description": description,
        "inputSchema": { "type": "object", "properties": properties },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mirrored_headers_match_the_annotations() {
        for (header, path) in mirrored_headers(NAME) {
            let pointer = format!("/{}", path.join("/properties/"));
            let schema = valid().pointer(&pointer).cloned().expect("a property");
            let annotated = schema.get("x-mcp-header").and_then(Value::as_str).expect("a header");
            assert_eq!(annotated.to_ascii_lowercase(), *header);
        }
        assert_eq!(HeaderTools::All.list().len(), 1 + invalid().len());
        let first_name = |tools: HeaderTools| tools.list()[0]["name"].clone();
        assert_eq!(first_name(HeaderTools::Valid), json!(NAME));
        assert_eq!(first_name(HeaderTools::Invalid), json!("bad_empty"));
    }
}
