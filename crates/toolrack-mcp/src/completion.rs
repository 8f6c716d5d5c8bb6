//! `completion/complete`: what could stand in an argument.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::serde_lenient::or_absent;

/// Asks what an argument could be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct CompleteParams<'a> {
    /// Whose argument it is.
    #[serde(rename = "ref")]
    pub reference: CompletionRef<'a>,
    /// The argument and what has been typed.
    pub argument: CompletionArgument<'a>,
    /// What has been chosen before, since 2025-06-18.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<CompletionContext<'a>>,
}

/// Whose argument is completed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(tag = "type")]
pub enum CompletionRef<'a> {
    /// A prompt's.
    #[serde(rename = "ref/prompt")]
    Prompt {
        /// The prompt's name.
        name: &'a str,
    },
    /// A resource's.
    #[serde(rename = "ref/resource")]
    Resource {
        /// The URI or the template.
        uri: &'a str,
    },
}

/// The argument and what has been typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct CompletionArgument<'a> {
    /// The argument's name.
    pub name: &'a str,
    /// What has been typed, possibly nothing.
    pub value: &'a str,
}

/// What has been chosen before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct CompletionContext<'a> {
    /// The other arguments by name.
    pub arguments: &'a BTreeMap<String, String>,
}

/// What the argument could be.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct CompleteResult {
    /// The proposals.
    pub completion: Completion,
}

/// Proposals for an argument.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Completion {
    /// At most a hundred, best first.
    pub values: Vec<String>,
    /// How many there are in all.
    #[serde(default, deserialize_with = "or_absent")]
    pub total: Option<u64>,
    /// There are more than were sent.
    #[serde(default, deserialize_with = "or_absent")]
    pub has_more: Option<bool>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(params: &CompleteParams<'_>, expected: &str) {
        assert_eq!(serde_json::to_string(params).unwrap(), expected);
    }

    #[test]
    fn references_are_tagged() {
        let argument = CompletionArgument { name: "a", value: "" };
        let reference = CompletionRef::Prompt { name: "p" };
        check(
            &CompleteParams { reference, argument, context: None },
            r#"{"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"a","value":""}}"#,
        );
        let arguments = BTreeMap::from([("k".to_owned(), "v".to_owned())]);
        let context = Some(CompletionContext { arguments: &arguments });
        let reference = CompletionRef::Resource { uri: "f:{x}" };
        check(
            &CompleteParams { reference, argument, context },
            concat!(
                r#"{"ref":{"type":"ref/resource","uri":"f:{x}"},"argument":{"name":"a","value":""},"#,
                r#""context":{"arguments":{"k":"v"}}}"#
            ),
        );
    }

    #[test]
    fn proposals_count_even_if_their_number_does_not() {
        let json = r#"{"completion":{"values":["a"],"total":-1,"hasMore":true}}"#;
        let read: CompleteResult = serde_json::from_str(json).unwrap();
        let completion =
            Completion { values: vec!["a".to_owned()], total: None, has_more: Some(true) };
        assert_eq!(read, CompleteResult { completion });
    }
}
