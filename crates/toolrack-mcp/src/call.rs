//! `tools/call`: a tool is used and answers.
//!
//! **Invariant:** reading an answer fails only if it is no JSON object. Whatever is odd inside it is
//! kept as it is written.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::content::Content;
use crate::content::block::Plain;
use crate::error::DecodeError;
use crate::input::InputResponses;
use crate::lenient::{decode, present};

/// Uses a tool.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CallToolParams<'a> {
    /// The name as the server wrote it.
    pub name: &'a str,
    /// The arguments, an object. Some servers want `{}` rather than nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments: Option<&'a RawValue>,
    /// Our answers, when the server asked something before it would answer. Since 2026-07-28.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_responses: Option<&'a InputResponses>,
    /// What the server wants back with them, unchanged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_state: Option<&'a str>,
}

impl<'a> CallToolParams<'a> {
    /// The first request of a call.
    pub fn new(name: &'a str, arguments: Option<&'a RawValue>) -> Self {
        Self { name, arguments, input_responses: None, request_state: None }
    }
}

/// What a tool answered, borrowing from the raw result where it can.
#[derive(Debug, Clone, Default)]
pub struct ToolCallResult<'a> {
    /// The answer for a model.
    pub content: Vec<Content<'a>>,
    /// The answer for a program, as written. `Some` of a JSON `null` is an answer too.
    pub structured_content: Option<Cow<'a, RawValue>>,
    /// The tool ran and failed. A model should see why.
    pub is_error: bool,
    /// What else the server attached, as written.
    pub meta: Option<Cow<'a, RawValue>>,
}

impl<'a> ToolCallResult<'a> {
    /// Reads the answer to a call.
    pub fn parse(raw: &'a [u8]) -> Result<Self, DecodeError> {
        match decode::<Sound<'a>>(raw) {
            Ok(sound) => Ok(sound.finish()),
            Err(_unsound) => decode::<Members<'a>>(raw).map(Members::salvage),
        }
    }

    /// The text blocks, joined with newlines. Copies nothing if there is only one.
    pub fn text(&self) -> Cow<'_, str> {
        join(self.content.iter().filter_map(Content::as_text).map(Cow::Borrowed))
    }

    /// Like [`text`](Self::text), with one line in place of each block that is no text.
    pub fn text_with_placeholders(&self) -> Cow<'_, str> {
        join(self.content.iter().filter_map(|block| match block.as_text() {
            Some(text) => Some(Cow::Borrowed(text)),
            None => block.placeholder().map(Cow::Owned),
        }))
    }

    /// Copies what is borrowed.
    pub fn into_owned(self) -> ToolCallResult<'static> {
        ToolCallResult {
            content: self.content.into_iter().map(Content::into_owned).collect(),
            structured_content: self.structured_content.map(|it| Cow::Owned(it.into_owned())),
            is_error: self.is_error,
            meta: self.meta.map(|it| Cow::Owned(it.into_owned())),
        }
    }
}

fn join<'a>(mut lines: impl Iterator<Item = Cow<'a, str>>) -> Cow<'a, str> {
    let mut joined = lines.next().unwrap_or_default();
    for line in lines {
        let joined = joined.to_mut();
        joined.push('\n');
        joined.push_str(&line);
    }
    joined
}

/// An answer with nothing odd in it, which is read in one pass.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Sound<'a> {
    #[serde(borrow)]
    content: Option<Vec<Plain<'a>>>,
    #[serde(borrow, default, deserialize_with = "present")]
    structured_content: Option<&'a RawValue>,
    is_error: Option<bool>,
    #[serde(borrow, rename = "_meta")]
    meta: Option<&'a RawValue>,
}

impl<'a> Sound<'a> {
    fn finish(self) -> ToolCallResult<'a> {
        let content = self.content.unwrap_or_default();
        ToolCallResult {
            content: content.into_iter().map(|it| it.0).collect(),
            structured_content: self.structured_content.map(Cow::Borrowed),
            is_error: self.is_error.unwrap_or_default(),
            meta: self.meta.map(Cow::Borrowed),
        }
    }
}

/// Any answer, member by member.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Members<'a> {
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    structured_content: Option<&'a RawValue>,
    #[serde(borrow)]
    is_error: Option<&'a RawValue>,
    #[serde(borrow, rename = "_meta")]
    meta: Option<&'a RawValue>,
}

impl<'a> Members<'a> {
    fn salvage(self) -> ToolCallResult<'a> {
        let content = match self.content {
            None => Vec::new(),
            Some(raw) => match serde_json::from_str::<Vec<&RawValue>>(raw.get()) {
                Ok(blocks) => blocks.into_iter().map(Content::parse).collect(),
                // A single block where a list belongs.
                Err(_no_list) => vec![Content::parse(raw)],
            },
        };
        ToolCallResult {
            content,
            structured_content: self.structured_content.map(Cow::Borrowed),
            is_error: self.is_error.is_some_and(|it| it.get() == "true"),
            meta: self.meta.map(Cow::Borrowed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shows an answer in one line: content, structured content, failure.
    #[track_caller]
    fn check(json: &str, expected: (&str, Option<&str>, bool)) {
        let read = ToolCallResult::parse(json.as_bytes()).unwrap().into_owned();
        let content = serde_json::to_string(&read.content).unwrap();
        let structured = read.structured_content.as_deref().map(RawValue::get);
        assert_eq!((&*content, structured, read.is_error), expected, "{json}");
    }

    #[test]
    fn sound_answers_are_read_whole() {
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
    fn odd_answers_are_kept() {
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
    fn what_is_no_object_is_no_answer() {
        for json in ["", "[]", "null", "{", "\"text\"", r#"{"content":[}"#] {
            assert!(ToolCallResult::parse(json.as_bytes()).is_err(), "{json}");
        }
    }

    #[test]
    fn text_is_joined_and_the_rest_is_named() {
        let json = br#"{"content":[{"type":"text","text":"a"},
            {"type":"resource_link","uri":"x:","name":"n"},{"type":"text","text":"b"}]}"#;
        let read = ToolCallResult::parse(json).unwrap();
        assert_eq!(read.text(), "a\nb");
        assert_eq!(read.text_with_placeholders(), "a\n[resource link: x:]\nb");
        assert_eq!(ToolCallResult::default().text(), "");
    }

    #[test]
    fn one_short_text_is_not_copied() {
        let json = br#"{"content":[{"type":"text","text":"abc"}]}"#;
        let read = ToolCallResult::parse(json).unwrap();
        assert!(matches!(read.content.first(), Some(Content::Text { text: Cow::Borrowed(_), .. })));
        assert!(matches!(read.text(), Cow::Borrowed("abc")));
    }
}
