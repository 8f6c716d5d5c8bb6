//! `initialize`: legacy handshake, and `Implementation` (client and server info).

use serde::ser::SerializeStruct;
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

/// Client or server info.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Implementation {
    /// The programmatic name.
    pub name: String,
    /// Version, any text. Empty if the server sent none.
    #[serde(default)]
    pub version: String,
    /// Display name, since 2025-06-18.
    #[serde(default, deserialize_with = "or_absent", skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Description, since 2025-11-25.
    #[serde(default, deserialize_with = "or_absent", skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Website, since 2025-11-25.
    #[serde(default, deserialize_with = "or_absent", skip_serializing_if = "Option::is_none")]
    pub website_url: Option<String>,
    /// Icons as written, since 2025-11-25.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub icons: Option<Box<RawValue>>,
}

impl Implementation {
    /// The members that `revision` defines, to be serialized.
    #[must_use]
    pub fn wire(&self, revision: Revision) -> Self {
        let mut wire = self.clone();
        if revision < Revision::R2025_06_18 {
            wire.title = None;
        }
        if revision < Revision::R2025_11_25 {
            (wire.description, wire.website_url, wire.icons) = (None, None, None);
        }
        wire
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
            (Revision::parse(&result.protocol_version), server, result.capabilities.tools.is_some())
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
