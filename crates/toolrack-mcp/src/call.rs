//! `tools/call`: parameters and result, with a fast path for a single text block.
//!
//! **Invariant:** parsing a result fails only if it is not a JSON object. A malformed part is
//! kept as written.

use std::borrow::Cow;
use std::ops::Range;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::content::{Content, Plain, owned};
use crate::error::DecodeError;
use crate::method::Method;
use crate::request::{Request, RequestResult};
use crate::serde_lenient::{decode, present};
use crate::task::TaskParams;

/// Parameters of `tools/call`.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct CallToolParams<'a> {
    /// Tool name, as the server wrote it.
    pub name: &'a str,
    /// Arguments, a JSON object. Some servers require `{}` instead of an absent member.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Arguments<'a>>,
    /// Asks the server to run the call as a task. Only in 2025-11-25.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskParams>,
}

/// Arguments, raw or as a value.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(untagged)]
pub enum Arguments<'a> {
    /// JSON text, written unchanged.
    Raw(&'a RawValue),
    /// A value, serialized straight into the message.
    Value(&'a Value),
}

impl Request for CallToolParams<'_> {
    const METHOD: Method = Method::CallTool;
    type Result = ToolCallResult<'static>;

    /// The first request of a call is by far the most frequent message, so its name skips the escape check per
    /// character, and raw arguments skip serde.
    fn write(&self, out: &mut Vec<u8>) -> Result<(), serde_json::Error> {
        let Self { name, arguments, task } = self;
        if task.is_some() || !name.bytes().all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\')
        {
            return serde_json::to_writer(out, self);
        }
        out.extend_from_slice(br#"{"name":""#);
        out.extend_from_slice(name.as_bytes());
        let Some(arguments) = arguments else {
            out.extend_from_slice(br#""}"#);
            return Ok(());
        };
        out.extend_from_slice(br#"","arguments":"#);
        match arguments {
            Arguments::Raw(raw) => out.extend_from_slice(raw.get().as_bytes()),
            Arguments::Value(value) => serde_json::to_writer(&mut *out, value)?,
        }
        out.push(b'}');
        Ok(())
    }

    fn subject(&self) -> Option<&str> {
        Some(self.name)
    }

    fn arguments(&self) -> Option<Arguments<'_>> {
        self.arguments
    }
}

/// Result of a tool call, borrowing from the raw result where possible.
#[derive(Debug, Clone, Default)]
pub struct ToolCallResult<'a> {
    /// Content blocks, for a model.
    pub content: Vec<Content<'a>>,
    /// Structured content as written. `Some` of a JSON `null` counts as content.
    pub structured_content: Option<Cow<'a, RawValue>>,
    /// The tool ran and failed. The model should see the reason.
    pub is_error: bool,
    /// `_meta`, as written.
    pub meta: Option<Cow<'a, RawValue>>,
}

impl RequestResult for ToolCallResult<'static> {
    fn decode(raw: &[u8]) -> Result<Self, DecodeError> {
        ToolCallResult::parse(raw).map(ToolCallResult::into_owned)
    }
}

impl<'a> ToolCallResult<'a> {
    /// Reads the result of a call.
    pub fn parse(raw: &'a [u8]) -> Result<Self, DecodeError> {
        if let Some(only) = SingleText::find(raw)
            && let Some(Ok(text)) = raw.get(only.text).map(std::str::from_utf8)
        {
            let content = vec![Content::from_text(text)];
            return Ok(Self { content, is_error: only.is_error, ..Self::default() });
        }
        // Most results are sound, so the slow pass over every block runs only after a failure.
        match decode::<Members<'a, Vec<Plain<'a>>>>(raw) {
            Ok(sound) => {
                Ok(sound.finish(|blocks| blocks.into_iter().map(|block| block.0).collect()))
            }
            Err(_unsound) => {
                decode::<Members<'a, &'a RawValue>>(raw).map(|members| members.finish(read_lenient))
            }
        }
    }

    /// Text blocks joined with newlines. Does not copy a single block.
    pub fn text(&self) -> Cow<'_, str> {
        let mut texts = self.content.iter().filter_map(Content::as_text);
        let mut joined = Cow::Borrowed(texts.next().unwrap_or_default());
        for text in texts {
            let joined = joined.to_mut();
            joined.push('\n');
            joined.push_str(text);
        }
        joined
    }

    /// Copies borrowed parts.
    pub fn into_owned(self) -> ToolCallResult<'static> {
        ToolCallResult {
            content: self.content.into_iter().map(Content::into_owned).collect(),
            structured_content: self.structured_content.map(owned),
            is_error: self.is_error,
            meta: self.meta.map(owned),
        }
    }
}

/// Members of a result. Content is typed in a sound result, raw otherwise.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Members<'a, Blocks> {
    content: Option<Blocks>,
    #[serde(borrow, default, deserialize_with = "present")]
    structured_content: Option<&'a RawValue>,
    #[serde(borrow)]
    is_error: Option<&'a RawValue>,
    #[serde(borrow, rename = "_meta")]
    meta: Option<&'a RawValue>,
}

impl<'a, Blocks> Members<'a, Blocks> {
    fn finish(self, content: impl FnOnce(Blocks) -> Vec<Content<'a>>) -> ToolCallResult<'a> {
        ToolCallResult {
            // The schema requires `content`, but legacy servers may omit it.
            content: self.content.map(content).unwrap_or_default(),
            structured_content: self.structured_content.map(Cow::Borrowed),
            is_error: self.is_error.is_some_and(|flag| flag.get() == "true"),
            meta: self.meta.map(Cow::Borrowed),
        }
    }
}

fn read_lenient(content: &RawValue) -> Vec<Content<'_>> {
    match serde_json::from_str::<Vec<&RawValue>>(content.get()) {
        Ok(blocks) => blocks.into_iter().map(Content::parse).collect(),
        // A single block in place of a list.
        Err(_no_list) => vec![Content::parse(content)],
    }
}

const HEAD: &[u8] = br#"{"content":[{"type":"text","text":""#;

/// The possible endings after the text, and their `isError`.
const TAILS: &[(&[u8], bool)] = &[
    (br#""}]}"#, false),
    (br#""}],"isError":false}"#, false),
    (br#""}],"isError":true}"#, true),
    (br#""}],"isError":false,"resultType":"complete"}"#, false),
    (br#""}],"resultType":"complete"}"#, false),
];

/// Position of the text in a result with a single text block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SingleText {
    /// Range of the text, which has no escapes. UTF-8 is not checked.
    pub text: Range<usize>,
    /// The tool ran and failed.
    pub is_error: bool,
}

impl SingleText {
    /// Finds the text if the result has exactly one text block without escapes.
    pub fn find(answer: &[u8]) -> Option<Self> {
        let rest = answer.strip_prefix(HEAD)?;
        let (tail, is_error) = TAILS.iter().find(|(tail, _)| rest.ends_with(tail))?;
        let text = rest.get(..rest.len() - tail.len())?;
        let range = HEAD.len()..HEAD.len() + text.len();
        // A quote in the text would mean that the tail belongs to a later block.
        is_plain(text).then_some(Self { text: range, is_error: *is_error })
    }
}

/// Works on chunks without an inner branch, so that the compiler vectorizes it and a large text
/// with an escape is still abandoned early.
fn is_plain(text: &[u8]) -> bool {
    let odd =
        |byte: &u8| u8::from(*byte < 0x20) | u8::from(*byte == b'"') | u8::from(*byte == b'\\');
    let has_odd = |piece: &[u8]| piece.iter().fold(0, |seen, byte| seen | odd(byte)) != 0;
    !text.chunks(4096).any(has_odd)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Formats a result in one line: content, structured content, failure.
    #[track_caller]
    fn check(json: &str, expected: (&str, Option<&str>, bool)) {
        let read = ToolCallResult::parse(json.as_bytes()).unwrap().into_owned();
        let content = serde_json::to_string(&read.content).unwrap();
        let structured = read.structured_content.as_deref().map(RawValue::get);
        assert_eq!((&*content, structured, read.is_error), expected, "{json}");
    }

    #[test]
    fn params_are_written_as_serde_writes_them() {
        let raw = RawValue::from_string(r#"{"a" : "\u00e9"}"#.to_owned()).unwrap();
        let value = serde_json::json!({"b": "\"quoted\""});
        let arguments = [None, Some(Arguments::Raw(&raw)), Some(Arguments::Value(&value))];
        for name in ["add", "", "größer", "a\"b", "a\\b", "line\nbreak", "\u{7f}"] {
            for arguments in arguments {
                for task in [None, Some(TaskParams { ttl: 1 })] {
                    let params = CallToolParams { name, arguments, task };
                    let mut out = Vec::new();
                    params.write(&mut out).unwrap();
                    let expected = serde_json::to_string(&params).unwrap();
                    assert_eq!(String::from_utf8(out).unwrap(), expected);
                }
            }
        }
    }

    #[test]
    fn valid_results_are_read() {
        let text = r#"[{"type":"text","text":"a"}]"#;
        check(&format!(r#"{{"content":{text}}}"#), (text, None, false));
        check(&format!(r#"{{"isError":true,"content":{text},"x":1}}"#), (text, None, true));
        let both = format!(r#"{{"content":{text},"structuredContent":{{"a" : 1}}}}"#);
        check(&both, (text, Some(r#"{"a" : 1}"#), false));
    }

    /// Protocol facts §8.2.
    #[test]
    fn null_structured_content_is_not_absent() {
        check(r#"{"content":[],"structuredContent":null}"#, ("[]", Some("null"), false));
        check(r#"{"content":[],"structuredContent":[1]}"#, ("[]", Some("[1]"), false));
        check(r#"{"content":[]}"#, ("[]", None, false));
    }

    #[test]
    fn malformed_results_are_kept() {
        check("{}", ("[]", None, false));
        check(r#"{"content":null,"isError":null}"#, ("[]", None, false));
        check(
            r#"{"content":[{"type":"new"},{"type":"text","text":"a"},7],"isError":true}"#,
            (r#"[{"type":"new"},{"type":"text","text":"a"},7]"#, None, true),
        );
        check(r#"{"content":"plain","isError":"true"}"#, (r#"["plain"]"#, None, false));
        check(
            r#"{"content":{"type":"text","text":"a"},"structuredContent":null}"#,
            (r#"[{"type":"text","text":"a"}]"#, Some("null"), false),
        );
    }

    #[test]
    fn results_must_be_objects() {
        for json in ["", "[]", "null", "{", "\"text\"", r#"{"content":[}"#] {
            assert!(ToolCallResult::parse(json.as_bytes()).is_err(), "{json}");
        }
    }

    #[test]
    fn text_blocks_are_joined() {
        let json = br#"{"content":[{"type":"text","text":"a"},
            {"type":"resource_link","uri":"x:","name":"n"},{"type":"text","text":"b"}]}"#;
        let read = ToolCallResult::parse(json).unwrap();
        assert_eq!(read.text(), "a\nb");
        assert_eq!(ToolCallResult::default().text(), "");
    }

    #[test]
    fn single_text_is_not_copied() {
        let json = br#"{"content":[{"type":"text","text":"abc"}]}"#;
        let read = ToolCallResult::parse(json).unwrap();
        assert!(matches!(read.content.first(), Some(Content::Text { text: Cow::Borrowed(_), .. })));
        assert!(matches!(read.text(), Cow::Borrowed("abc")));
    }
}

#[cfg(test)]
mod text_result_fast_path_tests {
    use super::*;

    #[track_caller]
    fn check(answer: &str, expected: Option<(&str, bool)>) {
        let found = SingleText::find(answer.as_bytes());
        let shown = found.map(|found| (&answer[found.text], found.is_error));
        assert_eq!(shown, expected, "{answer}");
    }

    #[test]
    fn single_text_result_takes_the_fast_path() {
        check(r#"{"content":[{"type":"text","text":"hello"}]}"#, Some(("hello", false)));
        check(r#"{"content":[{"type":"text","text":""}],"isError":true}"#, Some(("", true)));
        check(r#"{"content":[{"type":"text","text":"ä"}],"isError":false}"#, Some(("ä", false)));
        check(
            r#"{"content":[{"type":"text","text":"a"}],"resultType":"complete"}"#,
            Some(("a", false)),
        );
    }

    #[test]
    fn other_results_skip_the_fast_path() {
        check(r#"{"content":[{"type":"text","text":"a\nb"}]}"#, None);
        check(r#"{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}"#, None);
        check(r#"{"content":[{"type":"text","text":"a","annotations":{}}]}"#, None);
        check("{\"content\":[{\"type\":\"text\",\"text\":\"a\nb\"}]}", None);
        check(r#"{"content":[{"type":"text","text":"a"}],"structuredContent":{"x":1}}"#, None);
        check(r#"{"content":[{"type":"text","text":"}]}"#, None);
        check("", None);
    }
}
