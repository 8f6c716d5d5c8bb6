//! Strings of raw JSON: finds, decodes and rewrites them without parsing the rest.
//!
//! **Invariant:** only strings are rewritten; all other bytes stay, and JSON stays valid JSON.

use std::borrow::Cow;

use memchr::{memchr, memchr2};

/// The strings of a JSON text, in order. A last string without an end goes on to the end of the text.
pub(crate) fn json_strings(json: &[u8]) -> impl Iterator<Item = JsonString<'_>> {
    let mut position = 0;
    std::iter::from_fn(move || {
        let start = position + memchr(b'"', json.get(position..)?)? + 1;
        let end = literal_end(json, start).unwrap_or(json.len());
        position = end + 1;
        Some(JsonString { json, start, end })
    })
}

/// A string within a JSON text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct JsonString<'j> {
    json: &'j [u8],
    /// Position after the first quote.
    start: usize,
    /// Position of the last quote.
    end: usize,
}

impl<'j> JsonString<'j> {
    /// What is between the quotes, in escapes.
    pub(crate) fn literal(self) -> &'j [u8] {
        self.json.get(self.start..self.end).unwrap_or_default()
    }

    /// Whether this is the name of a member: only then a colon follows.
    pub(crate) fn is_member_name(self) -> bool {
        let rest = self.json.get(self.end + 1..).unwrap_or_default();
        rest.trim_ascii_start().first() == Some(&b':')
    }
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

/// Replaces the literals for which `rewrite` returns another one. `None` if there are none.
pub(crate) fn rewrite_strings(
    json: &[u8],
    mut rewrite: impl FnMut(JsonString<'_>) -> Option<String>,
) -> Option<Vec<u8>> {
    let (mut out, mut n_copied) = (Vec::new(), 0);
    for string in json_strings(json) {
        if let Some(literal) = rewrite(string) {
            out.extend_from_slice(json.get(n_copied..string.start)?);
            out.extend_from_slice(literal.as_bytes());
            n_copied = string.end;
        }
    }
    if n_copied == 0 {
        return None;
    }
    out.extend_from_slice(json.get(n_copied..)?);
    Some(out)
}

/// The literal of a text.
pub(crate) fn encode_literal(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or_default().to_owned()
}

/// The text of a literal. `serde_json` rejects a lone surrogate and control characters, which clients accept: they must
/// not hide the rest.
pub(crate) fn decode_literal(literal: &str) -> Cow<'_, str> {
    if !literal.contains('\\') {
        return Cow::Borrowed(literal);
    }
    let mut text = String::with_capacity(literal.len());
    decode_pieces(literal, |piece, _n_bytes| text.push_str(piece));
    Cow::Owned(text)
}

/// Turns offsets in the text of a literal into offsets in the literal. The offsets ascend and are between characters.
pub(crate) fn to_literal_offsets<'o>(literal: &str, offsets: impl Iterator<Item = &'o mut usize>) {
    let mut offsets = offsets.peekable();
    let (mut text_start, mut literal_start) = (0, 0);
    decode_pieces(literal, |piece, n_bytes| {
        let text_end = text_start + piece.len();
        while let Some(offset) = offsets.next_if(|offset| **offset <= text_end) {
            // Within a piece only if that is no escape.
            *offset = match *offset {
                end if end == text_end => literal_start + n_bytes,
                inner => literal_start + inner - text_start,
            };
        }
        text_start = text_end;
        literal_start += n_bytes;
    });
}

/// Decodes a literal in pieces, each an escape or text without escapes, and calls `emit` with the text of the piece and
/// its length in the literal.
fn decode_pieces(literal: &str, mut emit: impl FnMut(&str, usize)) {
    let mut rest = literal;
    while let Some((before, escaped)) = rest.split_once('\\') {
        emit(before, before.len());
        rest = match decode_escape(escaped) {
            Some((character, after)) => {
                let n_bytes = 1 + escaped.len() - after.len();
                emit(character.encode_utf8(&mut [0; 4]), n_bytes);
                after
            }
            None => escaped,
        };
    }
    emit(rest, rest.len());
}

/// The character of an escape, of which `text` is what follows the backslash, and the text after it.
fn decode_escape(text: &str) -> Option<(char, &str)> {
    let mut characters = text.chars();
    let character = match characters.next()? {
        'u' => return Some(decode_unicode(characters.as_str())),
        'b' => '\u{8}',
        'f' => '\u{c}',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        other => other,
    };
    Some((character, characters.as_str()))
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

    #[test]
    fn strings_and_member_names_are_found() {
        let check = |json: &str, expected: &[(&str, bool)]| {
            let found: Vec<_> = json_strings(json.as_bytes())
                .map(|string| (str::from_utf8(string.literal()).unwrap(), string.is_member_name()))
                .collect();
            assert_eq!(found, expected, "{json}");
        };
        check(
            r#"{"a":"b","c" : ["d:"]}"#,
            &[("a", true), ("b", false), ("c", true), ("d:", false)],
        );
        check("\"a\\\"b\\\\\"\n\t:", &[(r#"a\"b\\"#, true)]);
        check(r#"["open"#, &[("open", false)]);
        check(r#"["\"#, &[(r"\", false)]);
        check("[1, null]", &[]);
    }

    #[test]
    fn offsets_are_those_of_the_literal() {
        let check = |literal: &str, part: &str, expected: &str| {
            let text = decode_literal(literal);
            let start = text.find(part).unwrap();
            let mut range = [start, start + part.len()];
            to_literal_offsets(literal, range.iter_mut());
            assert_eq!(&literal[range[0]..range[1]], expected, "{literal}");
        };
        check("abc", "b", "b");
        check(r"a\nb\u00e9c", "b\u{e9}", r"b\u00e9");
        check(r"a\ud83d\ude00b", "\u{1f600}", r"\ud83d\ude00");
        check(r"x\/\/y", "/y", r"\/y");
        check(r"abc\", "abc", "abc");
    }

    proptest! {
        #[test]
        fn escapes_decode_as_in_serde_json(text in r#"([a-z"\\/]|\\u[0-9a-fA-F]{4}|\\[bfnrt"/\\]){0,12}"#) {
            let literal = format!("\"{text}\"");
            if let Ok(Value::String(expected)) = serde_json::from_str(&literal) {
                prop_assert_eq!(decode_literal(&text), expected);
            }
        }

        #[test]
        fn literal_decodes_to_its_text(text in any::<String>()) {
            let literal = encode_literal(&text);
            prop_assert_eq!(decode_literal(&literal), text);
        }
    }
}
