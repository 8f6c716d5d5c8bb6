//! What a server says it can do, read with patience.
//!
//! **Invariant:** an odd value in one capability never hides another.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::serde_lenient::{flag, or_default};

/// What a server offers.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct ServerCapabilities {
    /// It has tools.
    #[serde(default, deserialize_with = "offered")]
    pub tools: Option<ListCapability>,
    /// It has resources.
    #[serde(default, deserialize_with = "offered")]
    pub resources: Option<ResourcesCapability>,
    /// It has prompts.
    #[serde(default, deserialize_with = "offered")]
    pub prompts: Option<ListCapability>,
    /// It sends log messages.
    #[serde(default, deserialize_with = "flag")]
    pub logging: bool,
    /// It completes arguments. The first revision does not declare this.
    #[serde(default, deserialize_with = "flag")]
    pub completions: bool,
    /// How it runs tasks in 2025-11-25, as written.
    pub tasks: Option<Box<RawValue>>,
    /// Settings of extensions by identifier, since 2026-07-28.
    #[serde(default, deserialize_with = "or_default")]
    pub extensions: BTreeMap<String, Box<RawValue>>,
    /// Unofficial features, as written.
    pub experimental: Option<Box<RawValue>>,
}

/// A list that may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListCapability {
    /// Changes are announced.
    #[serde(default, deserialize_with = "or_default")]
    pub list_changed: bool,
}

/// How tasks are run, in 2025-11-25.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TasksCapability {
    /// Calls of tools can be tasks.
    pub calls: bool,
    /// Tasks can be given up.
    pub cancel: bool,
}

/// How resources are offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourcesCapability {
    /// Changes of one resource are announced to those who ask.
    #[serde(default, deserialize_with = "or_default")]
    pub subscribe: bool,
    /// Changes of the list are announced.
    #[serde(default, deserialize_with = "or_default")]
    pub list_changed: bool,
}

impl ServerCapabilities {
    /// What it does with tasks in 2025-11-25.
    pub fn tasks(&self) -> TasksCapability {
        #[derive(Default, Deserialize)]
        struct Tasks {
            #[serde(default, deserialize_with = "flag")]
            cancel: bool,
            #[serde(default, deserialize_with = "or_default")]
            requests: Requests,
        }
        #[derive(Default, Deserialize)]
        struct Requests {
            #[serde(default, deserialize_with = "or_default")]
            tools: Tools,
        }
        #[derive(Default, Deserialize)]
        struct Tools {
            #[serde(default, deserialize_with = "flag")]
            call: bool,
        }
        let read = self.tasks.as_ref().and_then(|it| serde_json::from_str(it.get()).ok());
        let Tasks { cancel, requests } = read.unwrap_or_default();
        TasksCapability { calls: requests.tools.call, cancel }
    }
}

/// Anything but `null` and `false` is an offer, even if its settings cannot be read.
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
        let said = format!(
            "tools {:?} resources {:?} prompts {:?} logging {logging} completions {completions}",
            tools.map(|it| it.list_changed),
            resources.map(|it| (it.subscribe, it.list_changed)),
            prompts.map(|it| it.list_changed),
        );
        assert_eq!(said, expected, "{json}");
    }

    #[test]
    fn capabilities_are_read_with_patience() {
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
    fn tasks_are_run_as_far_as_it_is_said() {
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
    fn settings_of_extensions_stay_as_written() {
        let json = r#"{"extensions":{"a.b/c":{ "x" : 1 }},"tasks":{"list":{}},"experimental":{}}"#;
        let read: ServerCapabilities = serde_json::from_str(json).unwrap();
        let settings = read.extensions.get("a.b/c").map(|it| it.get());
        assert_eq!(settings, Some(r#"{ "x" : 1 }"#));
        assert_eq!(read.tasks.as_deref().map(RawValue::get), Some(r#"{"list":{}}"#));
    }
}
