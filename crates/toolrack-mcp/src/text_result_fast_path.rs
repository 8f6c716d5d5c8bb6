//! A shortcut for the answer that nearly every call gets: one block of text, and whether it failed.
//!
//! Its shape is recognized by its ends, and the text between them is only looked through for what would
//! have to be unescaped. Any other answer is read in full.

use std::ops::Range;

const HEAD: &[u8] = br#"{"content":[{"type":"text","text":""#;

/// What can stand behind the text, and what it means.
const TAILS: &[(&[u8], bool)] = &[
    (br#""}]}"#, false),
    (br#""}],"isError":false}"#, false),
    (br#""}],"isError":true}"#, true),
    (br#""}],"isError":false,"resultType":"complete"}"#, false),
    (br#""}],"resultType":"complete"}"#, false),
];

/// Where the text of such an answer stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OnlyText {
    /// The text within the answer, which needs no unescaping. Whether it is UTF-8 is not checked.
    pub text: Range<usize>,
    /// The tool ran and failed.
    pub is_error: bool,
}

impl OnlyText {
    /// Finds the text, if the answer has the shape and the text needs no unescaping.
    pub fn find(answer: &[u8]) -> Option<Self> {
        let rest = answer.strip_prefix(HEAD)?;
        let (tail, is_error) = TAILS.iter().find(|(tail, _)| rest.ends_with(tail))?;
        let text = rest.get(..rest.len() - tail.len())?;
        let range = HEAD.len()..HEAD.len() + text.len();
        is_plain(text).then_some(Self { text: range, is_error: *is_error })
    }
}

/// In pieces and without a branch inside, so that the compiler looks at many bytes at once and a large
/// text can still be given up early.
fn is_plain(text: &[u8]) -> bool {
    let odd =
        |byte: &u8| u8::from(*byte < 0x20) | u8::from(*byte == b'"') | u8::from(*byte == b'\\');
    let has_odd = |piece: &[u8]| piece.iter().fold(0, |seen, byte| seen | odd(byte)) != 0;
    !text.chunks(4096).any(has_odd)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(answer: &str, expected: Option<(&str, bool)>) {
        let found = OnlyText::find(answer.as_bytes());
        let shown = found.map(|it| (&answer[it.text], it.is_error));
        assert_eq!(shown, expected, "{answer}");
    }

    #[test]
    fn the_common_answer_is_recognized() {
        check(r#"{"content":[{"type":"text","text":"hello"}]}"#, Some(("hello", false)));
        check(r#"{"content":[{"type":"text","text":""}],"isError":true}"#, Some(("", true)));
        check(r#"{"content":[{"type":"text","text":"ä"}],"isError":false}"#, Some(("ä", false)));
        check(
            r#"{"content":[{"type":"text","text":"a"}],"resultType":"complete"}"#,
            Some(("a", false)),
        );
    }

    #[test]
    fn anything_else_is_left_to_the_reader() {
        check(r#"{"content":[{"type":"text","text":"a\nb"}]}"#, None);
        check(r#"{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}"#, None);
        check(r#"{"content":[{"type":"text","text":"a","annotations":{}}]}"#, None);
        check("{\"content\":[{\"type\":\"text\",\"text\":\"a\nb\"}]}", None);
        check(r#"{"content":[{"type":"text","text":"a"}],"structuredContent":{"x":1}}"#, None);
        check(r#"{"content":[{"type":"text","text":"}]}"#, None);
        check("", None);
    }
}
