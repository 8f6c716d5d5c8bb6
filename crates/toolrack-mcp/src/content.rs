//! Content blocks of tool results, prompts and sampling messages.
//!
//! **Invariant:** reading a block never fails. An unknown or malformed block is kept as written.

use std::borrow::Cow;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::resource::{Resource, ResourceContents};
use crate::serde_lenient::{Text, present};

/// One content block, borrowing from the result where possible.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum Content<'a> {
    /// Text.
    Text {
        /// The text itself.
        text: Cow<'a, str>,
        /// Annotations and `_meta`.
        #[serde(flatten)]
        extra: Extra<'a>,
    },
    /// An image.
    Image {
        /// Base64 data, not validated.
        data: Cow<'a, str>,
        /// Media type.
        mime_type: Cow<'a, str>,
        /// Annotations and `_meta`.
        #[serde(flatten)]
        extra: Extra<'a>,
    },
    /// Audio, since 2025-03-26.
    Audio {
        /// Base64 data, not validated.
        data: Cow<'a, str>,
        /// Media type.
        mime_type: Cow<'a, str>,
        /// Annotations and `_meta`.
        #[serde(flatten)]
        extra: Extra<'a>,
    },
    /// An embedded resource.
    Resource {
        /// The resource.
        resource: ResourceContents<'a>,
        /// Annotations and `_meta`.
        #[serde(flatten)]
        extra: Extra<'a>,
    },
    /// A link to a resource, since 2025-06-18. The resource need not be in the server's list.
    ResourceLink(Box<Resource>),
    /// Tool call of a model. Only in sampling, since 2025-11-25.
    ToolUse {
        /// Id that the tool result refers to.
        id: Cow<'a, str>,
        /// Tool name.
        name: Cow<'a, str>,
        /// Arguments, as written.
        input: Cow<'a, RawValue>,
        /// Annotations and `_meta`.
        #[serde(flatten)]
        extra: Extra<'a>,
    },
    /// Tool result for a model. Only in sampling, since 2025-11-25.
    ToolResult {
        /// Id of the tool call.
        tool_use_id: Cow<'a, str>,
        /// Content for the model, without nested tool calls or results.
        content: Vec<Content<'a>>,
        /// Structured content, as written.
        #[serde(skip_serializing_if = "Option::is_none")]
        structured_content: Option<Cow<'a, RawValue>>,
        /// The tool failed.
        is_error: bool,
        /// Annotations and `_meta`.
        #[serde(flatten)]
        extra: Extra<'a>,
    },
    /// Unknown type, or a malformed block, as written.
    #[serde(untagged)]
    Unknown(Cow<'a, RawValue>),
}

/// Annotations and `_meta` of a block.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Extra<'a> {
    /// Audience and priority, as written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Cow<'a, RawValue>>,
    /// `_meta`, as written.
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<Cow<'a, RawValue>>,
}

impl<'a> Content<'a> {
    /// Reads one block.
    pub fn parse(raw: &'a RawValue) -> Self {
        read_block(raw, Nesting::Outer)
    }

    /// A block of plain text.
    pub fn from_text(text: impl Into<Cow<'a, str>>) -> Self {
        Self::Text { text: text.into(), extra: Extra::default() }
    }

    /// The text of a text block.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text { text, .. } => Some(text),
            _ => None,
        }
    }

    /// One-line placeholder for a block that is not text. `None` for text.
    pub fn placeholder(&self) -> Option<String> {
        let line = match self {
            Self::Text { .. } => return None,
            Self::Image { data, mime_type, .. } | Self::Audio { data, mime_type, .. } => {
                let kind = if matches!(self, Self::Image { .. }) { "image" } else { "audio" };
                // Base64 encodes three bytes in four characters.
                let n_bytes = data.trim_end_matches('=').len() * 3 / 4;
                format!("[{kind}: {mime_type}, {n_bytes} bytes]")
            }
            Self::Resource { resource, .. } => format!("[resource: {}]", resource.uri),
            Self::ResourceLink(link) => format!("[resource link: {}]", link.uri),
            Self::ToolUse { name, .. } => format!("[tool use: {name}]"),
            Self::ToolResult { tool_use_id, .. } => format!("[tool result: {tool_use_id}]"),
            Self::Unknown(raw) => format!("[unknown content: {} bytes]", raw.get().len()),
        };
        Some(line)
    }

    /// Copies borrowed parts.
    pub fn into_owned(self) -> Content<'static> {
        match self {
            Self::Text { text, extra } => {
                Content::Text { text: owned(text), extra: extra.into_owned() }
            }
            Self::Image { data, mime_type, extra } => Content::Image {
                data: owned(data),
                mime_type: owned(mime_type),
                extra: extra.into_owned(),
            },
            Self::Audio { data, mime_type, extra } => Content::Audio {
                data: owned(data),
                mime_type: owned(mime_type),
                extra: extra.into_owned(),
            },
            Self::Resource { resource, extra } => {
                Content::Resource { resource: resource.into_owned(), extra: extra.into_owned() }
            }
            Self::ResourceLink(link) => Content::ResourceLink(link),
            Self::ToolUse { id, name, input, extra } => Content::ToolUse {
                id: owned(id),
                name: owned(name),
                input: owned(input),
                extra: extra.into_owned(),
            },
            Self::ToolResult { tool_use_id, content, structured_content, is_error, extra } => {
                Content::ToolResult {
                    tool_use_id: owned(tool_use_id),
                    content: content.into_iter().map(Content::into_owned).collect(),
                    structured_content: structured_content.map(owned),
                    is_error,
                    extra: extra.into_owned(),
                }
            }
            Self::Unknown(raw) => Content::Unknown(owned(raw)),
        }
    }
}

impl Extra<'_> {
    /// Copies borrowed parts.
    pub fn into_owned(self) -> Extra<'static> {
        Extra { annotations: self.annotations.map(owned), meta: self.meta.map(owned) }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Content<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <&'a RawValue>::deserialize(deserializer).map(Self::parse)
    }
}

/// Reads an owned block, for messages that are stored.
pub(crate) fn owned_content<'de, D>(deserializer: D) -> Result<Content<'static>, D::Error>
where
    D: Deserializer<'de>,
{
    let raw: Box<RawValue> = Deserialize::deserialize(deserializer)?;
    Ok(Content::parse(&raw).into_owned())
}

pub(crate) fn owned<T: ToOwned + ?Sized>(value: Cow<'_, T>) -> Cow<'static, T> {
    Cow::Owned(value.into_owned())
}

/// A text, image, audio or resource block. Fails on any other type; the caller then reads
/// each block separately.
pub(crate) struct Plain<'a>(pub(crate) Content<'a>);

impl<'de: 'a, 'a> Deserialize<'de> for Plain<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let block = Block::deserialize(deserializer)?;
        block.plain().map(Plain).ok_or_else(|| D::Error::custom("not a plain block"))
    }
}

/// Whether a block is part of a tool result.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Nesting {
    Outer,
    InToolResult,
}

/// Reads any block. One malformed block must not lose the other blocks of its result.
fn read_block(raw: &RawValue, nesting: Nesting) -> Content<'_> {
    let block = serde_json::from_str::<Block<'_>>(raw.get()).ok();
    let read = block.and_then(|block| match &*block.kind.0 {
        // The protocol has no nested tool results. Rejecting them also bounds the recursion.
        "tool_use" | "tool_result" if nesting == Nesting::InToolResult => None,
        "tool_use" => tool_use(raw).ok(),
        "tool_result" => tool_result(raw).ok(),
        "resource_link" => serde_json::from_str(raw.get()).ok().map(Content::ResourceLink),
        _ => block.plain(),
    });
    read.unwrap_or(Content::Unknown(Cow::Borrowed(raw)))
}

/// Members of all simple block types.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Block<'a> {
    #[serde(borrow, rename = "type")]
    kind: Text<'a>,
    #[serde(borrow)]
    text: Option<Text<'a>>,
    #[serde(borrow)]
    data: Option<Text<'a>>,
    #[serde(borrow)]
    mime_type: Option<Text<'a>>,
    #[serde(borrow)]
    resource: Option<ResourceContents<'a>>,
    #[serde(borrow)]
    annotations: Option<&'a RawValue>,
    #[serde(borrow, rename = "_meta")]
    meta: Option<&'a RawValue>,
}

impl<'a> Block<'a> {
    fn plain(self) -> Option<Content<'a>> {
        let Self { kind, text, data, mime_type, resource, annotations, meta } = self;
        let extra = extra(annotations, meta);
        match &*kind.0 {
            "text" => Some(Content::Text { text: text?.0, extra }),
            "image" => Some(Content::Image { data: data?.0, mime_type: mime_type?.0, extra }),
            "audio" => Some(Content::Audio { data: data?.0, mime_type: mime_type?.0, extra }),
            "resource" => Some(Content::Resource { resource: resource?, extra }),
            _ => None,
        }
    }
}

fn extra<'a>(annotations: Option<&'a RawValue>, meta: Option<&'a RawValue>) -> Extra<'a> {
    Extra { annotations: annotations.map(Cow::Borrowed), meta: meta.map(Cow::Borrowed) }
}

fn tool_use(raw: &RawValue) -> Result<Content<'_>, serde_json::Error> {
    #[derive(Deserialize)]
    struct Members<'a> {
        #[serde(borrow)]
        id: Text<'a>,
        #[serde(borrow)]
        name: Text<'a>,
        #[serde(borrow)]
        input: &'a RawValue,
        #[serde(borrow)]
        annotations: Option<&'a RawValue>,
        #[serde(borrow, rename = "_meta")]
        meta: Option<&'a RawValue>,
    }
    let Members { id, name, input, annotations, meta } = serde_json::from_str(raw.get())?;
    let (id, name, input) = (id.0, name.0, Cow::Borrowed(input));
    Ok(Content::ToolUse { id, name, input, extra: extra(annotations, meta) })
}

fn tool_result(raw: &RawValue) -> Result<Content<'_>, serde_json::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Members<'a> {
        #[serde(borrow)]
        tool_use_id: Text<'a>,
        #[serde(borrow)]
        content: Vec<&'a RawValue>,
        #[serde(borrow, default, deserialize_with = "present")]
        structured_content: Option<&'a RawValue>,
        is_error: Option<bool>,
        #[serde(borrow)]
        annotations: Option<&'a RawValue>,
        #[serde(borrow, rename = "_meta")]
        meta: Option<&'a RawValue>,
    }
    let members: Members<'_> = serde_json::from_str(raw.get())?;
    let content = members.content.into_iter();
    Ok(Content::ToolResult {
        tool_use_id: members.tool_use_id.0,
        content: content.map(|raw| read_block(raw, Nesting::InToolResult)).collect(),
        structured_content: members.structured_content.map(Cow::Borrowed),
        is_error: members.is_error.unwrap_or_default(),
        extra: extra(members.annotations, members.meta),
    })
}

/// Role of a prompt or sampling message, and audience of a content block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The user.
    User,
    /// The model.
    Assistant,
}

#[cfg(test)]
mod tests;
