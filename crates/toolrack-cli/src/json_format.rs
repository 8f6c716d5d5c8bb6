//! JSON formatter: pretty-printed or on one line, with unsafe characters escaped. Keys keep their
//! order, and numbers their digits.
//!
//! **Invariant:** the value stays the same. Control and invisible characters become escapes. There
//! is no recursion, and the output is at most a few times as long as the input.

use std::fmt::Write as _;
use std::iter::Peekable;
use std::str::Chars;

use toolrack_transport::is_invisible;

/// Deeper documents are not indented.
const MAX_DEPTH: usize = 128;
/// Maximum indentation, as a multiple of the input plus a constant.
const MAX_GROWTH: usize = 16;
const EXTRA_BYTES: usize = 1 << 20;

/// Pretty-printed, or on one line if indentation would dominate.
pub(crate) fn pretty(json: &str) -> String {
    indented(json).unwrap_or_else(|| compact(json))
}

/// Pretty-printed. `None` if indentation would exceed the limits.
pub(crate) fn indented(json: &str) -> Option<String> {
    restyle(json, Some("  "))
}

/// On one line.
pub(crate) fn compact(json: &str) -> String {
    restyle(json, None).unwrap_or_default()
}

/// Adds a member, given as JSON, to an object. Other JSON is returned unchanged.
pub(crate) fn with_member(json: &str, key: &str, value: &str) -> String {
    // As text, because a parse would change the order of keys and the digits of numbers.
    let Some(start) = json.trim_end().strip_suffix('}') else { return json.to_owned() };
    let start = start.trim_end();
    let comma = if start.ends_with('{') { "" } else { "," };
    format!("{start}{comma}\"{key}\":{value}}}")
}

/// Replaces lone surrogates, which only JSON allows, with U+FFFD. `None` if there are none.
pub(crate) fn repair_surrogates(json: &str) -> Option<String> {
    let mut out = String::with_capacity(json.len());
    let mut rest = json;
    let mut is_repaired = false;
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        out.push_str(before);
        let n_bytes = match (unit(escape), escape.get(6..).and_then(unit)) {
            // A valid pair stays as it is.
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => 12,
            (Some(0xd800..=0xdfff), _) => {
                is_repaired = true;
                out.push('\u{fffd}');
                rest = escape.get(6..).unwrap_or_default();
                continue;
            }
            // Skips the escaped character, so that `\\ud800` is not taken for an escape.
            _ => 2,
        };
        let (same, behind) = escape.split_at_checked(n_bytes)?;
        out.push_str(same);
        rest = behind;
    }
    out.push_str(rest);
    is_repaired.then_some(out)
}

/// The code unit of an escape such as `\ud800` at the start of a text.
fn unit(text: &str) -> Option<u32> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    u32::from_str_radix(digits, 16).ok()
}

/// Formats JSON on indented lines, or on one line without an indentation. `None` if there is too
/// much of it: deep nesting makes the indentation quadratic.
fn restyle(json: &str, indent: Option<&str>) -> Option<String> {
    let most_bytes = json.len().saturating_mul(MAX_GROWTH).saturating_add(EXTRA_BYTES);
    let mut out = String::with_capacity(json.len() * 2);
    let (mut depth, mut indent_bytes) = (0_usize, 0_usize);
    let mut characters = json.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '"' => copy_string(&mut characters, &mut out),
            open @ ('{' | '[') => {
                out.push(open);
                while characters.next_if(char::is_ascii_whitespace).is_some() {}
                match characters.next_if(|c| matches!(c, '}' | ']')) {
                    Some(close) => out.push(close),
                    None => {
                        depth += 1;
                        break_line(&mut out, depth, indent);
                    }
                }
            }
            close @ ('}' | ']') => {
                depth = depth.saturating_sub(1);
                break_line(&mut out, depth, indent);
                out.push(close);
            }
            ',' => {
                out.push(',');
                break_line(&mut out, depth, indent);
            }
            ':' if indent.is_some() => out.push_str(": "),
            space if space.is_ascii_whitespace() => {}
            other => out.push(other),
        }
        if indent.is_some() && matches!(character, '"' | '{' | '[' | '}' | ']' | ',') {
            indent_bytes += 2 * depth;
            if depth > MAX_DEPTH || indent_bytes > most_bytes {
                return None;
            }
        }
    }
    Some(out)
}

fn copy_string(characters: &mut Peekable<Chars<'_>>, out: &mut String) {
    out.push('"');
    let mut previous = None;
    while let Some(character) = characters.next() {
        match character {
            '"' => break,
            '\\' => {
                out.push('\\');
                out.extend(characters.next());
                previous = None;
            }
            // Escaped and not removed: the value must stay the same, but the terminal must not
            // act on it.
            hidden if is_invisible(previous.take(), hidden) => {
                for unit in hidden.encode_utf16(&mut [0; 2]) {
                    // Writing to a string cannot fail.
                    write!(out, "\\u{unit:04x}").unwrap_or_default();
                }
            }
            plain => {
                previous = Some(plain);
                out.push(plain);
            }
        }
    }
    out.push('"');
}

fn break_line(out: &mut String, depth: usize, indent: Option<&str>) {
    if let Some(indent) = indent {
        out.push('\n');
        out.extend(std::iter::repeat_n(indent, depth));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    #[track_caller]
    fn check(json: &str, lines: &str, one: &str) {
        assert_eq!((pretty(json).as_str(), compact(json).as_str()), (lines, one), "{json}");
    }

    #[test]
    fn member_is_appended() {
        let check = |json: &str, expected: &str| assert_eq!(with_member(json, "b", "[]"), expected);
        check("{}", r#"{"b":[]}"#);
        check("{\"a\": 1.0 }\n", r#"{"a": 1.0,"b":[]}"#);
        check("[1]", "[1]");
    }

    #[test]
    fn formatting_changes_only_whitespace() {
        check("1.50", "1.50", "1.50");
        check("{ }", "{}", "{}");
        check("[ ]", "[]", "[]");
        check(
            r#"{"z": [1,  2.0], "a":"x: {,} \" "}"#,
            "{\n  \"z\": [\n    1,\n    2.0\n  ],\n  \"a\": \"x: {,} \\\" \"\n}",
            r#"{"z":[1,2.0],"a":"x: {,} \" "}"#,
        );
    }

    #[test]
    fn lone_surrogates_are_replaced() {
        let check = |json: &str, expected: Option<&str>| {
            assert_eq!(repair_surrogates(json).as_deref(), expected, "{json}");
        };
        check(r#""plain \n \u00fc""#, None);
        check(r#""\ud83d\ude00""#, None);
        check(r#""\\ud800""#, None);
        check(r#""x\ud800y""#, Some("\"x\u{fffd}y\""));
        check(r#""\uDC00\ud83d\ude00\ud83d""#, Some("\"\u{fffd}\\ud83d\\ude00\u{fffd}\""));
        check(r#""\ud800\\""#, Some("\"\u{fffd}\\\\\""));
        check("\"\\ü", None);
    }

    #[test]
    fn deep_nesting_is_not_indented() {
        let nested = |n: usize| format!("{}1{}", "[".repeat(n), "]".repeat(n));
        assert_eq!(pretty(&nested(128)).lines().count(), 257);
        for n in [129, 1_000_000] {
            assert_eq!(pretty(&nested(n)), nested(n));
        }
        // Brackets in strings are not nesting.
        let text = format!("[\"{}\\\"[\"]", "[".repeat(1000));
        assert_eq!(pretty(&text).lines().count(), 3);
        let wide = format!("{}1{}{}", "[".repeat(120), ",1".repeat(1_000_000), "]".repeat(120));
        assert_eq!(pretty(&wide), wide);
        let flat = format!("[1{}]", ",1".repeat(1_000_000));
        assert_eq!(pretty(&flat).lines().count(), 1_000_003);
    }

    #[test]
    fn invisible_characters_are_escaped() {
        let hidden = "\"a\u{9b}31m\u{7f}\u{202e}\u{e0041}ü漢\"";
        let shown = r#""a\u009b31m\u007f\u202e\udb40\udc41ü漢""#;
        check(hidden, shown, shown);
        let emoji = "\"\u{2764}\u{fe0f}\u{200d}\u{1f525}\"";
        check(emoji, emoji, emoji);
        check(
            "\"a\u{fe0f}\u{ad}\u{3164}\"",
            r#""a\ufe0f\u00ad\u3164""#,
            r#""a\ufe0f\u00ad\u3164""#,
        );
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(any::<String>(), inner, 0..4)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn formatting_preserves_the_value(value in values()) {
            let text = value.to_string();
            for styled in [pretty(&text), compact(&text)] {
                prop_assert_eq!(&serde_json::from_str::<Value>(&styled).unwrap(), &value);
                prop_assert_eq!(toolrack_transport::sanitize_text(&styled), styled.as_str());
            }
        }
    }
}
