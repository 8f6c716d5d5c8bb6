//! YAML writer for JSON documents. Keys keep their order.
//!
//! **Invariant:** a string that YAML could read as something else is quoted.

use serde::de::Error as _;
use serde_json::value::RawValue;
use toolrack_mcp::object_members;

use crate::json_format;

/// Converts JSON to YAML. Deeply nested documents stay JSON, which is valid YAML.
pub(crate) fn write(json: &str) -> String {
    let mut lines = Vec::new();
    if json_format::indented(json).is_none() || write_block(json.trim(), 0, "", &mut lines).is_err()
    {
        return json_format::compact(json);
    }
    lines.join("\n")
}

/// Writes a value; its first line begins with `lead`, such as `key: `.
fn write_block(
    json: &str,
    depth: usize,
    lead: &str,
    lines: &mut Vec<String>,
) -> serde_json::Result<()> {
    let indent = "  ".repeat(depth);
    // Items of a list and members of the outermost object have no line of their own above them.
    let inner = if lead.is_empty() { depth } else { depth + 1 };
    let open = |lines: &mut Vec<String>| {
        if !lead.is_empty() {
            lines.push(format!("{indent}{}", lead.trim_end()));
        }
    };
    let text = match json.as_bytes().first() {
        Some(b'[') => {
            let items: Vec<&RawValue> = serde_json::from_str(json)?;
            if !items.is_empty() {
                open(lines);
                for item in items {
                    let start = lines.len();
                    write_block(item.get(), inner + 1, "", lines)?;
                    // The first line of an item follows the dash.
                    if let Some(first) = lines.get_mut(start) {
                        *first = format!("{}- {}", "  ".repeat(inner), first.trim_start());
                    }
                }
                return Ok(());
            }
            "[]".to_owned()
        }
        Some(b'{') => {
            // A key that is no text, such as a lone surrogate, has no YAML.
            let Some(members) = object_members(serde_json::from_str(json)?) else {
                return Err(serde_json::Error::custom("not an object of texts"));
            };
            if !members.is_empty() {
                open(lines);
                for (key, value) in members {
                    write_block(value.get(), inner, &format!("{}: ", scalar(&key)), lines)?;
                }
                return Ok(());
            }
            "{}".to_owned()
        }
        Some(b'"') => scalar(&serde_json::from_str::<String>(json)?),
        // Numbers keep their digits.
        _ => serde_json::from_str::<&RawValue>(json)?.get().to_owned(),
    };
    lines.push(format!("{indent}{lead}{text}"));
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(json: &str, expected: &str) {
        assert_eq!(write(json), expected, "{json}");
    }

    #[test]
    fn unreadable_keys_stay_json() {
        check(r#"{"\ud800": 1, "a": 2}"#, r#"{"\ud800":1,"a":2}"#);
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
