//! Resources and templates as their server lists them.

pub(crate) mod contents;
pub(crate) mod read;
pub(crate) mod subscribe;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::list_page::Listed;
use crate::optional_fields::{Annotations, Icons, Object, fitting};
use crate::serde_lenient::or_absent;

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
