//! `server/discover`: supported versions and capabilities of a modern server.

use serde::{Deserialize, Serialize};

use crate::initialize::Implementation;
use crate::meta::Meta;
use crate::serde_lenient::{or_absent, or_default};
use crate::server_capabilities::ServerCapabilities;

/// Parameters of `server/discover`: only `_meta`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct DiscoverParams {}

/// Result of `server/discover`. Reading it fails if the server is not modern: versions and capabilities
/// distinguish it from a server that accepts any method.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DiscoverResult {
    /// Supported versions as written; may include legacy ones.
    pub supported_versions: Vec<String>,
    /// Server capabilities.
    pub capabilities: ServerCapabilities,
    /// Instructions for a model.
    #[serde(default, deserialize_with = "or_absent")]
    pub instructions: Option<String>,
    // Drafts had it in the body, the release has it in `_meta`. Servers use both.
    #[serde(default, deserialize_with = "or_absent")]
    server_info: Option<Implementation>,
    #[serde(default, rename = "_meta", deserialize_with = "or_default")]
    meta: Meta,
}

impl DiscoverResult {
    /// Name and version of the server. For display only.
    pub fn server_info(&self) -> Option<&Implementation> {
        self.meta.server.as_ref().or(self.server_info.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::RequestResult as _;
    use crate::revision::{Era, Revision};

    #[track_caller]
    fn check(json: &str, expected: Option<(Option<Revision>, Option<&str>)>) {
        let read = DiscoverResult::decode(json.as_bytes()).ok();
        let actual = read.as_ref().map(|result| {
            (
                Revision::newest_of(&result.supported_versions, Era::Modern),
                result.server_info().map(|info| info.name.as_str()),
            )
        });
        assert_eq!(actual, expected, "{json}");
    }

    const LATEST: Option<Revision> = Some(Revision::LATEST);

    /// Protocol facts §4.1 and §23.
    #[test]
    fn server_info_is_read_from_body_or_meta() {
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
    fn other_results_are_not_a_discovery() {
        check("{}", None);
        check(r#"{"supportedVersions":"2026-07-28","capabilities":{}}"#, None);
        check(r#"{"supportedVersions":["2026-07-28"]}"#, None);
        check(r#"{"protocolVersion":"2025-06-18","capabilities":{}}"#, None);
    }
}
