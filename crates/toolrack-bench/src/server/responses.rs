//! JSON-RPC responses of the benchmark servers: constant bytes around the request id.

/// Text of every small result: 100 bytes.
const ECHO: &str = concat!(
    "The quick brown fox jumps over the lazy dog, ",
    "and the patient client reads every byte of it, twice...",
);

/// Text is repeated in units of this many decoded bytes.
const UNIT_BYTES: usize = 64;
const PLAIN_UNIT: &str = "Sphinx of black quartz, judge my vow; pack five dozen big jugs. ";
/// Has quotes and a newline to unescape, and as many decoded bytes as the plain unit.
const ESCAPED_UNIT: &str = r#"Sphinx of \"black quartz\", judge my vow: pack five dozen jugs.\n  "#;

/// Whether a large text contains JSON escapes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Escapes {
    Without,
    With,
}

/// A result whose decoded text has `text_bytes`.
pub(crate) fn large_result(text_bytes: usize, escapes: Escapes) -> Vec<u8> {
    let unit = match escapes {
        Escapes::Without => PLAIN_UNIT,
        Escapes::With => ESCAPED_UNIT,
    };
    let mut result = Vec::from(TEXT_PREFIX);
    result.extend(unit.as_bytes().repeat(text_bytes / UNIT_BYTES));
    result.extend(b".".repeat(text_bytes % UNIT_BYTES));
    result.extend_from_slice(TEXT_SUFFIX);
    result
}

pub(crate) fn write_echo(out: &mut Vec<u8>, id: &[u8]) {
    write_result_prefix(out, id);
    out.extend_from_slice(TEXT_PREFIX);
    out.extend_from_slice(ECHO.as_bytes());
    out.extend_from_slice(TEXT_SUFFIX);
    out.extend_from_slice(RESULT_SUFFIX);
}

const TEXT_PREFIX: &[u8] = br#"{"content":[{"type":"text","text":""#;
const TEXT_SUFFIX: &[u8] = br#""}],"isError":false}"#;

pub(crate) fn write_result_prefix(out: &mut Vec<u8>, id: &[u8]) {
    out.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
    out.extend_from_slice(id);
    out.extend_from_slice(br#","result":"#);
}

pub(crate) const RESULT_SUFFIX: &[u8] = b"}\n";

pub(crate) fn write_result(out: &mut Vec<u8>, id: &[u8], result: &[u8]) {
    write_result_prefix(out, id);
    out.extend_from_slice(result);
    out.extend_from_slice(RESULT_SUFFIX);
}

// Spec 2025-11-25, lifecycle §Initialization: version, capabilities and server info.
const INITIALIZE_RESULT: &[u8] = br#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"toolrack-bench","version":"1.0.0"}}"#;

/// Response to a method without parameters, or to an unknown one.
pub(crate) fn write_common(out: &mut Vec<u8>, id: &[u8], method: &str) {
    match method {
        "initialize" => write_result(out, id, INITIALIZE_RESULT),
        "ping" => write_result(out, id, b"{}"),
        _ => write_method_not_found(out, id),
    }
}

pub(crate) fn write_method_not_found(out: &mut Vec<u8>, id: &[u8]) {
    out.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
    out.extend_from_slice(id);
    out.extend_from_slice(br#","error":{"code":-32601,"message":"Method not found"}}"#);
    out.push(b'\n');
}

/// A `tools/list` result with `n_tools` of realistic size.
pub(crate) fn tool_list(n_tools: usize) -> Vec<u8> {
    let mut list = br#"{"tools":["#.to_vec();
    for n in 0..n_tools {
        if n > 0 {
            list.push(b',');
        }
        list.extend_from_slice(tool(n).to_string().as_bytes());
    }
    list.extend_from_slice(b"]}");
    list
}

/// The manager rejects calls of unlisted tools, so the tools it is measured with come first.
fn tool_name(n: usize) -> String {
    match n {
        0 => "echo".to_owned(),
        1 => "flood".to_owned(),
        n => format!("repository_search_{n:05}"),
    }
}

fn tool(n: usize) -> serde_json::Value {
    serde_json::json!({
        "name": tool_name(n),
        "title": format!("Search repository {n}"),
        "description": "Searches the files of a repository for a pattern and returns the matching lines \
            with their paths and line numbers. Binary files are skipped. Results come in the order of the \
            paths, at most `limit` of them; ask again with `cursor` for the rest. Patterns are regular \
            expressions unless `literal` is set.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "pattern": { "type": "string", "minLength": 1, "description": "What to look for: a regular expression, or plain text with `literal`" },
                "paths": { "type": "array", "items": { "type": "string" }, "description": "Only files under these directories, relative to the root of the repository" },
                "literal": { "type": "boolean", "default": false, "description": "Take the pattern as plain text" },
                "case": { "type": "string", "enum": ["smart", "sensitive", "insensitive"], "default": "smart", "description": "How upper and lower case compare" },
                "limit": { "type": "integer", "minimum": 1, "maximum": 1000, "default": 100, "description": "The most matches to return" },
                "context": { "type": "integer", "minimum": 0, "maximum": 20, "default": 0, "description": "How many lines to return before and after each match" },
                "cursor": { "type": "string", "description": "Where the last answer ended" }
            },
            "required": ["pattern"],
            "additionalProperties": false
        },
        "annotations": { "readOnlyHint": true, "destructiveHint": false, "idempotentHint": true, "openWorldHint": false }
    })
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn decoded_text(escapes: Escapes, text_bytes: usize) -> usize {
        let value: Value = serde_json::from_slice(&large_result(text_bytes, escapes)).unwrap();
        value["content"][0]["text"].as_str().unwrap().len()
    }

    #[test]
    fn large_text_has_requested_size() {
        assert_eq!(decoded_text(Escapes::Without, 1_000), 1_000);
        assert_eq!(decoded_text(Escapes::Without, 1 << 20), 1 << 20);
        assert_eq!(decoded_text(Escapes::With, (1 << 20) + 7), (1 << 20) + 7);
    }

    #[test]
    fn echo_is_one_line_with_100_bytes_of_text() {
        let mut line = Vec::new();
        write_echo(&mut line, br#""a-1""#);
        let value: Value = serde_json::from_slice(&line).unwrap();
        assert_eq!(value["id"], "a-1");
        assert_eq!(value["result"]["content"][0]["text"].as_str().map(str::len), Some(100));
        assert_eq!(memchr::memchr_iter(b'\n', &line).count(), 1);
    }

    #[test]
    fn list_of_5000_tools_is_about_7_mb() {
        let list = tool_list(5_000);
        let value: Value = serde_json::from_slice(&list).unwrap();
        assert_eq!(value["tools"].as_array().map(Vec::len), Some(5_000));
        assert!((6_900_000..7_300_000).contains(&list.len()), "{}", list.len());
    }
}
