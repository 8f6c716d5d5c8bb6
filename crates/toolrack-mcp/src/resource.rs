//! Resources and templates as their server lists them.

use std::borrow::Cow;

use serde::de::{Error, IgnoredAny};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::cache_hint::{CacheHint, Hints};
use crate::error::DecodeError;
use crate::input_required::InputResponses;
use crate::list_page::{Listed, Skipped, salvage};
use crate::serde_lenient::{Annotations, Icons, Object, Text, decode, fitting, or_absent};

/// Something a server lets one read.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Resource {
    /// Where it is. Sent back byte for byte.
    pub uri: String,
    /// The programmatic name.
    pub name: String,
    /// The name for people, since 2025-06-18.
    #[serde(default, deserialize_with = "or_absent", skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What it is, for a model to read.
    #[serde(default, deserialize_with = "or_absent", skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Its media type.
    #[serde(default, deserialize_with = "or_absent", skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// Its size in bytes as written: some servers write a float.
    #[serde(
        default,
        deserialize_with = "fitting::<_, f64>",
        skip_serializing_if = "Option::is_none"
    )]
    pub size: Option<Box<RawValue>>,
    /// For whom it is and how much it matters, as written.
    #[serde(
        default,
        deserialize_with = "fitting::<_, Object<Annotations>>",
        skip_serializing_if = "Option::is_none"
    )]
    pub annotations: Option<Box<RawValue>>,
    /// Its icons, as written, since 2025-11-25.
    #[serde(
        default,
        deserialize_with = "fitting::<_, Icons>",
        skip_serializing_if = "Option::is_none"
    )]
    pub icons: Option<Box<RawValue>>,
    /// What else the server attached, as written, since 2025-06-18.
    #[serde(
        rename = "_meta",
        default,
        deserialize_with = "fitting::<_, Object<IgnoredAny>>",
        skip_serializing_if = "Option::is_none"
    )]
    pub meta: Option<Box<RawValue>>,
}

/// A family of resources.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceTemplate {
    /// An RFC 6570 template of their URIs.
    pub uri_template: String,
    /// The programmatic name.
    pub name: String,
    /// The name for people, since 2025-06-18.
    #[serde(default, deserialize_with = "or_absent", skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What they are, for a model to read.
    #[serde(default, deserialize_with = "or_absent", skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Their media type, if all have the same.
    #[serde(default, deserialize_with = "or_absent", skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// For whom they are and how much they matter, as written.
    #[serde(
        default,
        deserialize_with = "fitting::<_, Object<Annotations>>",
        skip_serializing_if = "Option::is_none"
    )]
    pub annotations: Option<Box<RawValue>>,
    /// Their icons, as written, since 2025-11-25.
    #[serde(
        default,
        deserialize_with = "fitting::<_, Icons>",
        skip_serializing_if = "Option::is_none"
    )]
    pub icons: Option<Box<RawValue>>,
    /// What else the server attached, as written, since 2025-06-18.
    #[serde(
        rename = "_meta",
        default,
        deserialize_with = "fitting::<_, Object<IgnoredAny>>",
        skip_serializing_if = "Option::is_none"
    )]
    pub meta: Option<Box<RawValue>>,
}

impl Listed for Resource {
    const MEMBER: &'static str = "resources";
}

impl Listed for ResourceTemplate {
    const MEMBER: &'static str = "resourceTemplates";
}

impl Resource {
    /// The size in bytes, if the server gave a whole number.
    pub fn size_bytes(&self) -> Option<u64> {
        self.size.as_ref().and_then(|it| it.get().parse().ok())
    }
}

/// What one resource holds, borrowing from the result where it can.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceContents<'a> {
    /// Where it is. Need not be the URI that was asked for.
    pub uri: Cow<'a, str>,
    /// Its media type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<Cow<'a, str>>,
    /// The contents themselves.
    #[serde(flatten)]
    pub body: ResourceBody<'a>,
    /// What else the server attached, as written.
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<Cow<'a, RawValue>>,
}

/// Text or bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum ResourceBody<'a> {
    /// Text.
    Text(Cow<'a, str>),
    /// Bytes in base64, not checked.
    Blob(Cow<'a, str>),
}

impl<'de: 'a, 'a> Deserialize<'de> for ResourceContents<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Members<'a> {
            #[serde(borrow)]
            uri: Text<'a>,
            #[serde(borrow)]
            mime_type: Option<Text<'a>>,
            #[serde(borrow)]
            text: Option<Text<'a>>,
            #[serde(borrow)]
            blob: Option<Text<'a>>,
            #[serde(borrow, rename = "_meta")]
            meta: Option<&'a RawValue>,
        }
        let Members { uri, mime_type, text, blob, meta } = Members::deserialize(deserializer)?;
        let body = match (text, blob) {
            (Some(Text(text)), _) => ResourceBody::Text(text),
            (None, Some(Text(blob))) => ResourceBody::Blob(blob),
            (None, None) => return Err(D::Error::custom("neither `text` nor `blob`")),
        };
        let mime_type = mime_type.map(|it| it.0);
        Ok(Self { uri: uri.0, mime_type, body, meta: meta.map(Cow::Borrowed) })
    }
}

impl ResourceContents<'_> {
    /// Copies what is borrowed.
    pub fn into_owned(self) -> ResourceContents<'static> {
        ResourceContents {
            uri: Cow::Owned(self.uri.into_owned()),
            mime_type: self.mime_type.map(|it| Cow::Owned(it.into_owned())),
            body: match self.body {
                ResourceBody::Text(text) => ResourceBody::Text(Cow::Owned(text.into_owned())),
                ResourceBody::Blob(blob) => ResourceBody::Blob(Cow::Owned(blob.into_owned())),
            },
            meta: self.meta.map(|it| Cow::Owned(it.into_owned())),
        }
    }
}

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

/// Asks to be told when a resource changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct SubscribeParams<'a> {
    /// The URI as the server wrote it.
    pub uri: &'a str,
}

/// Asks to be told no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct UnsubscribeParams<'a> {
    /// The URI as the server wrote it.
    pub uri: &'a str,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::list_page::Page;

    #[test]
    fn resources_keep_their_uri_to_the_byte() {
        let json = br#"{"resources":[{"uri":"file:///a%20b?c=%2F","name":"a","size":12.0},
            {"uri":"x:","name":"b","size":7,"mimeType":null},{"name":"no uri"}]}"#;
        let page: Page<Resource> = Page::parse(json).unwrap();
        let read: Vec<_> = page.items.iter().map(|it| (&*it.uri, it.size_bytes())).collect();
        assert_eq!(read, [("file:///a%20b?c=%2F", None), ("x:", Some(7))]);
        assert_eq!(page.skipped.len(), 1);
    }

    #[test]
    fn templates_are_listed_under_their_own_name() {
        let json = br#"{"resourceTemplates":[{"uriTemplate":"f:{x}","name":"f"}]}"#;
        let page: Page<ResourceTemplate> = Page::parse(json).unwrap();
        let written = serde_json::to_string(&page.items).unwrap();
        assert_eq!(written, r#"[{"uriTemplate":"f:{x}","name":"f"}]"#);
    }
}

#[cfg(test)]
mod read_tests {
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
