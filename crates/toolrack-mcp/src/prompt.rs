//! Prompts: list entries and `prompts/get`.

use std::collections::BTreeMap;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::content::{Content, Role, owned_content};
use crate::list_page::{ListEntry, are_shallow};
use crate::method::Method;
use crate::serde_lenient::{Icons, Object, fitting, or_absent};

/// A prompt of a list.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Prompt {
    /// Prompt name.
    pub name: String,
    /// Display name, since 2025-06-18.
    #[serde(default, deserialize_with = "or_absent", skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Description.
    #[serde(default, deserialize_with = "or_absent", skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Arguments. `None` and an empty list mean the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Vec<PromptArgument>>,
    /// Icons as written, since 2025-11-25.
    #[serde(default, deserialize_with = "fitting::<_, Icons>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub icons: Option<Box<RawValue>>,
    /// `_meta` as written, since 2025-06-18.
    #[serde(rename = "_meta", default, deserialize_with = "fitting::<_, Object<IgnoredAny>>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meta: Option<Box<RawValue>>,
}

/// An argument of a prompt. Its value is always text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptArgument {
    /// Argument name.
    pub name: String,
    /// Display name, since 2025-06-18.
    #[serde(default, deserialize_with = "or_absent", skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Description.
    #[serde(default, deserialize_with = "or_absent", skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The argument is required. `None` means no.
    #[serde(default, deserialize_with = "or_absent", skip_serializing_if = "Option::is_none")]
    pub required: Option<bool>,
}

impl ListEntry for Prompt {
    const METHOD: Method = Method::ListPrompts;
    const MEMBER: &'static str = "prompts";
    type Sound<'a> = Self;

    fn from_sound(sound: Self) -> Option<Self> {
        are_shallow([sound.icons.as_deref(), sound.meta.as_deref()]).then_some(sound)
    }
}

/// Parameters of `prompts/get`.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct GetPromptParams<'a> {
    /// Prompt name, as the server wrote it.
    pub name: &'a str,
    /// Arguments by name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments: Option<&'a BTreeMap<String, String>>,
}

/// Result of `prompts/get`.
#[derive(Debug, Clone, Deserialize)]
pub struct GetPromptResult {
    /// Description.
    pub description: Option<String>,
    /// Messages.
    pub messages: Vec<PromptMessage>,
    /// `_meta`, as written.
    #[serde(rename = "_meta")]
    pub meta: Option<Box<RawValue>>,
}

/// A message of a prompt.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PromptMessage {
    /// Role.
    pub role: Role,
    /// Content.
    #[serde(deserialize_with = "owned_content")]
    pub content: Content<'static>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::list_page::ListPage;
    use crate::request::RequestResult as _;

    #[test]
    fn prompts_are_listed_with_arguments() {
        let json = r#"[{"name":"p","arguments":[{"name":"a","required":true},{"name":"b"}]},{"name":"q"}]"#;
        let page: ListPage<Prompt> =
            ListPage::decode(format!(r#"{{"prompts":{json}}}"#).as_bytes()).unwrap();
        assert_eq!(serde_json::to_string(&page.items).unwrap(), json);
    }

    #[test]
    fn prompt_messages_keep_any_block() {
        let json = r#"[{"role":"user","content":{"type":"text","text":"a"}},{"role":"assistant","content":{"type":"new" }}]"#;
        let read: GetPromptResult =
            serde_json::from_str(&format!(r#"{{"messages":{json},"resultType":"complete"}}"#))
                .unwrap();
        assert_eq!(serde_json::to_string(&read.messages).unwrap(), json);
    }
}
