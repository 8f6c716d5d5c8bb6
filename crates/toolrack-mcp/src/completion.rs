//! `completion/complete`: argument completion.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::serde_lenient::or_absent;

/// Parameters of `completion/complete`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct CompleteParams<'a> {
    /// The prompt or resource that has the argument.
    #[serde(rename = "ref")]
    pub reference: CompletionRef<'a>,
    /// The argument and its partial value.
    pub argument: CompletionArgument<'a>,
    /// Arguments chosen before, since 2025-06-18.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<CompletionContext<'a>>,
}

/// Reference to a prompt or a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(tag = "type")]
pub enum CompletionRef<'a> {
    /// A prompt.
    #[serde(rename = "ref/prompt")]
    Prompt {
        /// Prompt name.
        name: &'a str,
    },
    /// A resource.
    #[serde(rename = "ref/resource")]
    Resource {
        /// URI or URI template.
        uri: &'a str,
    },
}

/// The argument and its partial value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct CompletionArgument<'a> {
    /// Argument name.
    pub name: &'a str,
    /// Partial value, possibly empty.
    pub value: &'a str,
}

/// Arguments chosen before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct CompletionContext<'a> {
    /// The other arguments by name.
    pub arguments: &'a BTreeMap<String, String>,
}

/// Result of `completion/complete`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct CompleteResult {
    /// The completion.
    pub completion: Completion,
}

/// Values for an argument.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Completion {
    /// At most 100 values, best first.
    pub values: Vec<String>,
    /// Total number of values.
    #[serde(default, deserialize_with = "or_absent")]
    pub total: Option<u64>,
    /// More values exist than were sent.
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
    fn completion_references_are_tagged() {
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
    fn completion_values_survive_a_malformed_total() {
        let json = r#"{"completion":{"values":["a"],"total":-1,"hasMore":true}}"#;
        let read: CompleteResult = serde_json::from_str(json).unwrap();
        let completion =
            Completion { values: vec!["a".to_owned()], total: None, has_more: Some(true) };
        assert_eq!(read, CompleteResult { completion });
    }
}
