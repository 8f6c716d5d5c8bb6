//! Strips hidden text from raw JSON: every string, member names included, and nothing but strings.
//!
//! **Invariant:** JSON without hidden text is not changed, not even in its spelling. A string is rewritten only if it
//! loses something; all other bytes stay.

use memchr::{memchr, memchr_iter, memchr2};

use crate::encode::write_string;
use crate::sanitize::{has_suspect, strip_hidden};

/// The bytes of one vectorized pass before the next check for an early exit.
const CHUNK_BYTES: usize = 256;

/// Strips hidden text as [`strip_hidden`] does from all strings of a JSON text, also if it is written in escapes.
/// `None` if there is none, or the text is not JSON.
pub fn strip_hidden_json(json: &[u8]) -> Option<Vec<u8>> {
    if !may_hide(json) {
        return None;
    }
    let (mut out, mut n_copied, mut position) = (Vec::new(), 0, 0);
    while let Some(offset) = memchr(b'"', json.get(position..)?) {
        let start = position + offset;
        let end = literal_end(json, start + 1)?;
        if let Some(stripped) = strip_literal(json.get(start + 1..end)?) {
            out.extend_from_slice(json.get(n_copied..start)?);
            write_string(&mut out, &stripped).ok()?;
            n_copied = end + 1;
        }
        position = end + 1;
    }
    if n_copied == 0 {
        return None;
    }
    out.extend_from_slice(json.get(n_copied..)?);
    Some(out)
}

/// A cheap filter: whether the JSON has a byte or an escape that hidden text needs.
fn may_hide(json: &[u8]) -> bool {
    // Control characters are always escaped within a string, and outside of one they are spaces.
    let is_escape = |position: usize| matches!(json.get(position + 1), Some(b'u' | b'b' | b'f'));
    json.chunks(CHUNK_BYTES).any(has_suspect) || memchr_iter(b'\\', json).any(is_escape)
}

/// Position of the quote that ends the literal which begins at `position`.
fn literal_end(json: &[u8], mut position: usize) -> Option<usize> {
    loop {
        let found = position + memchr2(b'"', b'\\', json.get(position..)?)?;
        if json.get(found) == Some(&b'"') {
            return Some(found);
        }
        position = found + 2;
    }
}

/// The text of a literal without what is hidden in it. `None` if nothing is.
fn strip_literal(literal: &[u8]) -> Option<String> {
    if !may_hide(literal) {
        return None;
    }
    let text = decode(&String::from_utf8_lossy(literal));
    let stripped = strip_hidden(&text);
    (*stripped != text).then(|| stripped.into_owned())
}

/// Decodes a literal. `serde_json` rejects a lone surrogate, which clients accept: it must not hide the rest.
fn decode(literal: &str) -> String {
    let mut text = String::with_capacity(literal.len());
    let mut rest = literal;
    while let Some((before, escaped)) = rest.split_once('\\') {
        text.push_str(before);
        let mut after = escaped.chars();
        rest = match after.next() {
            Some('u') => {
                let (character, rest) = decode_unicode(after.as_str());
                text.push(character);
                rest
            }
            Some(escape) => {
                text.push(match escape {
                    'b' => '\u{8}',
                    'f' => '\u{c}',
                    'n' => '\n',
                    'r' => '\r',
                    't' => '\t',
                    other => other,
                });
                after.as_str()
            }
            None => "",
        };
    }
    text.push_str(rest);
    text
}

/// The character of a `\u` escape, of which `text` begins with the digits, and the text after it.
fn decode_unicode(text: &str) -> (char, &str) {
    let unit = |text: &str| u32::from_str_radix(text.get(..4)?, 16).ok();
    let Some(first) = unit(text) else { return (char::REPLACEMENT_CHARACTER, text) };
    let rest = text.get(4..).unwrap_or_default();
    let low = rest.strip_prefix("\\u").and_then(unit).filter(|low| (0xdc00..0xe000).contains(low));
    if let (0xd800..0xdc00, Some(low)) = (first, low) {
        let code = 0x1_0000 + ((first - 0xd800) << 10) + (low - 0xdc00);
        let character = char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
        return (character, rest.get(6..).unwrap_or_default());
    }
    (char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER), rest)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

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
        check("{\"k\u{200b}\":1}", Some(r#"{"k":1}"#));
        // A lone surrogate does not protect what follows it.
        check("[\"\\ud800 \u{202e}x\"]", Some("[\"\u{fffd} x\"]"));
        check(r#"["\udb40\u0041\u2066"]"#, Some("[\"\u{fffd}A\"]"));
        // An escaped quote does not end a string.
        check("[\"\\\"\u{202e}\"]", Some(r#"["\""]"#));
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
            "[\"open\u{202e}",
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
        fn escapes_decode_as_in_serde_json(text in r#"([a-z"\\/]|\\u[0-9a-fA-F]{4}|\\[bfnrt"/\\]){0,12}"#) {
            let literal = format!("\"{text}\"");
            if let Ok(Value::String(expected)) = serde_json::from_str(&literal) {
                prop_assert_eq!(decode(&text), expected);
            }
        }

        #[test]
        fn bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            strip_hidden_json(&bytes);
        }
    }
}
