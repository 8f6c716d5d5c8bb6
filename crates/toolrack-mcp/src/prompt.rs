//! Prompts: what a server offers to say, and `prompts/get`, which says it.

use std::collections::BTreeMap;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::content::Role;
use crate::content::{Content, kept};
use crate::input_required::InputResponses;
use crate::list_page::Listed;
use crate::serde_lenient::or_absent;
use crate::serde_lenient::{Icons, Object, fitting};

/// A prompt as its server lists it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Prompt {
    /// The name to ask for.
    pub name: String,
    /// The name for people, since 2025-06-18.
    #[serde(default, deserialize_with = "or_absent", skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What it is for.
    #[serde(default, deserialize_with = "or_absent", skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// What can be filled in. `None` and an empty list mean the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Vec<PromptArgument>>,
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

/// One thing to fill in. Its value is always text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptArgument {
    /// The name to fill it in by.
    pub name: String,
    /// The name for people, since 2025-06-18.
    #[serde(default, deserialize_with = "or_absent", skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What belongs there.
    #[serde(default, deserialize_with = "or_absent", skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// It cannot be left out. `None` is no.
    #[serde(default, deserialize_with = "or_absent", skip_serializing_if = "Option::is_none")]
    pub required: Option<bool>,
}

impl Listed for Prompt {
    const MEMBER: &'static str = "prompts";
}

/// Asks for a prompt, filled in.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GetPromptParams<'a> {
    /// The name as the server wrote it.
    pub name: &'a str,
    /// What is filled in, by name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments: Option<&'a BTreeMap<String, String>>,
    /// Our answers, when the server asked something before it would answer. Since 2026-07-28.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_responses: Option<&'a InputResponses>,
    /// What the server wants back with them, unchanged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_state: Option<&'a str>,
}

impl<'a> GetPromptParams<'a> {
    /// The first request for a prompt.
    pub fn new(name: &'a str, arguments: Option<&'a BTreeMap<String, String>>) -> Self {
        Self { name, arguments, input_responses: None, request_state: None }
    }
}

/// A prompt, filled in.
#[derive(Debug, Clone, Deserialize)]
pub struct GetPromptResult {
    /// What it is for.
    pub description: Option<String>,
    /// What it says.
    pub messages: Vec<PromptMessage>,
    /// What else the server attached, as written.
    #[serde(rename = "_meta")]
    pub meta: Option<Box<RawValue>>,
}

/// One message of a prompt.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PromptMessage {
    /// Who is to say it.
    pub role: Role,
    /// What is said.
    #[serde(deserialize_with = "kept")]
    pub content: Content<'static>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::list_page::Page;

    #[test]
    fn prompts_are_listed_with_what_can_be_filled_in() {
        let json = r#"[{"name":"p","arguments":[{"name":"a","required":true},{"name":"b"}]},{"name":"q"}]"#;
        let page: Page<Prompt> =
            Page::parse(format!(r#"{{"prompts":{json}}}"#).as_bytes()).unwrap();
        assert_eq!(serde_json::to_string(&page.items).unwrap(), json);
    }

    #[test]
    fn messages_keep_blocks_of_any_kind() {
        let json = r#"[{"role":"user","content":{"type":"text","text":"a"}},{"role":"assistant","content":{"type":"new" }}]"#;
        let read: GetPromptResult =
            serde_json::from_str(&format!(r#"{{"messages":{json},"resultType":"complete"}}"#))
                .unwrap();
        assert_eq!(serde_json::to_string(&read.messages).unwrap(), json);
    }
}
