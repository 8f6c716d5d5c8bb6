//! Tools: list entries and annotations.
//!
//! **Invariant:** schemas are kept byte for byte, so that unknown keywords reach the model.

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::list_page::ListEntry;
use crate::serde_lenient::or_absent;
use crate::serde_lenient::{Execution, Icons, Object, fitting};
use crate::tool_schema::{input_schema, output_schema};

/// A tool of a list.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Tool {
    /// Tool name. May violate every naming rule that the protocol recommends.
    pub name: String,
    /// Display name, since 2025-06-18.
    #[serde(default, deserialize_with = "or_absent", skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Description, for a model.
    #[serde(default, deserialize_with = "or_absent", skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// JSON Schema of the arguments, always an object, as written.
    #[serde(deserialize_with = "input_schema")]
    pub input_schema: Box<RawValue>,
    /// JSON Schema of the structured content, as written, since 2025-06-18.
    #[serde(default, deserialize_with = "output_schema", skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Box<RawValue>>,
    /// Annotations about its behavior.
    #[serde(default, deserialize_with = "or_absent", skip_serializing_if = "Option::is_none")]
    pub annotations: Option<ToolAnnotations>,
    /// Icons as written, since 2025-11-25.
    #[serde(
        default,
        deserialize_with = "fitting::<_, Icons>",
        skip_serializing_if = "Option::is_none"
    )]
    pub icons: Option<Box<RawValue>>,
    /// `execution` as written, in 2025-11-25.
    #[serde(
        default,
        deserialize_with = "fitting::<_, Object<Execution>>",
        skip_serializing_if = "Option::is_none"
    )]
    pub execution: Option<Box<RawValue>>,
    /// `_meta` as written, since 2025-06-18.
    #[serde(
        rename = "_meta",
        default,
        deserialize_with = "fitting::<_, Object<IgnoredAny>>",
        skip_serializing_if = "Option::is_none"
    )]
    pub meta: Option<Box<RawValue>>,
}

/// Annotations of a tool, since 2025-03-26. Only as trustworthy as the server.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolAnnotations {
    /// Display name, older than [`Tool::title`].
    #[serde(default, deserialize_with = "or_absent", skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Read-only.
    #[serde(default, deserialize_with = "or_absent", skip_serializing_if = "Option::is_none")]
    pub read_only_hint: Option<bool>,
    /// May perform destructive updates.
    #[serde(default, deserialize_with = "or_absent", skip_serializing_if = "Option::is_none")]
    pub destructive_hint: Option<bool>,
    /// Repeating a call with the same arguments has no further effect.
    #[serde(default, deserialize_with = "or_absent", skip_serializing_if = "Option::is_none")]
    pub idempotent_hint: Option<bool>,
    /// Interacts with external entities.
    #[serde(default, deserialize_with = "or_absent", skip_serializing_if = "Option::is_none")]
    pub open_world_hint: Option<bool>,
}

impl ListEntry for Tool {
    const MEMBER: &'static str = "tools";
}

impl Tool {
    /// Display name, or the tool name.
    pub fn display_name(&self) -> &str {
        let annotated =
            || self.annotations.as_ref().and_then(|annotations| annotations.title.as_deref());
        self.title.as_deref().or_else(annotated).unwrap_or(&self.name)
    }

    /// Whether the tool can only be called as a task.
    pub fn needs_task(&self) -> bool {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Execution {
            #[serde(default, deserialize_with = "or_absent")]
            task_support: Option<String>,
        }
        let execution = self
            .execution
            .as_ref()
            .and_then(|execution| serde_json::from_str(execution.get()).ok());
        execution.is_some_and(|execution: Execution| {
            execution.task_support.as_deref() == Some("required")
        })
    }
}

impl ToolAnnotations {
    /// Whether it claims to be read-only. Default: no.
    pub fn is_read_only(&self) -> bool {
        self.read_only_hint.unwrap_or(false)
    }

    /// Whether it may be destructive. Default: yes.
    pub fn is_destructive(&self) -> bool {
        self.destructive_hint.unwrap_or(true)
    }

    /// Whether it claims to be idempotent. Default: no.
    pub fn is_idempotent(&self) -> bool {
        self.idempotent_hint.unwrap_or(false)
    }

    /// Whether it may interact with external entities. Default: yes.
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
    fn tools_that_require_tasks_are_found() {
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
    fn tool_members_are_kept_byte_for_byte() {
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
    fn malformed_annotations_do_not_drop_the_tool() {
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
    fn display_name_prefers_the_title() {
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
    fn tool_without_annotations_counts_as_destructive() {
        let silent = ToolAnnotations::default();
        let actual = [
            silent.is_read_only(),
            silent.is_destructive(),
            silent.is_idempotent(),
            silent.is_open_world(),
        ];
        assert_eq!(actual, [false, true, false, true]);
    }
}
