//! Strips hidden text from raw JSON: every string, member names included, and nothing but strings.
//!
//! In member names, hidden characters are replaced and not removed: a name that loses a character can become that of
//! another member, and then the document means something else than the one that was checked.
//!
//! **Invariant:** JSON without hidden text is not changed, not even in its spelling. A string is rewritten only if it
//! has hidden text; all other bytes stay.

use memchr::memchr_iter;

use crate::json_strings::{JsonString, decode_literal, encode_literal, rewrite_strings};
use crate::sanitize::{has_suspect, replace_hidden, strip_hidden};

/// The bytes of one vectorized pass before the next check for an early exit.
const CHUNK_BYTES: usize = 256;

/// Strips hidden text as [`strip_hidden`] does from all strings of a JSON text, also if it is written in escapes, and
/// replaces each hidden character of a member name with U+FFFD. `None` if there is none.
pub fn strip_hidden_json(json: &[u8]) -> Option<Vec<u8>> {
    if !may_hide(json) {
        return None;
    }
    rewrite_strings(json, strip_string)
}

/// A cheap filter: whether the JSON has a byte or an escape that hidden text needs.
fn may_hide(json: &[u8]) -> bool {
    // Control characters are always escaped within a string, and outside of one they are spaces.
    let is_escape = |position: usize| matches!(json.get(position + 1), Some(b'u' | b'b' | b'f'));
    json.chunks(CHUNK_BYTES).any(has_suspect) || memchr_iter(b'\\', json).any(is_escape)
}

/// The literal of a string without its hidden text. `None` if it has none.
fn strip_string(string: JsonString<'_>) -> Option<String> {
    if !may_hide(string.literal()) {
        return None;
    }
    let literal = String::from_utf8_lossy(string.literal());
    let text = decode_literal(&literal);
    let stripped =
        if string.is_member_name() { replace_hidden(&text) } else { strip_hidden(&text) };
    (stripped != text).then(|| encode_literal(&stripped))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(json: &str, expected: Option<&str>) {
        let stripped = strip_hidden_json(json.as_bytes());
        let stripped = stripped.map(|stripped| String::from_utf8(stripped).unwrap());
        assert_eq!(stripped.as_deref(), expected, "{json}");
    }

    #[test]
    fn hidden_text_is_stripped_from_json() {
        let tag = "\u{e0049}";
        check(&format!(r#"{{ "a":"x{tag}y", "n":1.0 }}"#), Some(r#"{ "a":"xy", "n":1.0 }"#));
        check(r#"["a\udb40\udc49b"]"#, Some(r#"["ab"]"#));
        check(r#"["a\u202eb", "c\u0041"]"#, Some(r#"["ab", "c\u0041"]"#));
        check(r#"["\u001b[31mred\u001B[0m\n"]"#, Some(r#"["red\n"]"#));
        check(r#"["a\bb\fc\u0000"]"#, Some(r#"["abc"]"#));
        check("[\"a\u{7f}\u{9b}1mb\"]", Some(r#"["a1mb"]"#));
        // A lone surrogate does not protect what follows it.
        check("[\"\\ud800 \u{202e}x\"]", Some("[\"\u{fffd} x\"]"));
        check(r#"["\udb40\u0041\u2066"]"#, Some("[\"\u{fffd}A\"]"));
        // An escaped quote does not end a string.
        check("[\"\\\"\u{202e}\"]", Some(r#"["\""]"#));
        check("[\"open\u{202e}", Some(r#"["open"#));
    }

    #[test]
    fn hidden_characters_in_names_are_replaced() {
        check("{\"k\u{200b}\":1}", Some("{\"k\u{fffd}\":1}"));
        check(
            r#"{"url":"a","url\u200b" : "b","\udb40\udc49url\n":"c"}"#,
            Some("{\"url\":\"a\",\"url\u{fffd}\" : \"b\",\"\u{fffd}url\\n\":\"c\"}"),
        );
        // A name keeps the visible part of an ANSI escape, which a value loses.
        check(r#"{"\u001b[1mk":"\u001b[1mv"}"#, Some("{\"\u{fffd}[1mk\":\"v\"}"));
        check("{\"\u{627}\u{200c}\u{628}\r\":1}", None);
    }

    #[test]
    fn json_without_hidden_text_is_unchanged() {
        for json in [
            r#"{ "s":"a\u0041\/\r\n\t\"\\", "e":1E5 }"#,
            r#"["\ud83d\ude00 \u00e9", "C:\\users\\bob\\files"]"#,
            "[\"“quoted” – 漢字かな, \u{1f468}\u{200d}\u{1f469}, \u{627}\u{200c}\u{628}\"]",
            r#"["\ud800"]"#,
            "{\r\n\"a\":\r\n\"b\"}",
            "",
            r#"["\"#,
            r#"["\u12"]"#,
        ] {
            check(json, None);
        }
    }

    proptest! {
        /// The values are those that stripping each string would give, and a second pass finds nothing.
        #[test]
        fn strings_are_stripped_one_by_one(texts in prop::collection::vec(any::<String>(), 0..4)) {
            let json = serde_json::to_string(&texts).unwrap();
            let stripped = strip_hidden_json(json.as_bytes());
            let written = stripped.unwrap_or_else(|| json.clone().into_bytes());
            let values: Vec<String> = serde_json::from_slice(&written).unwrap();
            let expected: Vec<_> = texts.iter().map(|text| strip_hidden(text).into_owned()).collect();
            prop_assert_eq!(values, expected);
            prop_assert_eq!(strip_hidden_json(&written), None);
        }

        #[test]
        fn bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            strip_hidden_json(&bytes);
        }
    }
}
