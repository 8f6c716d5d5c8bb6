//! `resources/read`: what a resource holds now.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::cache_hint::{CacheHint, Hints};
use crate::error::DecodeError;
use crate::input_required::InputResponses;
use crate::list_page::{Skipped, salvage};
use crate::resource::contents::ResourceContents;
use crate::serde_lenient::decode;

/// Asks for the contents of a resource.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReadResourceParams<'a> {
    /// The URI as the server wrote it.
    pub uri: &'a str,
    /// Our answers, when the server asked something before it would answer. Since 2026-07-28.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_responses: Option<&'a InputResponses>,
    /// What the server wants back with them, unchanged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_state: Option<&'a str>,
}

impl<'a> ReadResourceParams<'a> {
    /// The first request for `uri`.
    pub fn new(uri: &'a str) -> Self {
        Self { uri, input_responses: None, request_state: None }
    }
}

/// What a resource holds. A directory holds several.
#[derive(Debug, Clone)]
pub struct ReadResourceResult<'a> {
    /// What could be read, in the server's order.
    pub contents: Vec<ResourceContents<'a>>,
    /// What could not.
    pub skipped: Vec<Skipped>,
    /// How long this may be kept.
    pub cache: CacheHint,
    /// What else the server attached, as written.
    pub meta: Option<Cow<'a, RawValue>>,
}

#[derive(Deserialize)]
struct Members<'a> {
    #[serde(borrow)]
    contents: Option<&'a RawValue>,
    #[serde(borrow, rename = "_meta")]
    meta: Option<&'a RawValue>,
    #[serde(borrow, rename = "ttlMs")]
    ttl: Option<&'a RawValue>,
    #[serde(borrow, rename = "cacheScope")]
    scope: Option<&'a RawValue>,
}

impl<'a> ReadResourceResult<'a> {
    /// Reads the answer. A malformed item is skipped and described.
    pub fn parse(raw: &'a [u8]) -> Result<Self, DecodeError> {
        let Members { contents, meta, ttl, scope } = decode(raw)?;
        let Some(listed) = contents else {
            return Err(DecodeError::Missing { member: "contents" });
        };
        let (contents, skipped) = match serde_json::from_str(listed.get()) {
            Ok(contents) => (contents, Vec::new()),
            Err(_unsound) => {
                let entries: Vec<&RawValue> = serde_json::from_str(listed.get())?;
                salvage(&entries)
            }
        };
        let meta = meta.map(Cow::Borrowed);
        Ok(Self { contents, skipped, cache: Hints { ttl, scope }.read(), meta })
    }

    /// Copies what is borrowed.
    pub fn into_owned(self) -> ReadResourceResult<'static> {
        ReadResourceResult {
            contents: self.contents.into_iter().map(ResourceContents::into_owned).collect(),
            skipped: self.skipped,
            cache: self.cache,
            meta: self.meta.map(|it| Cow::Owned(it.into_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(json: &str, contents: &str, skipped: &[usize]) {
        let read = ReadResourceResult::parse(json.as_bytes()).unwrap().into_owned();
        let passed: Vec<_> = read.skipped.iter().map(|it| it.index).collect();
        let written = serde_json::to_string(&read.contents).unwrap();
        assert_eq!((&*written, &*passed), (contents, skipped), "{json}");
    }

    #[test]
    fn text_and_bytes_are_told_apart() {
        check(
            r#"{"contents":[{"uri":"a:","text":"x\ny","mimeType":"text/plain","_meta":{"k" :1}},
                {"uri":"b:","blob":"AAEC","new":1}],"ttlMs":5}"#,
            concat!(
                r#"[{"uri":"a:","mimeType":"text/plain","text":"x\ny","_meta":{"k" :1}},"#,
                r#"{"uri":"b:","blob":"AAEC"}]"#
            ),
            &[],
        );
    }

    #[test]
    fn malformed_items_are_skipped() {
        check(
            r#"{"contents":[{"uri":"a:"},{"uri":"b:","text":""},7]}"#,
            r#"[{"uri":"b:","text":""}]"#,
            &[0, 2],
        );
        check(r#"{"contents":[]}"#, "[]", &[]);
    }

    #[test]
    fn no_contents_is_a_failure() {
        for json in ["{}", r#"{"contents":null}"#, r#"{"contents":{}}"#, "[]"] {
            assert!(ReadResourceResult::parse(json.as_bytes()).is_err(), "{json}");
        }
    }
}
