//! Content blocks: what tools answer, prompts say and models write.
//!
//! **Invariant:** reading a block never fails. What we do not understand is kept as it is written.

pub(crate) mod block;
mod write;

use std::borrow::Cow;

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::resource::Resource;
use crate::resource::contents::ResourceContents;

/// One block of content, borrowing from the result where it can.
#[derive(Debug, Clone)]
pub enum Content<'a> {
    /// Text.
    Text {
        /// The text itself.
        text: Cow<'a, str>,
        /// What may accompany any block.
        extra: Extra<'a>,
    },
    /// A picture.
    Image {
        /// The bytes in base64, not checked.
        data: Cow<'a, str>,
        /// The media type.
        mime_type: Cow<'a, str>,
        /// What may accompany any block.
        extra: Extra<'a>,
    },
    /// A sound, since 2025-03-26.
    Audio {
        /// The bytes in base64, not checked.
        data: Cow<'a, str>,
        /// The media type.
        mime_type: Cow<'a, str>,
        /// What may accompany any block.
        extra: Extra<'a>,
    },
    /// A resource with its contents.
    Resource {
        /// The resource.
        resource: ResourceContents<'a>,
        /// What may accompany any block.
        extra: Extra<'a>,
    },
    /// A resource to be read, since 2025-06-18. It need not be in the server's list.
    ResourceLink(Box<Resource>),
    /// A model wants to use a tool. Only in sampling, since 2025-11-25.
    ToolUse {
        /// What the answer will refer to.
        id: Cow<'a, str>,
        /// The tool's name.
        name: Cow<'a, str>,
        /// The arguments, as written.
        input: Cow<'a, RawValue>,
        /// What may accompany any block.
        extra: Extra<'a>,
    },
    /// What a tool answered to a model. Only in sampling, since 2025-11-25.
    ToolResult {
        /// The use it answers.
        tool_use_id: Cow<'a, str>,
        /// The answer for a model; neither uses nor results of tools are understood in it.
        content: Vec<Content<'a>>,
        /// The answer for a program, as written.
        structured_content: Option<Cow<'a, RawValue>>,
        /// The tool failed.
        is_error: bool,
        /// What may accompany any block.
        extra: Extra<'a>,
    },
    /// A type we do not know, or a known one that is malformed, as written.
    Unknown(Cow<'a, RawValue>),
}

/// What may accompany any block.
#[derive(Debug, Clone, Default)]
pub struct Extra<'a> {
    /// For whom the block is and how much it matters, as written.
    pub annotations: Option<Cow<'a, RawValue>>,
    /// What else was attached, as written.
    pub meta: Option<Cow<'a, RawValue>>,
}

impl<'a> Content<'a> {
    /// Reads one block.
    pub fn parse(raw: &'a RawValue) -> Self {
        block::read(raw)
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

    /// One line that stands for a block that is no text. `None` for text.
    pub fn placeholder(&self) -> Option<String> {
        let line = match self {
            Self::Text { .. } => return None,
            Self::Image { data, mime_type, .. } => {
                format!("[image: {mime_type}, {} bytes]", decoded_bytes(data))
            }
            Self::Audio { data, mime_type, .. } => {
                format!("[audio: {mime_type}, {} bytes]", decoded_bytes(data))
            }
            Self::Resource { resource, .. } => format!("[resource: {}]", resource.uri),
            Self::ResourceLink(link) => format!("[resource link: {}]", link.uri),
            Self::ToolUse { name, .. } => format!("[tool use: {name}]"),
            Self::ToolResult { tool_use_id, .. } => format!("[tool result: {tool_use_id}]"),
            Self::Unknown(raw) => format!("[unknown content: {} bytes]", raw.get().len()),
        };
        Some(line)
    }

    /// Copies what is borrowed.
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
    /// Copies what is borrowed.
    pub fn into_owned(self) -> Extra<'static> {
        Extra { annotations: self.annotations.map(owned), meta: self.meta.map(owned) }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Content<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <&'a RawValue>::deserialize(deserializer).map(Self::parse)
    }
}

/// Reads a block to be kept, for messages that are kept whole.
pub(crate) fn kept<'de, D>(deserializer: D) -> Result<Content<'static>, D::Error>
where
    D: Deserializer<'de>,
{
    let raw: Box<RawValue> = Deserialize::deserialize(deserializer)?;
    Ok(Content::parse(&raw).into_owned())
}

fn owned<T: ToOwned + ?Sized>(value: Cow<'_, T>) -> Cow<'static, T> {
    Cow::Owned(value.into_owned())
}

/// How many bytes the base64 stands for.
fn decoded_bytes(base64: &str) -> usize {
    base64.trim_end_matches('=').len() * 3 / 4
}

#[cfg(test)]
mod tests;
