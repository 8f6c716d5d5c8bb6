//! Server capabilities, parsed leniently.
//!
//! **Invariant:** a malformed capability never hides another.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::serde_lenient::{flag, or_default};

/// Server capabilities.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct ServerCapabilities {
    /// Tools.
    #[serde(default, deserialize_with = "offered")]
    pub tools: Option<ListCapability>,
    /// Resources.
    #[serde(default, deserialize_with = "offered")]
    pub resources: Option<ResourcesCapability>,
    /// Prompts.
    #[serde(default, deserialize_with = "offered")]
    pub prompts: Option<ListCapability>,
    /// Log messages.
    #[serde(default, deserialize_with = "flag::deserialize")]
    pub logging: bool,
    /// Completion. The first revision does not declare it.
    #[serde(default, deserialize_with = "flag::deserialize")]
    pub completions: bool,
    /// Tasks in 2025-11-25, as written.
    pub tasks: Option<Box<RawValue>>,
    /// Extensions by identifier, since 2026-07-28.
    #[serde(default, deserialize_with = "or_default")]
    pub extensions: BTreeMap<String, Box<RawValue>>,
    /// Experimental features, as written.
    pub experimental: Option<Box<RawValue>>,
}

/// A capability with a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListCapability {
    /// The server announces list changes.
    #[serde(default, deserialize_with = "or_default")]
    pub list_changed: bool,
}

/// Task support in 2025-11-25.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TasksCapability {
    /// Tool calls can run as tasks.
    pub calls: bool,
    /// Tasks can be cancelled.
    pub cancel: bool,
}

/// Resources capability.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourcesCapability {
    /// The server announces changes of subscribed resources.
    #[serde(default, deserialize_with = "or_default")]
    pub subscribe: bool,
    /// The server announces list changes.
    #[serde(default, deserialize_with = "or_default")]
    pub list_changed: bool,
}

impl ServerCapabilities {
    /// Task support in 2025-11-25.
    pub fn tasks(&self) -> TasksCapability {
        let tasks = self.tasks.as_ref().and_then(|tasks| serde_json::from_str(tasks.get()).ok());
        let tasks: Value = tasks.unwrap_or_default();
        let has =
            |path| !matches!(tasks.pointer(path), None | Some(Value::Null | Value::Bool(false)));
        TasksCapability { calls: has("/requests/tools/call"), cancel: has("/cancel") }
    }
}

/// Anything but `null` and `false` counts as support, even with unreadable settings.
fn offered<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: serde::Deserializer<'de>,
    T: serde::de::DeserializeOwned + Default,
{
    let raw: Box<RawValue> = Deserialize::deserialize(deserializer)?;
    match raw.get() {
        "null" | "false" => Ok(None),
        settings => Ok(Some(serde_json::from_str(settings).unwrap_or_default())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(json: &str, expected: &str) {
        let read: ServerCapabilities = serde_json::from_str(json).unwrap();
        let ServerCapabilities { tools, resources, prompts, logging, completions, .. } = read;
        let actual = format!(
            "tools {:?} resources {:?} prompts {:?} logging {logging} completions {completions}",
            tools.map(|tools| tools.list_changed),
            resources.map(|resources| (resources.subscribe, resources.list_changed)),
            prompts.map(|prompts| prompts.list_changed),
        );
        assert_eq!(actual, expected, "{json}");
    }

    #[test]
    fn server_capabilities_are_lenient() {
        check(
            r#"{"tools":{"listChanged":true},"resources":{"subscribe":true},"prompts":{},
                "logging":{},"completions":{},"brandNew":{}}"#,
            "tools Some(true) resources Some((true, false)) prompts Some(false) logging true completions true",
        );
        check("{}", "tools None resources None prompts None logging false completions false");
        check(
            r#"{"tools":null,"resources":false,"logging":null}"#,
            "tools None resources None prompts None logging false completions false",
        );
        check(
            r#"{"tools":true,"resources":{"subscribe":"yes","listChanged":true},"prompts":[]}"#,
            "tools Some(false) resources Some((false, true)) prompts Some(false) logging false completions false",
        );
    }

    #[test]
    fn task_capability_is_read() {
        let check = |tasks: &str, calls: bool, cancel: bool| {
            let json = format!(r#"{{"tasks":{tasks}}}"#);
            let read: ServerCapabilities = serde_json::from_str(&json).unwrap();
            assert_eq!(read.tasks(), TasksCapability { calls, cancel }, "{tasks}");
        };
        check(r#"{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}"#, true, true);
        check(r#"{"requests":{"tools":{"call":{}}}}"#, true, false);
        check(r#"{"cancel":{},"requests":{"tools":7}}"#, false, true);
        check("{}", false, false);
        check("null", false, false);
        check("true", false, false);
    }

    #[test]
    fn extension_settings_are_kept_as_written() {
        let json = r#"{"extensions":{"a.b/c":{ "x" : 1 }},"tasks":{"list":{}},"experimental":{}}"#;
        let read: ServerCapabilities = serde_json::from_str(json).unwrap();
        let settings = read.extensions.get("a.b/c").map(|settings| settings.get());
        assert_eq!(settings, Some(r#"{ "x" : 1 }"#));
        assert_eq!(read.tasks.as_deref().map(RawValue::get), Some(r#"{"list":{}}"#));
    }
}
