//! Reading a content block: the plain kinds in one pass, the others at a second look.

use std::borrow::Cow;

use serde::de::Error;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::{Content, Extra};
use crate::resource::Resource;
use crate::resource::contents::ResourceContents;
use crate::serde_lenient::{Text, present};

/// A block of one of the plain kinds. Reading it fails on any other, and the reader then looks at
/// each block by itself.
pub(crate) struct Plain<'a>(pub(crate) Content<'a>);

impl<'de: 'a, 'a> Deserialize<'de> for Plain<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let block = Block::deserialize(deserializer)?;
        block.plain().map(Plain).ok_or_else(|| D::Error::custom("not a plain block"))
    }
}

/// Reads any block.
pub(super) fn read(raw: &RawValue) -> Content<'_> {
    let Ok(block) = serde_json::from_str::<Block<'_>>(raw.get()) else {
        return unknown(raw);
    };
    let read = match &*block.kind.0 {
        "tool_use" => tool_use(raw),
        "tool_result" => tool_result(raw),
        _ => return read_outside_tools(raw, block),
    };
    read.unwrap_or_else(|_malformed| unknown(raw))
}

fn read_outside_tools<'a>(raw: &'a RawValue, block: Block<'a>) -> Content<'a> {
    let read = match &*block.kind.0 {
        "resource_link" => serde_json::from_str::<Resource>(raw.get())
            .ok()
            .map(|it| Content::ResourceLink(Box::new(it))),
        _ => block.plain(),
    };
    read.unwrap_or_else(|| unknown(raw))
}

fn unknown(raw: &RawValue) -> Content<'_> {
    Content::Unknown(Cow::Borrowed(raw))
}

/// The members of all plain kinds together.
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
    Ok(Content::ToolResult {
        tool_use_id: members.tool_use_id.0,
        content: members.content.into_iter().map(read_inner).collect(),
        structured_content: members.structured_content.map(Cow::Borrowed),
        is_error: members.is_error.unwrap_or_default(),
        extra: extra(members.annotations, members.meta),
    })
}

/// The protocol has no results within results. Not reading them also bounds how deep we go.
fn read_inner(raw: &RawValue) -> Content<'_> {
    match serde_json::from_str::<Block<'_>>(raw.get()) {
        Ok(block) => read_outside_tools(raw, block),
        Err(_malformed) => unknown(raw),
    }
}
