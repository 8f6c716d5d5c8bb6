//! Sampling: the server requests a completion from a model.

use std::collections::BTreeSet;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::client_capabilities::SamplingCapability;
use crate::content::{Content, Role, owned_content};
use crate::serde_lenient::{or_absent, or_default};
use crate::tool::Tool;

/// Parameters of `sampling/createMessage`.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SamplingParams {
    /// Conversation so far.
    pub messages: Vec<SamplingMessage>,
    /// Maximum number of tokens.
    pub max_tokens: u64,
    /// Preferred model.
    #[serde(default, deserialize_with = "or_default")]
    pub model_preferences: ModelPreferences,
    /// System prompt. The client may change or omit it.
    #[serde(default, deserialize_with = "or_absent")]
    pub system_prompt: Option<String>,
    /// Context of MCP servers to include. The client may ignore it.
    #[serde(default, deserialize_with = "or_absent")]
    pub include_context: Option<IncludeContext>,
    /// Temperature. The client may change or omit it.
    #[serde(default, deserialize_with = "or_absent")]
    pub temperature: Option<f64>,
    /// Stop sequences. The client may change or omit them.
    #[serde(default, deserialize_with = "or_default")]
    pub stop_sequences: Vec<String>,
    /// Provider settings, as written.
    pub metadata: Option<Box<RawValue>>,
    /// Tools that the model may call and the server runs, since 2025-11-25.
    pub tools: Option<Vec<Tool>>,
    /// Whether the model may, must or must not call a tool, since 2025-11-25.
    pub tool_choice: Option<ToolChoice>,
}

/// A message of the conversation.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SamplingMessage {
    /// Role.
    pub role: Role,
    /// Content. Exactly one block before 2025-11-25.
    #[serde(deserialize_with = "one_or_many", serialize_with = "bare_if_one")]
    pub content: Vec<Content<'static>>,
}

/// Model preferences. Priorities are between 0 and 1.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelPreferences {
    /// Hints, most preferred first.
    #[serde(default, deserialize_with = "or_default")]
    pub hints: Vec<ModelHint>,
    /// Priority of low cost.
    #[serde(default, deserialize_with = "or_absent")]
    pub cost_priority: Option<f64>,
    /// Priority of speed.
    #[serde(default, deserialize_with = "or_absent")]
    pub speed_priority: Option<f64>,
    /// Priority of capability.
    #[serde(default, deserialize_with = "or_absent")]
    pub intelligence_priority: Option<f64>,
}

/// Model hint.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
pub struct ModelHint {
    /// Part of a model name.
    #[serde(default, deserialize_with = "or_absent")]
    pub name: Option<String>,
}

/// Context of MCP servers to include.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum IncludeContext {
    /// None.
    None,
    /// This server's.
    ThisServer,
    /// All servers'.
    AllServers,
}

/// Tool choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
pub struct ToolChoice {
    /// Mode.
    #[serde(default, deserialize_with = "or_default")]
    pub mode: ToolChoiceMode,
}

/// Tool choice mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ToolChoiceMode {
    /// The model decides.
    #[default]
    Auto,
    /// The model must call at least one tool.
    Required,
    /// The model must not call a tool.
    None,
}

/// Result of `sampling/createMessage`.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SamplingResult {
    /// Role: the assistant.
    pub role: Role,
    /// Content. A single block is written without a list, which every revision accepts.
    #[serde(serialize_with = "bare_if_one")]
    pub content: Vec<Content<'static>>,
    /// Model name.
    pub model: String,
    /// Stop reason: `endTurn`, `stopSequence`, `maxTokens`, `toolUse`, or a provider-specific one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<String>,
}

fn one_or_many<'de, D>(deserializer: D) -> Result<Vec<Content<'static>>, D::Error>
where
    D: Deserializer<'de>,
{
    #[derive(Deserialize)]
    struct Kept(#[serde(deserialize_with = "owned_content")] Content<'static>);
    let raw: Box<RawValue> = Deserialize::deserialize(deserializer)?;
    Ok(match serde_json::from_str::<Vec<Kept>>(raw.get()) {
        Ok(blocks) => blocks.into_iter().map(|block| block.0).collect(),
        Err(_no_list) => vec![Content::parse(&raw).into_owned()],
    })
}

fn bare_if_one<S: Serializer>(
    content: &[Content<'static>],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match content {
        [only] => only.serialize(serializer),
        blocks => blocks.serialize(serializer),
    }
}

/// Finds the first violation of the rules for tools (spec 2025-11-25, sampling §Tools). The legacy response is
/// "invalid params", with this text.
pub fn check_sampling(params: &SamplingParams, declared: SamplingCapability) -> Result<(), String> {
    let brings_tools = params.tools.is_some() || params.tool_choice.is_some();
    if brings_tools && !declared.tools {
        return Err("the request brings tools, and `sampling.tools` was not declared".to_owned());
    }
    let unanswered =
        |id: &str| Err(format!("the tool use `{id}` is not answered by the next message"));
    let mut open: BTreeSet<&str> = BTreeSet::new();
    for (place, message) in params.messages.iter().enumerate() {
        let answered = results(place, message)?;
        if let Some(id) = open.difference(&answered).next() {
            return unanswered(id);
        }
        if let Some(id) = answered.difference(&open).next() {
            return Err(format!("the tool result for `{id}` answers no tool use"));
        }
        open = uses(message);
    }
    open.first().map_or(Ok(()), |id| unanswered(id))
}

/// Ids of the tool results in a message.
fn results(place: usize, message: &SamplingMessage) -> Result<BTreeSet<&str>, String> {
    let answered: Vec<&str> = message
        .content
        .iter()
        .filter_map(|block| match block {
            Content::ToolResult { tool_use_id, .. } => Some(&**tool_use_id),
            _ => None,
        })
        .collect();
    let mixed = !answered.is_empty() && answered.len() != message.content.len();
    if mixed || (message.role == Role::Assistant && !answered.is_empty()) {
        return Err(format!("message {place} mixes results of tools with other content"));
    }
    Ok(answered.into_iter().collect())
}

/// Ids of the tool calls in a message. Only the assistant calls tools.
fn uses(message: &SamplingMessage) -> BTreeSet<&str> {
    if message.role == Role::User {
        return BTreeSet::new();
    }
    let ids = message.content.iter().filter_map(|block| match block {
        Content::ToolUse { id, .. } => Some(&**id),
        _ => None,
    });
    ids.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::RequestResult as _;

    #[track_caller]
    fn check(json: &str, expected: &str) {
        let params = SamplingParams::decode(json.as_bytes()).unwrap();
        assert_eq!(serde_json::to_string(&params.messages).unwrap(), expected);
    }

    #[test]
    fn sampling_content_is_one_block_or_a_list() {
        let one = r#"[{"role":"user","content":{"type":"text","text":"a"}}]"#;
        check(&format!(r#"{{"messages":{one},"maxTokens":5}}"#), one);
        let many = r#"[{"role":"assistant","content":[{"type":"text","text":"a"},{"type":"tool_use","id":"1","name":"t","input":{}}]}]"#;
        check(&format!(r#"{{"messages":{many},"maxTokens":5}}"#), many);
        let listed = r#"[{"role":"user","content":[{"type":"text","text":"a"}]}]"#;
        check(&format!(r#"{{"messages":{listed},"maxTokens":5}}"#), one);
        let odd = r#"[{"role":"user","content":{"type":"new"}}]"#;
        check(&format!(r#"{{"messages":{odd},"maxTokens":5}}"#), odd);
    }

    #[test]
    fn sampling_preferences_are_lenient_and_limits_strict() {
        let json =
            br#"{"messages":[],"maxTokens":5,"includeContext":"everything","temperature":"hot",
            "modelPreferences":{"hints":[{"name":"m"},{}],"costPriority":0.3},
            "stopSequences":["x"],"tools":[],"toolChoice":{"mode":"required"}}"#;
        let params = SamplingParams::decode(json).unwrap();
        let preferences = ModelPreferences {
            hints: vec![ModelHint { name: Some("m".to_owned()) }, ModelHint::default()],
            cost_priority: Some(0.3),
            ..ModelPreferences::default()
        };
        assert_eq!(params.model_preferences, preferences);
        assert_eq!((params.include_context, params.temperature), (None, None));
        assert_eq!(params.tool_choice, Some(ToolChoice { mode: ToolChoiceMode::Required }));
        for unsound in [r#"{"messages":[]}"#, r#"{"messages":[],"maxTokens":-1}"#, "{}", ""] {
            assert!(SamplingParams::decode(unsound.as_bytes()).is_err(), "{unsound}");
        }
    }

    #[test]
    fn single_sampling_block_is_written_without_a_list() {
        let result = SamplingResult {
            role: Role::Assistant,
            content: vec![Content::from_text("hi")],
            model: "m".to_owned(),
            stop_reason: Some("endTurn".to_owned()),
        };
        assert_eq!(
            serde_json::to_string(&result).unwrap(),
            concat!(
                r#"{"role":"assistant","content":{"type":"text","text":"hi"},"#,
                r#""model":"m","stopReason":"endTurn"}"#
            )
        );
    }
}

#[cfg(test)]
mod check_tests {
    use super::*;
    use crate::request::RequestResult as _;

    const TOOLS: SamplingCapability = SamplingCapability { tools: true, context: false };
    const PLAIN: SamplingCapability = SamplingCapability { tools: false, context: false };

    /// Short notation of messages: `u` or `a` for the role, then `t` text, `?id` tool call, `!id` tool result.
    fn messages(short: &str) -> String {
        let message = |word: &str| {
            let role = if word.starts_with('u') { "user" } else { "assistant" };
            let blocks: Vec<String> = word[1..]
                .split(',')
                .map(|block| match block.split_at(1) {
                    ("?", id) => {
                        format!(r#"{{"type":"tool_use","id":"{id}","name":"n","input":{{}}}}"#)
                    }
                    ("!", id) => {
                        format!(r#"{{"type":"tool_result","toolUseId":"{id}","content":[]}}"#)
                    }
                    _ => r#"{"type":"text","text":""}"#.to_owned(),
                })
                .collect();
            format!(r#"{{"role":"{role}","content":[{}]}}"#, blocks.join(","))
        };
        let messages: Vec<_> = short.split_whitespace().map(message).collect();
        messages.join(",")
    }

    #[track_caller]
    fn check(short: &str, more: &str, declared: SamplingCapability, expected: Option<&str>) {
        let json = format!(r#"{{"messages":[{}],"maxTokens":1{more}}}"#, messages(short));
        let params = SamplingParams::decode(json.as_bytes()).unwrap();
        assert_eq!(check_sampling(&params, declared).err().as_deref(), expected, "{short}");
    }

    /// Protocol facts §12.2.
    #[test]
    fn sampling_tools_need_the_capability() {
        check("ut", "", PLAIN, None);
        let undeclared = Some("the request brings tools, and `sampling.tools` was not declared");
        check("ut", r#","tools":[]"#, PLAIN, undeclared);
        check("ut", r#","toolChoice":{}"#, PLAIN, undeclared);
        check("ut", r#","tools":[],"toolChoice":{}"#, TOOLS, None);
    }

    #[test]
    fn tool_calls_need_results_in_the_next_message() {
        let unanswered_1 = Some("the tool use `1` is not answered by the next message");
        let unanswered_2 = Some("the tool use `2` is not answered by the next message");
        let mixed = Some("message 1 mixes results of tools with other content");
        check("ut at,?1,?2 u!2,!1 at", "", TOOLS, None);
        check("ut a?1 u!1 a?2 u!2", "", TOOLS, None);
        check("ut a?1,?2 u!1", "", TOOLS, unanswered_2);
        check("ut a?1", "", TOOLS, unanswered_1);
        check("ut a?1 ut u!1", "", TOOLS, unanswered_1);
        check("u!1", "", TOOLS, Some("the tool result for `1` answers no tool use"));
        check("a?1 u!1,!2", "", TOOLS, Some("the tool result for `2` answers no tool use"));
        check("a?1 u!1,t", "", TOOLS, mixed);
        check("a?1 a!1", "", TOOLS, mixed);
    }
}
