//! Plain tool types of founding document 000: a name, a schema, a text.
//!
//! [`Tool`] has all fields of a tool; the raw result has all content.

use bytes::Buf;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use toolrack_mcp::{Method, SingleText, Tool, ToolCallResult};
use toolrack_transport::RawJson;

use crate::error::CallError;

/// A tool definition for an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct McpToolDef {
    /// Tool name.
    pub name: String,
    /// Description, empty if the server sends none.
    #[serde(default)]
    pub description: String,
    /// JSON Schema of the arguments.
    #[serde(default, rename = "inputSchema")]
    pub input_schema: Value,
}

/// A tool result as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct McpToolResult {
    /// Text blocks, joined with newlines.
    pub content: String,
    /// Whether the tool ran and failed; the text then says why.
    pub is_error: bool,
}

impl From<&Tool> for McpToolDef {
    fn from(tool: &Tool) -> Self {
        Self {
            name: tool.name.clone(),
            description: tool.description.clone().unwrap_or_default(),
            input_schema: serde_json::from_str(tool.input_schema.get()).unwrap_or_default(),
        }
    }
}

/// Texts up to this size are copied, which is cheaper than reusing the response buffer.
const COPY_BYTES: usize = 4 << 10;

impl McpToolResult {
    /// Decodes a result. The common one, a single text block, reuses the response buffer, so that a large text is
    /// in memory once.
    pub(crate) fn read(raw: RawJson) -> Result<Self, CallError> {
        let Some(only) = SingleText::find(raw.as_bytes()) else {
            let result = ToolCallResult::parse(raw.as_bytes());
            let undecodable = |error| CallError::undecodable(Method::CallTool, error);
            return Ok(Self::from(&result.map_err(undecodable)?));
        };
        let text = raw.as_bytes().get(only.text.clone());
        let small = text.filter(|text| text.len() <= COPY_BYTES).map(<[u8]>::to_vec);
        let text = small.unwrap_or_else(|| {
            // Truncate in place: a second handle on the buffer would force a copy.
            let mut text = raw.into_bytes();
            text.truncate(only.text.end);
            text.advance(only.text.start);
            Vec::from(text)
        });
        match String::from_utf8(text) {
            Ok(content) => Ok(Self { content, is_error: only.is_error }),
            Err(error) => Err(CallError::unexpected(Method::CallTool, error.to_string())),
        }
    }
}

impl From<&ToolCallResult<'_>> for McpToolResult {
    fn from(result: &ToolCallResult<'_>) -> Self {
        Self { content: result.text().into_owned(), is_error: result.is_error }
    }
}

/// The tools of a `tools/list` result. Malformed entries are skipped.
pub fn parse_tools_list(result: &Value) -> Vec<McpToolDef> {
    let listed = result.get("tools").and_then(Value::as_array);
    let entries = listed.into_iter().flatten();
    // One malformed tool must not cost the agent the whole list.
    entries.filter_map(|entry| McpToolDef::deserialize(entry).ok()).collect()
}

/// The text of a `tools/call` result.
pub fn parse_tool_result(result: &Value) -> McpToolResult {
    let blocks = result.get("content").and_then(Value::as_array);
    let texts = blocks.into_iter().flatten().filter_map(|block| block.get("text")?.as_str());
    let content = texts.collect::<Vec<_>>().join("\n");
    let is_error = result.get("isError").and_then(Value::as_bool).unwrap_or_default();
    McpToolResult { content, is_error }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tools_list_parsing() {
        let result = json!({"tools": [
            {"name": "browser_navigate", "description": "Go to a URL", "inputSchema": {"type": "object"}},
            {"description": "no name"},
            {"name": "bare"},
        ]});
        let described = McpToolDef {
            name: "browser_navigate".to_owned(),
            description: "Go to a URL".to_owned(),
            input_schema: json!({"type": "object"}),
        };
        let bare = McpToolDef {
            name: "bare".to_owned(),
            description: String::new(),
            input_schema: Value::Null,
        };
        assert_eq!(parse_tools_list(&result), [described, bare]);
        assert_eq!(parse_tools_list(&json!({})), []);
    }

    #[track_caller]
    fn check(result: Value, content: &str, outcome: Result<(), ()>) {
        let is_error = outcome.is_err();
        let expected = McpToolResult { content: content.to_owned(), is_error };
        assert_eq!(parse_tool_result(&result), expected, "{result}");
        let text = result.to_string();
        let typed = ToolCallResult::parse(text.as_bytes()).unwrap();
        assert_eq!(McpToolResult::from(&typed), expected, "{result}");
        let read = McpToolResult::read(RawJson::new(text)).unwrap();
        assert_eq!(read, expected, "{result}");
    }

    #[test]
    fn tool_result_parsing() {
        let blocks = json!([
            {"type": "text", "text": "first"},
            {"type": "image", "data": "AAAA", "mimeType": "image/png"},
            {"type": "text", "text": "second"},
        ]);
        check(json!({"content": blocks}), "first\nsecond", Ok(()));
    }

    #[test]
    fn large_text_reuses_its_buffer() {
        for n_bytes in [0, 2, COPY_BYTES, COPY_BYTES + 2, 100_000] {
            let expected = "ä".repeat(n_bytes / 2);
            // Members in the order servers write them, which differs from our own serializer.
            let text = format!(r#"{{"content":[{{"type":"text","text":"{expected}"}}]}}"#);
            let raw = RawJson::new(text);
            let place = raw.as_bytes().as_ptr();
            let McpToolResult { content, is_error } = McpToolResult::read(raw).unwrap();
            assert!(content == expected && !is_error, "{n_bytes}");
            assert_eq!(content.as_ptr() == place, n_bytes > COPY_BYTES, "{n_bytes}");
        }
    }

    #[test]
    fn tool_result_error() {
        check(json!({"content": [{"type": "text", "text": "no"}], "isError": true}), "no", Err(()));
    }

    #[test]
    fn tool_result_empty() {
        check(json!({}), "", Ok(()));
        check(json!({"content": []}), "", Ok(()));
    }
}
