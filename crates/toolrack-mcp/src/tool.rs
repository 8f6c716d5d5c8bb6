//! Tools: list entries and annotations.
//!
//! **Invariant:** schemas are kept byte for byte, so that unknown keywords reach the model.

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::json_scan::sound_schema_depth;
use crate::list_page::{DEEPEST, ListEntry, are_shallow};
use crate::method::Method;
use crate::serde_lenient::{
    Execution, Icons, Object, TaskSupport, fits, fitting, is_object, or_absent,
};
use crate::tool_schema::{any_arguments, input_schema, output_schema};

/// A tool of a list.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
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
    /// JSON Schema of the arguments, always an object, as written. `{"type":"object"}` if there is none.
    #[serde(default = "any_arguments", deserialize_with = "input_schema")]
    pub input_schema: Box<RawValue>,
    /// JSON Schema of the structured content, as written, since 2025-06-18.
    #[serde(default, deserialize_with = "output_schema", skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Box<RawValue>>,
    /// Annotations about its behavior.
    #[serde(default, deserialize_with = "or_absent", skip_serializing_if = "Option::is_none")]
    pub annotations: Option<ToolAnnotations>,
    /// Icons as written, since 2025-11-25.
    #[serde(default, deserialize_with = "fitting::<_, Icons>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub icons: Option<Box<RawValue>>,
    /// `execution` as written, in 2025-11-25.
    #[serde(default, deserialize_with = "fitting::<_, Object<Execution>>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub execution: Option<Box<RawValue>>,
    /// `_meta` as written, since 2025-06-18.
    #[serde(rename = "_meta", default, deserialize_with = "fitting::<_, Object<IgnoredAny>>")]
    #[serde(skip_serializing_if = "Option::is_none")]
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
    const METHOD: Method = Method::ListTools;
    const MEMBER: &'static str = "tools";
    type Sound<'a> = SoundTool<'a>;

    fn from_sound(sound: SoundTool<'_>) -> Option<Self> {
        let input_schema = match sound.input_schema {
            None => any_arguments(),
            Some(schema) if sound_schema_depth(schema.get())? < DEEPEST => schema.to_owned(),
            Some(_) => return None,
        };
        if !are_shallow([sound.output_schema, sound.icons, sound.execution, sound.meta]) {
            return None;
        }
        Some(Self {
            name: sound.name,
            title: sound.title,
            description: sound.description,
            input_schema,
            output_schema: sound.output_schema.filter(|raw| is_object(raw)).map(RawValue::to_owned),
            annotations: sound.annotations.map(ToolAnnotations::from),
            icons: sound.icons.filter(|raw| fits::<Icons>(raw)).map(RawValue::to_owned),
            execution: sound
                .execution
                .filter(|raw| fits::<Object<Execution>>(raw))
                .map(RawValue::to_owned),
            meta: sound.meta.filter(|raw| is_object(raw)).map(RawValue::to_owned),
        })
    }
}

/// A tool whose members have the right type. Schemas and other foreign JSON are borrowed.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SoundTool<'a> {
    name: String,
    title: Option<String>,
    description: Option<String>,
    #[serde(borrow)]
    input_schema: Option<&'a RawValue>,
    output_schema: Option<&'a RawValue>,
    annotations: Option<SoundAnnotations>,
    icons: Option<&'a RawValue>,
    execution: Option<&'a RawValue>,
    #[serde(rename = "_meta")]
    meta: Option<&'a RawValue>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SoundAnnotations {
    title: Option<String>,
    read_only_hint: Option<bool>,
    destructive_hint: Option<bool>,
    idempotent_hint: Option<bool>,
    open_world_hint: Option<bool>,
}

impl From<SoundAnnotations> for ToolAnnotations {
    fn from(sound: SoundAnnotations) -> Self {
        Self {
            title: sound.title,
            read_only_hint: sound.read_only_hint,
            destructive_hint: sound.destructive_hint,
            idempotent_hint: sound.idempotent_hint,
            open_world_hint: sound.open_world_hint,
        }
    }
}

impl Tool {
    /// Whether the tool can only be called as a task.
    pub fn needs_task(&self) -> bool {
        let execution = self.execution.as_ref();
        execution
            .and_then(|execution| serde_json::from_str::<Execution>(execution.get()).ok())
            .is_some_and(|execution| execution.task_support == Some(TaskSupport::Required))
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
}
