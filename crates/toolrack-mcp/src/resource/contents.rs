//! What a resource holds: text or bytes.

use std::borrow::Cow;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::serde_lenient::Text;

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
