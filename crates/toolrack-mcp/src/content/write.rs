//! Writing a content block: the variants of [`Content`] with their names on the wire.

use std::borrow::Cow;

use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use super::{Content, Extra};
use crate::resource::Resource;
use crate::resource::contents::ResourceContents;

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
enum Block<'a> {
    Text {
        text: &'a str,
        #[serde(flatten)]
        extra: Members<'a>,
    },
    Image {
        data: &'a str,
        mime_type: &'a str,
        #[serde(flatten)]
        extra: Members<'a>,
    },
    Audio {
        data: &'a str,
        mime_type: &'a str,
        #[serde(flatten)]
        extra: Members<'a>,
    },
    Resource {
        resource: &'a ResourceContents<'a>,
        #[serde(flatten)]
        extra: Members<'a>,
    },
    ResourceLink(&'a Resource),
    ToolUse {
        id: &'a str,
        name: &'a str,
        input: &'a RawValue,
        #[serde(flatten)]
        extra: Members<'a>,
    },
    ToolResult {
        tool_use_id: &'a str,
        content: &'a [Content<'a>],
        #[serde(skip_serializing_if = "Option::is_none")]
        structured_content: Option<&'a RawValue>,
        is_error: bool,
        #[serde(flatten)]
        extra: Members<'a>,
    },
}

#[derive(Serialize)]
struct Members<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    annotations: Option<&'a RawValue>,
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    meta: Option<&'a RawValue>,
}

impl Serialize for Content<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let block = match self {
            Self::Text { text, extra } => Block::Text { text, extra: members(extra) },
            Self::Image { data, mime_type, extra } => {
                Block::Image { data, mime_type, extra: members(extra) }
            }
            Self::Audio { data, mime_type, extra } => {
                Block::Audio { data, mime_type, extra: members(extra) }
            }
            Self::Resource { resource, extra } => {
                Block::Resource { resource, extra: members(extra) }
            }
            Self::ResourceLink(link) => Block::ResourceLink(link),
            Self::ToolUse { id, name, input, extra } => {
                Block::ToolUse { id, name, input, extra: members(extra) }
            }
            Self::ToolResult { tool_use_id, content, structured_content, is_error, extra } => {
                Block::ToolResult {
                    tool_use_id,
                    content,
                    structured_content: as_written(structured_content.as_ref()),
                    is_error: *is_error,
                    extra: members(extra),
                }
            }
            Self::Unknown(raw) => return raw.serialize(serializer),
        };
        block.serialize(serializer)
    }
}

fn members<'a>(extra: &'a Extra<'_>) -> Members<'a> {
    Members {
        annotations: as_written(extra.annotations.as_ref()),
        meta: as_written(extra.meta.as_ref()),
    }
}

fn as_written<'a>(value: Option<&'a Cow<'_, RawValue>>) -> Option<&'a RawValue> {
    value.map(|it| &**it)
}
