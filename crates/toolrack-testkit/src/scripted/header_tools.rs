//! Tools with `x-mcp-header` annotations, valid and invalid ones.

use serde_json::{Value, json};

/// Which of these tools the server offers.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeaderTools {
    #[default]
    None,
    Valid,
    Invalid,
    All,
}

impl HeaderTools {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        match text {
            "valid" => Ok(Self::Valid),
            "invalid" => Ok(Self::Invalid),
            "all" => Ok(Self::All),
            other => Err(format!("`{other}` is not one of valid, invalid, all")),
        }
    }

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

    pub(super) fn has(self, name: &str) -> bool {
        self.list().iter().any(|tool| tool.get("name").and_then(Value::as_str) == Some(name))
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
    let a = |schema: Value| json!({ "a": schema });
    vec![
        ("bad_empty", "An empty name", a(json!({ "type": "string", "x-mcp-header": "" }))),
        ("bad_space", "A space", a(json!({ "type": "string", "x-mcp-header": "My Header" }))),
        ("bad_colon", "A colon", a(json!({ "type": "string", "x-mcp-header": "My:Header" }))),
        ("bad_accent", "Not ASCII", a(json!({ "type": "string", "x-mcp-header": "Région" }))),
        ("bad_no_text", "No string", a(json!({ "type": "string", "x-mcp-header": 7 }))),
        ("bad_number", "A number", a(json!({ "type": "number", "x-mcp-header": "A" }))),
        ("bad_object", "An object", a(json!({ "type": "object", "x-mcp-header": "A" }))),
        ("bad_untyped", "No type", a(json!({ "x-mcp-header": "A" }))),
        (
            "bad_twins",
            "One name twice",
            json!({
                "a": { "type": "string", "x-mcp-header": "Same" },
                "b": { "type": "string", "x-mcp-header": "same" },
            }),
        ),
        (
            "bad_items",
            "Inside of an array",
            a(json!({ "type": "array", "items": { "type": "string", "x-mcp-header": "A" } })),
        ),
        (
            "bad_any_of",
            "Inside of a choice",
            a(json!({ "anyOf": [{ "type": "string", "x-mcp-header": "A" }] })),
        ),
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
        assert!(!HeaderTools::Valid.has("bad_empty") && HeaderTools::Invalid.has("bad_empty"));
    }
}
