//! `initialize`: legacy handshake, and `Implementation` (client and server info).

use serde::ser::{SerializeMap, SerializeStruct};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::client_capabilities::ClientCapabilities;
use crate::revision::Revision;
use crate::serde_lenient::{or_absent, or_default};
use crate::server_capabilities::ServerCapabilities;

/// Parameters of `initialize`.
#[derive(Debug, Clone, Copy)]
pub struct InitializeParams<'a> {
    /// Requested revision. It also determines the format of the other members.
    pub revision: Revision,
    /// Client capabilities.
    pub capabilities: &'a ClientCapabilities,
    /// Client info.
    pub client: &'a Implementation,
}

impl Serialize for InitializeParams<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut params = serializer.serialize_struct("InitializeParams", 3)?;
        params.serialize_field("protocolVersion", &self.revision)?;
        params.serialize_field("capabilities", &self.capabilities.wire(self.revision))?;
        params.serialize_field("clientInfo", &self.client.wire(self.revision))?;
        params.end()
    }
}

/// `notifications/initialized`: the client has read the result, and requests may follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Initialized {}

/// Result of `initialize`.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InitializeResult {
    /// Version chosen by the server, as written. May differ from the requested one.
    pub protocol_version: String,
    /// Server capabilities.
    #[serde(default, deserialize_with = "or_default")]
    pub capabilities: ServerCapabilities,
    /// Server info. `None` if it is malformed: it is for display only.
    #[serde(default, rename = "serverInfo", deserialize_with = "or_absent")]
    pub server: Option<Implementation>,
    /// Instructions for a model.
    #[serde(default, deserialize_with = "or_absent")]
    pub instructions: Option<String>,
}

impl InitializeResult {
    /// The negotiated revision, or `None` if it is unknown.
    pub fn revision(&self) -> Option<Revision> {
        Revision::parse(&self.protocol_version)
    }
}

/// Client or server info.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Implementation {
    /// The programmatic name.
    pub name: String,
    /// Version, any text. Empty if the server sent none.
    #[serde(default)]
    pub version: String,
    /// Display name, since 2025-06-18.
    #[serde(default, deserialize_with = "or_absent")]
    pub title: Option<String>,
    /// Description, since 2025-11-25.
    #[serde(default, deserialize_with = "or_absent")]
    pub description: Option<String>,
    /// Website, since 2025-11-25.
    #[serde(default, deserialize_with = "or_absent")]
    pub website_url: Option<String>,
    /// Icons as written, since 2025-11-25.
    pub icons: Option<Box<RawValue>>,
}

impl Implementation {
    /// The members that `revision` defines, ready for serialization.
    pub fn wire(&self, revision: Revision) -> ImplementationWire<'_> {
        ImplementationWire { implementation: self, revision }
    }
}

/// An [`Implementation`] in the format of one revision.
#[derive(Debug, Clone, Copy)]
pub struct ImplementationWire<'a> {
    implementation: &'a Implementation,
    revision: Revision,
}

impl Serialize for ImplementationWire<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Implementation { name, version, title, description, website_url, icons } =
            self.implementation;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("name", name)?;
        map.serialize_entry("version", version)?;
        if self.revision.has_titles() {
            entry(&mut map, "title", title.as_ref())?;
        }
        if self.revision.has_icons() {
            entry(&mut map, "description", description.as_ref())?;
            entry(&mut map, "websiteUrl", website_url.as_ref())?;
            entry(&mut map, "icons", icons.as_ref())?;
        }
        map.end()
    }
}

fn entry<M, T>(map: &mut M, key: &str, value: Option<&T>) -> Result<(), M::Error>
where
    M: SerializeMap,
    T: Serialize,
{
    match value {
        Some(value) => map.serialize_entry(key, value),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(json: &str, expected: Option<(Option<Revision>, Option<&str>, bool)>) {
        let read: Option<InitializeResult> = serde_json::from_str(json).ok();
        let actual = read.as_ref().map(|result| {
            let server = result.server.as_ref().map(|info| info.name.as_str());
            (result.revision(), server, result.capabilities.tools.is_some())
        });
        assert_eq!(actual, expected, "{json}");
    }

    #[test]
    fn only_the_version_is_required() {
        check(
            r#"{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},
                "serverInfo":{"name":"s","version":"1"},"instructions":"Hi","new":1}"#,
            Some((Some(Revision::R2025_06_18), Some("s"), true)),
        );
        check(r#"{"protocolVersion":"3000-01-01"}"#, Some((None, None, false)));
        check(
            r#"{"protocolVersion":"2024-11-05","capabilities":null,"serverInfo":"s"}"#,
            Some((Some(Revision::R2024_11_05), None, false)),
        );
        check(r#"{"capabilities":{}}"#, None);
    }
}

#[cfg(test)]
mod implementation_tests {
    use super::*;

    #[track_caller]
    fn check(revision: Revision, expected: &str) {
        let full = r#"{"name":"n","version":"1","title":"T","description":"d",
            "websiteUrl":"https://e.org","icons":[{"src":"https://e.org/i.png"}],"more":1}"#;
        let implementation: Implementation = serde_json::from_str(full).unwrap();
        assert_eq!(serde_json::to_string(&implementation.wire(revision)).unwrap(), expected);
    }

    #[test]
    fn capabilities_are_written_per_revision() {
        check(Revision::R2024_11_05, r#"{"name":"n","version":"1"}"#);
        check(Revision::R2025_03_26, r#"{"name":"n","version":"1"}"#);
        check(Revision::R2025_06_18, r#"{"name":"n","version":"1","title":"T"}"#);
        let all = concat!(
            r#"{"name":"n","version":"1","title":"T","description":"d","#,
            r#""websiteUrl":"https://e.org","icons":[{"src":"https://e.org/i.png"}]}"#
        );
        check(Revision::R2025_11_25, all);
        check(Revision::R2026_07_28, all);
    }
}
