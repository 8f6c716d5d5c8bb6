//! YAML writer for JSON documents. Keys keep their order.
//!
//! **Invariant:** a string that YAML could read as something else is quoted.

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Number;

use crate::json_format;

/// Converts JSON to YAML. Deeply nested documents stay JSON, which is valid YAML.
pub(crate) fn write(json: &str) -> String {
    if json_format::is_too_deep(json) {
        return json_format::compact(json);
    }
    match serde_json::from_str(json) {
        Ok(node) => {
            let mut lines = Vec::new();
            block(&node, 0, "", &mut lines);
            lines.join("\n")
        }
        Err(_no_json) => json_format::compact(json),
    }
}

enum Node {
    Scalar(String),
    List(Vec<Node>),
    Map(Vec<(String, Node)>),
}

/// Writes a node; its first line begins with `lead`, such as `key: `.
fn block(node: &Node, depth: usize, lead: &str, lines: &mut Vec<String>) {
    let indent = "  ".repeat(depth);
    match node {
        Node::Scalar(text) => lines.push(format!("{indent}{lead}{text}")),
        Node::List(items) if items.is_empty() => lines.push(format!("{indent}{lead}[]")),
        Node::Map(members) if members.is_empty() => lines.push(format!("{indent}{lead}{{}}")),
        Node::List(items) => {
            let depth = open_block(depth, lead, lines);
            for item in items {
                list_item(item, depth, lines);
            }
        }
        Node::Map(members) => {
            let depth = open_block(depth, lead, lines);
            for (key, value) in members {
                block(value, depth, &format!("{}: ", scalar(key)), lines);
            }
        }
    }
}

/// A list item; its first line follows the dash.
fn list_item(item: &Node, depth: usize, lines: &mut Vec<String>) {
    let start = lines.len();
    block(item, depth + 1, "", lines);
    if let Some(first) = lines.get_mut(start) {
        let text = first.trim_start().to_owned();
        *first = format!("{}- {text}", "  ".repeat(depth));
    }
}

/// Writes the key's line above a nested block. Returns the depth of the block.
fn open_block(depth: usize, lead: &str, lines: &mut Vec<String>) -> usize {
    if lead.is_empty() {
        return depth;
    }
    lines.push(format!("{}{}", "  ".repeat(depth), lead.trim_end()));
    depth + 1
}

fn scalar(text: &str) -> String {
    if is_plain(text) {
        return text.to_owned();
    }
    let quoted = serde_json::to_string(text).unwrap_or_default();
    json_format::compact(&quoted)
}

/// Whether every YAML reader takes the text as this string.
fn is_plain(text: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | ' ');
    let starts_plain = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let lower = text.to_ascii_lowercase();
    let is_keyword = matches!(
        lower.as_str(),
        // YAML 1.1 readers take `no` and `on` for booleans.
        "null" | "true" | "false" | "yes" | "no" | "on" | "off" | "y" | "n" | "nan" | "inf"
    );
    starts_plain && !is_keyword && !text.ends_with(' ') && text.chars().all(is_word)
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Node;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Node, E> {
        Ok(Node::Scalar("null".to_owned()))
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Scalar(value.to_string()))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Scalar(value.to_string()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Node, E> {
        Ok(Node::Scalar(value.to_string()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Node, E> {
        let number = Number::from_f64(value).map(|number| number.to_string());
        Ok(Node::Scalar(number.unwrap_or_else(|| "null".to_owned())))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Node, E> {
        Ok(Node::Scalar(scalar(value)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Node::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Node, A::Error> {
        let mut map = Vec::new();
        while let Some(member) = members.next_entry()? {
            map.push(member);
        }
        Ok(Node::Map(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(json: &str, expected: &str) {
        assert_eq!(write(json), expected, "{json}");
    }

    #[test]
    fn nesting_is_indented() {
        check("[]", "[]");
        check(r#"{"b": 1, "a": [true, null, {}]}"#, "b: 1\na:\n  - true\n  - null\n  - {}");
        check(r#"[{"a": 1, "b": {"c": 2.5}}, [1, 2]]"#, "- a: 1\n  b:\n    c: 2.5\n- - 1\n  - 2");
        check(r#"{"a": {"b": []}}"#, "a:\n  b: []");
    }

    #[test]
    fn deep_nesting_stays_on_one_line() {
        let (open, close) = ("[".repeat(1_000_000), "]".repeat(1_000_000));
        check(&format!("{open}\"a\u{202e}\"{close}"), &format!("{open}\"a\\u202e\"{close}"));
    }

    #[test]
    fn ambiguous_strings_are_quoted() {
        check(r#"["plain text", "src/a-b.rs"]"#, "- plain text\n- src/a-b.rs");
        check(
            r##"["true", "No", "1", "", " x", "x ", "a: b", "#x", "- y"]"##,
            concat!(
                "- \"true\"\n- \"No\"\n- \"1\"\n- \"\"\n- \" x\"\n- \"x \"\n- \"a: b\"\n",
                "- \"#x\"\n- \"- y\""
            ),
        );
        check(r#"{"a\nb": "c\u001b[1m"}"#, "\"a\\nb\": \"c\\u001b[1m\"");
        check(r#""Grüße\u202e""#, "\"Grüße\\u202e\"");
    }
}
