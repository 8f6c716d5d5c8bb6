//! `server/discover`: what a modern server speaks and offers.

use serde::{Deserialize, Serialize};

use crate::cache_hint::{CacheHint, Hints};
use crate::error::DecodeError;
use crate::initialize::Implementation;
use crate::revision::{Era, Revision};
use crate::serde_lenient::{decode, or_absent, or_default};
use crate::server_capabilities::ServerCapabilities;

/// The parameters of `server/discover`: none but `_meta`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct DiscoverParams {}

/// What a modern server speaks and offers.
#[derive(Debug, Clone)]
pub struct DiscoverResult {
    /// The versions the server speaks, as written; legacy ones may be among them.
    pub supported_versions: Vec<String>,
    /// What the server offers.
    pub capabilities: ServerCapabilities,
    /// Who the server says it is. For display only.
    pub server: Option<Implementation>,
    /// How to use the server, for a model to read.
    pub instructions: Option<String>,
    /// How long all this may be kept.
    pub cache: CacheHint,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Members {
    supported_versions: Vec<String>,
    capabilities: ServerCapabilities,
    #[serde(default, deserialize_with = "or_absent")]
    instructions: Option<String>,
    // Drafts had it in the body; the released place is `_meta`. Both are met.
    #[serde(default, rename = "serverInfo", deserialize_with = "or_absent")]
    server: Option<Implementation>,
    #[serde(default, rename = "_meta", deserialize_with = "or_default")]
    meta: Meta,
}

#[derive(Default, Deserialize)]
struct Meta {
    #[serde(
        default,
        rename = "io.modelcontextprotocol/serverInfo",
        deserialize_with = "or_absent"
    )]
    server: Option<Implementation>,
}

impl DiscoverResult {
    /// Reads the answer. What fails here is no modern server's answer: the versions and the
    /// capabilities are what tells it from the answer of a server that accepts any method.
    pub fn parse(raw: &[u8]) -> Result<Self, DecodeError> {
        let Members { supported_versions, capabilities, instructions, server, meta } = decode(raw)?;
        let hints: Hints<'_> = decode(raw)?;
        let server = meta.server.or(server);
        Ok(Self { supported_versions, capabilities, server, instructions, cache: hints.read() })
    }

    /// The newest revision of `era` that both sides speak.
    pub fn best(&self, era: Era) -> Option<Revision> {
        Revision::best_of(&self.supported_versions, era)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(json: &str, expected: Option<(Option<Revision>, Option<&str>)>) {
        let read = DiscoverResult::parse(json.as_bytes()).ok();
        let said = read
            .as_ref()
            .map(|it| (it.best(Era::Modern), it.server.as_ref().map(|it| it.name.as_str())));
        assert_eq!(said, expected, "{json}");
    }

    const LATEST: Option<Revision> = Some(Revision::LATEST);

    /// Protocol facts §4.1 and §23.
    #[test]
    fn the_name_tag_may_stand_in_either_place_or_be_unreadable() {
        check(
            r#"{"resultType":"complete","supportedVersions":["2025-11-25","2026-07-28"],
                "capabilities":{"tools":{}},"ttlMs":1,"cacheScope":"public",
                "_meta":{"io.modelcontextprotocol/serverInfo":{"name":"m","version":"1"}}}"#,
            Some((LATEST, Some("m"))),
        );
        check(
            r#"{"supportedVersions":["2026-07-28"],"capabilities":{},
                "serverInfo":{"name":"b","version":"1"}}"#,
            Some((LATEST, Some("b"))),
        );
        check(
            r#"{"supportedVersions":["2026-07-28"],"capabilities":{},
                "_meta":{"io.modelcontextprotocol/serverInfo":"m"}}"#,
            Some((LATEST, None)),
        );
        check(
            r#"{"supportedVersions":["2025-06-18"],"capabilities":{},"_meta":7}"#,
            Some((None, None)),
        );
    }

    #[test]
    fn an_answer_of_another_shape_is_no_discovery() {
        check("{}", None);
        check(r#"{"supportedVersions":"2026-07-28","capabilities":{}}"#, None);
        check(r#"{"supportedVersions":["2026-07-28"]}"#, None);
        check(r#"{"protocolVersion":"2025-06-18","capabilities":{}}"#, None);
    }
}
