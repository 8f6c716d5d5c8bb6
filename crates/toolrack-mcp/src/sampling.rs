//! Sampling: a server asks for a model's next message.

use std::collections::BTreeSet;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::client_capabilities::SamplingCapability;
use crate::content::{Content, Role, kept};
use crate::error::DecodeError;
use crate::serde_lenient::{decode_params, or_absent, or_default};
use crate::tool::Tool;

/// What a server asks of a model.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SamplingParams {
    /// The conversation so far.
    pub messages: Vec<SamplingMessage>,
    /// The model must not write more than this.
    pub max_tokens: u64,
    /// Which model the server would like.
    #[serde(default, deserialize_with = "or_default")]
    pub model_preferences: ModelPreferences,
    /// What the model should be told first. May be changed or left out.
    #[serde(default, deserialize_with = "or_absent")]
    pub system_prompt: Option<String>,
    /// Whose context the server would like to be included. May be left out.
    #[serde(default, deserialize_with = "or_absent")]
    pub include_context: Option<IncludeContext>,
    /// How freely the model should choose. May be changed or left out.
    #[serde(default, deserialize_with = "or_absent")]
    pub temperature: Option<f64>,
    /// Where the model should stop. May be changed or left out.
    #[serde(default, deserialize_with = "or_default")]
    pub stop_sequences: Vec<String>,
    /// Settings for the provider of the model, as written.
    pub metadata: Option<Box<RawValue>>,
    /// Tools the model may ask for and the server will run, since 2025-11-25.
    pub tools: Option<Vec<Tool>>,
    /// Whether the model may, must or must not ask for a tool, since 2025-11-25.
    pub tool_choice: Option<ToolChoice>,
}

/// One message of the conversation.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SamplingMessage {
    /// Who said it.
    pub role: Role,
    /// What was said. Before 2025-11-25 exactly one block.
    #[serde(deserialize_with = "one_or_many", serialize_with = "bare_if_one")]
    pub content: Vec<Content<'static>>,
}

/// Which model the server would like. Priorities are between 0 and 1.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelPreferences {
    /// Parts of model names, most wanted first.
    #[serde(default, deserialize_with = "or_default")]
    pub hints: Vec<ModelHint>,
    /// How much the price matters.
    #[serde(default, deserialize_with = "or_absent")]
    pub cost_priority: Option<f64>,
    /// How much speed matters.
    #[serde(default, deserialize_with = "or_absent")]
    pub speed_priority: Option<f64>,
    /// How much ability matters.
    #[serde(default, deserialize_with = "or_absent")]
    pub intelligence_priority: Option<f64>,
}

/// A wish for a model.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
pub struct ModelHint {
    /// Part of a model's name.
    #[serde(default, deserialize_with = "or_absent")]
    pub name: Option<String>,
}

/// Whose context a server would like to be included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum IncludeContext {
    /// Nobody's.
    None,
    /// Its own.
    ThisServer,
    /// That of every server.
    AllServers,
}

/// Whether the model asks for tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
pub struct ToolChoice {
    /// May, must or must not.
    #[serde(default, deserialize_with = "or_default")]
    pub mode: ToolChoiceMode,
}

/// May, must or must not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ToolChoiceMode {
    /// The model decides.
    #[default]
    Auto,
    /// At least one.
    Required,
    /// None.
    None,
}

impl SamplingParams {
    /// Reads the parameters of `sampling/createMessage`.
    pub fn parse(params: &[u8]) -> Result<Self, DecodeError> {
        decode_params(params)
    }
}

/// What the model wrote.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SamplingResult {
    /// Who wrote it: the assistant.
    pub role: Role,
    /// What was written. A single block is sent bare, as every revision understands.
    #[serde(serialize_with = "bare_if_one")]
    pub content: Vec<Content<'static>>,
    /// Which model wrote it.
    pub model: String,
    /// Why it stopped: `endTurn`, `stopSequence`, `maxTokens`, `toolUse`, or the provider's word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<String>,
}

fn one_or_many<'de, D>(deserializer: D) -> Result<Vec<Content<'static>>, D::Error>
where
    D: Deserializer<'de>,
{
    #[derive(Deserialize)]
    struct Kept(#[serde(deserialize_with = "kept")] Content<'static>);
    let raw: Box<RawValue> = Deserialize::deserialize(deserializer)?;
    Ok(match serde_json::from_str::<Vec<Kept>>(raw.get()) {
        Ok(blocks) => blocks.into_iter().map(|it| it.0).collect(),
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

/// A rule for tools that a sampling request breaks. The legacy answer to each is "invalid params".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SamplingFault {
    /// It brings tools, and we did not say that we take them.
    #[error("the request brings tools, and `sampling.tools` was not declared")]
    ToolsUndeclared,
    /// A message with results of tools holds something else too.
    #[error("message {message} mixes results of tools with other content")]
    MixedResults {
        /// Its place, from zero.
        message: usize,
    },
    /// A use of a tool is not answered by the very next message.
    #[error("the tool use `{id}` is not answered by the next message")]
    Unanswered {
        /// The id of the use.
        id: String,
    },
    /// A result answers no use in the message before it.
    #[error("the tool result for `{id}` answers no tool use")]
    Unasked {
        /// The id it refers to.
        id: String,
    },
}

/// Finds the first rule for tools that a request breaks (spec 2025-11-25, sampling §Tools).
pub fn check_sampling(
    params: &SamplingParams,
    declared: SamplingCapability,
) -> Result<(), SamplingFault> {
    let brings_tools = params.tools.is_some() || params.tool_choice.is_some();
    if brings_tools && !declared.tools {
        return Err(SamplingFault::ToolsUndeclared);
    }
    let mut open: BTreeSet<&str> = BTreeSet::new();
    for (place, message) in params.messages.iter().enumerate() {
        let answered = results(place, message)?;
        if let Some(id) = open.difference(&answered).next() {
            return Err(SamplingFault::Unanswered { id: (*id).to_owned() });
        }
        if let Some(id) = answered.difference(&open).next() {
            return Err(SamplingFault::Unasked { id: (*id).to_owned() });
        }
        open = uses(message);
    }
    match open.first() {
        Some(id) => Err(SamplingFault::Unanswered { id: (*id).to_owned() }),
        None => Ok(()),
    }
}

/// The uses that a message answers.
fn results(place: usize, message: &SamplingMessage) -> Result<BTreeSet<&str>, SamplingFault> {
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
        return Err(SamplingFault::MixedResults { message: place });
    }
    Ok(answered.into_iter().collect())
}

/// The uses that a message asks for. Only a model asks.
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

    #[track_caller]
    fn check(json: &str, expected: &str) {
        let params = SamplingParams::parse(json.as_bytes()).unwrap();
        assert_eq!(serde_json::to_string(&params.messages).unwrap(), expected);
    }

    #[test]
    fn messages_hold_one_block_or_many() {
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
    fn wishes_are_read_with_patience_and_limits_are_not() {
        let json =
            br#"{"messages":[],"maxTokens":5,"includeContext":"everything","temperature":"hot",
            "modelPreferences":{"hints":[{"name":"m"},{}],"costPriority":0.3},
            "stopSequences":["x"],"tools":[],"toolChoice":{"mode":"required"}}"#;
        let params = SamplingParams::parse(json).unwrap();
        let preferences = ModelPreferences {
            hints: vec![ModelHint { name: Some("m".to_owned()) }, ModelHint::default()],
            cost_priority: Some(0.3),
            ..ModelPreferences::default()
        };
        assert_eq!(params.model_preferences, preferences);
        assert_eq!((params.include_context, params.temperature), (None, None));
        assert_eq!(params.tool_choice, Some(ToolChoice { mode: ToolChoiceMode::Required }));
        for unsound in [r#"{"messages":[]}"#, r#"{"messages":[],"maxTokens":-1}"#, "{}", ""] {
            assert!(SamplingParams::parse(unsound.as_bytes()).is_err(), "{unsound}");
        }
    }

    #[test]
    fn a_single_block_is_sent_bare() {
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

    const TOOLS: SamplingCapability = SamplingCapability { tools: true, context: false };
    const PLAIN: SamplingCapability = SamplingCapability { tools: false, context: false };

    /// Messages in short: `u` or `a` for the role, then `t` text, `?id` a use, `!id` a result.
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
    fn check(
        short: &str,
        more: &str,
        declared: SamplingCapability,
        expected: Option<SamplingFault>,
    ) {
        let json = format!(r#"{{"messages":[{}],"maxTokens":1{more}}}"#, messages(short));
        let params = SamplingParams::parse(json.as_bytes()).unwrap();
        assert_eq!(check_sampling(&params, declared).err(), expected, "{short}");
    }

    /// Protocol facts §12.2.
    #[test]
    fn tools_need_the_capability() {
        check("ut", "", PLAIN, None);
        check("ut", r#","tools":[]"#, PLAIN, Some(SamplingFault::ToolsUndeclared));
        check("ut", r#","toolChoice":{}"#, PLAIN, Some(SamplingFault::ToolsUndeclared));
        check("ut", r#","tools":[],"toolChoice":{}"#, TOOLS, None);
    }

    #[test]
    fn uses_are_answered_at_once_and_alone() {
        let unanswered = |id: &str| Some(SamplingFault::Unanswered { id: id.to_owned() });
        let unasked = |id: &str| Some(SamplingFault::Unasked { id: id.to_owned() });
        check("ut at,?1,?2 u!2,!1 at", "", TOOLS, None);
        check("ut a?1 u!1 a?2 u!2", "", TOOLS, None);
        check("ut a?1,?2 u!1", "", TOOLS, unanswered("2"));
        check("ut a?1", "", TOOLS, unanswered("1"));
        check("ut a?1 ut u!1", "", TOOLS, unanswered("1"));
        check("u!1", "", TOOLS, unasked("1"));
        check("a?1 u!1,!2", "", TOOLS, unasked("2"));
        check("a?1 u!1,t", "", TOOLS, Some(SamplingFault::MixedResults { message: 1 }));
        check("a?1 a!1", "", TOOLS, Some(SamplingFault::MixedResults { message: 1 }));
    }
}
