//! A tool as its server describes it.
//!
//! **Invariant:** schemas are kept byte for byte, so that keywords we do not know reach the model.

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::list_page::Listed;
use crate::serde_lenient::or_absent;
use crate::serde_lenient::{Execution, Icons, Object, fitting};
use crate::tool_schema::{input_schema, output_schema};

/// A tool as its server describes it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Tool {
    /// The name to call it by. May break every rule for names that the protocol recommends.
    pub name: String,
    /// The name for people, since 2025-06-18.
    #[serde(default, deserialize_with = "or_absent", skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What it does, for a model to read.
    #[serde(default, deserialize_with = "or_absent", skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The JSON Schema of its arguments, always an object, as written.
    #[serde(deserialize_with = "input_schema")]
    pub input_schema: Box<RawValue>,
    /// The JSON Schema of its structured content, as written, since 2025-06-18.
    #[serde(default, deserialize_with = "output_schema", skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Box<RawValue>>,
    /// What the server claims about its behavior.
    #[serde(default, deserialize_with = "or_absent", skip_serializing_if = "Option::is_none")]
    pub annotations: Option<ToolAnnotations>,
    /// Its icons, as written, since 2025-11-25.
    #[serde(
        default,
        deserialize_with = "fitting::<_, Icons>",
        skip_serializing_if = "Option::is_none"
    )]
    pub icons: Option<Box<RawValue>>,
    /// How it may be run, as written, in 2025-11-25.
    #[serde(
        default,
        deserialize_with = "fitting::<_, Object<Execution>>",
        skip_serializing_if = "Option::is_none"
    )]
    pub execution: Option<Box<RawValue>>,
    /// What else the server attached, as written, since 2025-06-18.
    #[serde(
        rename = "_meta",
        default,
        deserialize_with = "fitting::<_, Object<IgnoredAny>>",
        skip_serializing_if = "Option::is_none"
    )]
    pub meta: Option<Box<RawValue>>,
}

/// Claims about a tool, since 2025-03-26. Worth as much as the server is trusted.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolAnnotations {
    /// A name for people, older than [`Tool::title`].
    #[serde(default, deserialize_with = "or_absent", skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// It changes nothing.
    #[serde(default, deserialize_with = "or_absent", skip_serializing_if = "Option::is_none")]
    pub read_only_hint: Option<bool>,
    /// Its changes may destroy something.
    #[serde(default, deserialize_with = "or_absent", skip_serializing_if = "Option::is_none")]
    pub destructive_hint: Option<bool>,
    /// Doing it again with the same arguments changes nothing more.
    #[serde(default, deserialize_with = "or_absent", skip_serializing_if = "Option::is_none")]
    pub idempotent_hint: Option<bool>,
    /// It deals with the world outside, not with a closed domain.
    #[serde(default, deserialize_with = "or_absent", skip_serializing_if = "Option::is_none")]
    pub open_world_hint: Option<bool>,
}

impl Listed for Tool {
    const MEMBER: &'static str = "tools";
}

impl Tool {
    /// The name to show to people.
    pub fn display_name(&self) -> &str {
        let annotated = || self.annotations.as_ref().and_then(|it| it.title.as_deref());
        self.title.as_deref().or_else(annotated).unwrap_or(&self.name)
    }

    /// Whether it can only be called as a task.
    pub fn needs_task(&self) -> bool {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Execution {
            #[serde(default, deserialize_with = "or_absent")]
            task_support: Option<String>,
        }
        let execution = self.execution.as_ref().and_then(|it| serde_json::from_str(it.get()).ok());
        execution.is_some_and(|it: Execution| it.task_support.as_deref() == Some("required"))
    }
}

impl ToolAnnotations {
    /// Whether it claims to change nothing. Unless claimed, it may.
    pub fn is_read_only(&self) -> bool {
        self.read_only_hint.unwrap_or(false)
    }

    /// Whether it may destroy something. Unless denied, it may.
    pub fn is_destructive(&self) -> bool {
        self.destructive_hint.unwrap_or(true)
    }

    /// Whether it claims that repeating is harmless. Unless claimed, it is not.
    pub fn is_idempotent(&self) -> bool {
        self.idempotent_hint.unwrap_or(false)
    }

    /// Whether it may reach the world outside. Unless denied, it may.
    pub fn is_open_world(&self) -> bool {
        self.open_world_hint.unwrap_or(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(json: &str, expected: &str) {
        let tool: Tool = serde_json::from_str(json).unwrap();
        assert_eq!(serde_json::to_string(&tool).unwrap(), expected);
    }

    #[test]
    fn some_tools_are_tasks_only() {
        let check = |execution: &str, expected: bool| {
            let json = format!(r#"{{"name":"a","inputSchema":{{}},"execution":{execution}}}"#);
            let tool: Tool = serde_json::from_str(&json).unwrap();
            assert_eq!(tool.needs_task(), expected, "{execution}");
        };
        check(r#"{"taskSupport":"required"}"#, true);
        check(r#"{"taskSupport":"optional"}"#, false);
        check(r#"{"taskSupport":7}"#, false);
        check("{}", false);
        check("null", false);
        check("7", false);
    }

    #[test]
    fn known_members_survive_and_raw_ones_to_the_byte() {
        check(
            r#"{"inputSchema":{ "type" : "object", "x":1.50 },"name":"a b/c","new":{},
                "outputSchema":{"$ref" : "x"},"execution":{"taskSupport":"optional"},
                "icons":[],"_meta":{"k":"\u00e9"},"title":null}"#,
            concat!(
                r#"{"name":"a b/c","inputSchema":{ "type" : "object", "x":1.50 },"#,
                r#""outputSchema":{"$ref" : "x"},"icons":[],"#,
                r#""execution":{"taskSupport":"optional"},"_meta":{"k":"\u00e9"}}"#
            ),
        );
    }

    #[test]
    fn odd_annotations_do_not_cost_the_tool() {
        check(
            r#"{"name":"a","inputSchema":{},"annotations":{"readOnlyHint":"yes","title":"A"}}"#,
            r#"{"name":"a","inputSchema":{},"annotations":{"title":"A"}}"#,
        );
        check(
            r#"{"name":"a","inputSchema":{},"annotations":"safe"}"#,
            r#"{"name":"a","inputSchema":{}}"#,
        );
    }

    #[test]
    fn titles_are_preferred_in_order() {
        let shown = |more: &str| {
            let json = format!(r#"{{"name":"n","inputSchema":{{}}{more}}}"#);
            let tool: Tool = serde_json::from_str(&json).unwrap();
            tool.display_name().to_owned()
        };
        assert_eq!(shown(r#","title":"t","annotations":{"title":"a"}"#), "t");
        assert_eq!(shown(r#","annotations":{"title":"a"}"#), "a");
        assert_eq!(shown(""), "n");
    }

    /// Protocol facts §8.1.
    #[test]
    fn a_silent_tool_is_taken_for_dangerous() {
        let silent = ToolAnnotations::default();
        let said = [
            silent.is_read_only(),
            silent.is_destructive(),
            silent.is_idempotent(),
            silent.is_open_world(),
        ];
        assert_eq!(said, [false, true, false, true]);
    }
}
