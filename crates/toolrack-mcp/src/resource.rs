//! Resources: list entries, templates, contents, `resources/read` and `resources/subscribe`.

use std::borrow::Cow;

use serde::de::{Error, IgnoredAny};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::content::owned;
use crate::error::DecodeError;
use crate::list_page::{ListEntry, SkippedEntry, are_shallow, read_lenient};
use crate::method::Method;
use crate::request::RequestResult;
use crate::serde_lenient::{Annotations, Icons, Object, Text, decode, fitting, or_absent};

/// A resource of a list.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Resource {
    /// URI, sent back byte for byte.
    pub uri: String,
    /// The programmatic name.
    pub name: String,
    /// Display name, since 2025-06-18.
    #[serde(default, deserialize_with = "or_absent", skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Description, for a model.
    #[serde(default, deserialize_with = "or_absent", skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Media type.
    #[serde(default, deserialize_with = "or_absent", skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// Size in bytes as written: some servers write a float.
    #[serde(default, deserialize_with = "fitting::<_, f64>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<Box<RawValue>>,
    /// Audience and priority, as written.
    #[serde(default, deserialize_with = "fitting::<_, Object<Annotations>>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Box<RawValue>>,
    /// Icons as written, since 2025-11-25.
    #[serde(default, deserialize_with = "fitting::<_, Icons>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub icons: Option<Box<RawValue>>,
    /// `_meta` as written, since 2025-06-18.
    #[serde(rename = "_meta", default, deserialize_with = "fitting::<_, Object<IgnoredAny>>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meta: Option<Box<RawValue>>,
}

/// A resource template.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceTemplate {
    /// RFC 6570 URI template.
    pub uri_template: String,
    /// The programmatic name.
    pub name: String,
    /// Display name, since 2025-06-18.
    #[serde(default, deserialize_with = "or_absent", skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Description, for a model.
    #[serde(default, deserialize_with = "or_absent", skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Media type, if it is the same for all resources.
    #[serde(default, deserialize_with = "or_absent", skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// Audience and priority, as written.
    #[serde(default, deserialize_with = "fitting::<_, Object<Annotations>>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Box<RawValue>>,
    /// Icons as written, since 2025-11-25.
    #[serde(default, deserialize_with = "fitting::<_, Icons>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub icons: Option<Box<RawValue>>,
    /// `_meta` as written, since 2025-06-18.
    #[serde(rename = "_meta", default, deserialize_with = "fitting::<_, Object<IgnoredAny>>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meta: Option<Box<RawValue>>,
}

impl ListEntry for Resource {
    const METHOD: Method = Method::ListResources;
    const MEMBER: &'static str = "resources";
    type Sound<'a> = Self;

    fn from_sound(sound: Self) -> Option<Self> {
        let Self { size, annotations, icons, meta, .. } = &sound;
        are_shallow([size, annotations, icons, meta].map(Option::as_deref)).then_some(sound)
    }
}

impl ListEntry for ResourceTemplate {
    const METHOD: Method = Method::ListResourceTemplates;
    const MEMBER: &'static str = "resourceTemplates";
    type Sound<'a> = Self;

    fn from_sound(sound: Self) -> Option<Self> {
        let Self { annotations, icons, meta, .. } = &sound;
        are_shallow([annotations, icons, meta].map(Option::as_deref)).then_some(sound)
    }
}

/// Contents of a resource, borrowing from the result where possible.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceContents<'a> {
    /// URI. May differ from the requested one.
    pub uri: Cow<'a, str>,
    /// Media type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<Cow<'a, str>>,
    /// Text or data.
    #[serde(flatten)]
    pub body: ResourceBody<'a>,
    /// `_meta`, as written.
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<Cow<'a, RawValue>>,
}

/// Text or binary data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum ResourceBody<'a> {
    /// Text.
    Text(Cow<'a, str>),
    /// Base64 data, not validated.
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
        let mime_type = mime_type.map(|text| text.0);
        Ok(Self { uri: uri.0, mime_type, body, meta: meta.map(Cow::Borrowed) })
    }
}

impl ResourceContents<'_> {
    /// Copies borrowed parts.
    pub fn into_owned(self) -> ResourceContents<'static> {
        ResourceContents {
            uri: owned(self.uri),
            mime_type: self.mime_type.map(owned),
            body: match self.body {
                ResourceBody::Text(text) => ResourceBody::Text(owned(text)),
                ResourceBody::Blob(blob) => ResourceBody::Blob(owned(blob)),
            },
            meta: self.meta.map(owned),
        }
    }
}

/// Parameters of `resources/read`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ReadResourceParams<'a> {
    /// URI, as the server wrote it.
    pub uri: &'a str,
}

/// Result of `resources/read`. A directory has several contents.
#[derive(Debug, Clone)]
pub struct ReadResourceResult {
    /// Valid contents in the server's order.
    pub contents: Vec<ResourceContents<'static>>,
    /// Malformed contents.
    pub skipped: Vec<SkippedEntry>,
    /// `_meta`, as written.
    pub meta: Option<Box<RawValue>>,
}

impl RequestResult for ReadResourceResult {
    /// Reads the result. Malformed contents are skipped and described.
    fn decode(raw: &[u8]) -> Result<Self, DecodeError> {
        #[derive(Deserialize)]
        struct Members<'a> {
            #[serde(borrow)]
            contents: Option<&'a RawValue>,
            #[serde(rename = "_meta")]
            meta: Option<Box<RawValue>>,
        }
        let Members { contents, meta } = decode(raw)?;
        let Some(listed) = contents else {
            return Err(DecodeError::Missing { member: "contents" });
        };
        let (contents, skipped) = match serde_json::from_str(listed.get()) {
            Ok(contents) => (contents, Vec::new()),
            Err(_unsound) => {
                // Something is malformed. The second pass finds it and keeps the rest.
                let entries: Vec<&RawValue> = serde_json::from_str(listed.get())?;
                read_lenient(&entries)
            }
        };
        let contents = contents.into_iter().map(ResourceContents::into_owned).collect();
        Ok(Self { contents, skipped, meta })
    }
}

/// Parameters of `resources/subscribe`. Legacy era only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct SubscribeParams<'a> {
    /// URI, as the server wrote it.
    pub uri: &'a str,
}

/// Parameters of `resources/unsubscribe`. Legacy era only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct UnsubscribeParams<'a> {
    /// URI, as the server wrote it.
    pub uri: &'a str,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::list_page::ListPage;

    #[test]
    fn resource_uri_is_kept_byte_for_byte() {
        let json = br#"{"resources":[{"uri":"file:///a%20b?c=%2F","name":"a","size":12.0},
            {"uri":"x:","name":"b","size":7,"mimeType":null},{"name":"no uri"}]}"#;
        let page: ListPage<Resource> = ListPage::decode(json).unwrap();
        let read: Vec<_> = page
            .items
            .iter()
            .map(|item| (&*item.uri, item.size.as_deref().map(RawValue::get)))
            .collect();
        assert_eq!(read, [("file:///a%20b?c=%2F", Some("12.0")), ("x:", Some("7"))]);
        assert_eq!(page.skipped.len(), 1);
    }

    #[test]
    fn resource_templates_have_their_own_list_member() {
        let json = br#"{"resourceTemplates":[{"uriTemplate":"f:{x}","name":"f"}]}"#;
        let page: ListPage<ResourceTemplate> = ListPage::decode(json).unwrap();
        let written = serde_json::to_string(&page.items).unwrap();
        assert_eq!(written, r#"[{"uriTemplate":"f:{x}","name":"f"}]"#);
    }
}

#[cfg(test)]
mod read_tests {
    use super::*;

    #[track_caller]
    fn check(json: &str, contents: &str, skipped: &[usize]) {
        let read = ReadResourceResult::decode(json.as_bytes()).unwrap();
        let passed: Vec<_> = read.skipped.iter().map(|entry| entry.index).collect();
        let written = serde_json::to_string(&read.contents).unwrap();
        assert_eq!((&*written, &*passed), (contents, skipped), "{json}");
    }

    #[test]
    fn text_and_blob_are_distinguished() {
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
    fn missing_contents_fail() {
        for json in ["{}", r#"{"contents":null}"#, r#"{"contents":{}}"#, "[]"] {
            assert!(ReadResourceResult::decode(json.as_bytes()).is_err(), "{json}");
        }
    }
}
