//! Whether a sampling request keeps the rules for tools.

use std::collections::BTreeSet;

use super::{SamplingMessage, SamplingParams};
use crate::client_capabilities::SamplingCapability;
use crate::content::Content;
use crate::role::Role;

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
