//! `_meta`: the keys that the protocol defines, and the `_meta` of requests.

use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::client_capabilities::ClientCapabilities;
use crate::initialize::Implementation;
use crate::logging::LogLevel;
use crate::notification::ProgressToken;
use crate::revision::{Era, Revision};
use crate::serde_lenient::{decode, or_absent, or_default};

/// Keys of `_meta` that the protocol defines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetaKey;

impl MetaKey {
    /// Revision of a modern request.
    pub const PROTOCOL_VERSION: &'static str = "io.modelcontextprotocol/protocolVersion";
    /// Client capabilities of a modern request.
    pub const CLIENT_CAPABILITIES: &'static str = "io.modelcontextprotocol/clientCapabilities";
    /// Client info of a modern request.
    pub const CLIENT_INFO: &'static str = "io.modelcontextprotocol/clientInfo";
    /// Minimum log level while a modern request runs.
    pub const LOG_LEVEL: &'static str = "io.modelcontextprotocol/logLevel";
    /// Server info of a modern result.
    pub const SERVER_INFO: &'static str = "io.modelcontextprotocol/serverInfo";
    /// Subscription id of a modern notification.
    pub const SUBSCRIPTION_ID: &'static str = "io.modelcontextprotocol/subscriptionId";
    /// Related task of a 2025-11-25 message.
    pub const RELATED_TASK: &'static str = "io.modelcontextprotocol/related-task";
    /// Progress token.
    pub const PROGRESS_TOKEN: &'static str = "progressToken";
}

/// `_meta` of a request. A legacy request has only the progress token.
#[derive(Debug, Clone, Copy)]
pub struct RequestMeta<'a> {
    /// Negotiated revision. It determines the members.
    pub revision: Revision,
    /// Client capabilities for this request.
    pub capabilities: &'a ClientCapabilities,
    /// Client info, unless withheld.
    pub client: Option<&'a Implementation>,
    /// Minimum log level; `None` for no messages.
    pub log_level: Option<LogLevel>,
    /// Progress token; `None` for no progress.
    pub progress_token: Option<&'a ProgressToken>,
}

impl Serialize for RequestMeta<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if self.revision.era() == Era::Modern {
            map.serialize_entry(MetaKey::PROTOCOL_VERSION, &self.revision)?;
            let capabilities = self.capabilities.wire(self.revision);
            map.serialize_entry(MetaKey::CLIENT_CAPABILITIES, &capabilities)?;
            if let Some(client) = self.client {
                map.serialize_entry(MetaKey::CLIENT_INFO, &client.wire(self.revision))?;
            }
            if let Some(level) = self.log_level {
                map.serialize_entry(MetaKey::LOG_LEVEL, &level)?;
            }
        }
        if let Some(token) = self.progress_token {
            map.serialize_entry(MetaKey::PROGRESS_TOKEN, token)?;
        }
        map.end()
    }
}

/// The members of `_meta` that the client reads, in a result or in parameters.
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct Meta {
    // An attribute takes only a literal, so these repeat the constants of `MetaKey`.
    #[serde(
        default,
        rename = "io.modelcontextprotocol/serverInfo",
        deserialize_with = "or_absent"
    )]
    pub(crate) server: Option<Implementation>,
    #[serde(rename = "io.modelcontextprotocol/subscriptionId")]
    #[serde(default, deserialize_with = "or_absent")]
    subscription: Option<ProgressToken>,
    #[serde(rename = "io.modelcontextprotocol/related-task")]
    task: Option<Box<RawValue>>,
}

fn meta_of(payload: &[u8]) -> Meta {
    #[derive(Deserialize)]
    struct Payload {
        #[serde(default, rename = "_meta", deserialize_with = "or_default")]
        meta: Meta,
    }
    decode(payload).map(|Payload { meta }| meta).unwrap_or_default()
}

/// The subscription id in `_meta` of notification parameters or a result.
pub fn subscription_id(payload: &[u8]) -> Option<ProgressToken> {
    meta_of(payload).subscription
}

/// The related task in `_meta` of request parameters, as written.
pub fn related_task(params: &[u8]) -> Option<Box<RawValue>> {
    meta_of(params).task
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(revision: Revision, token: Option<&ProgressToken>, expected: &str) {
        let client = Implementation { name: "c".to_owned(), ..Implementation::default() };
        let meta = RequestMeta {
            revision,
            capabilities: &ClientCapabilities::default(),
            client: Some(&client),
            log_level: Some(LogLevel::Info),
            progress_token: token,
        };
        assert_eq!(serde_json::to_string(&meta).unwrap(), expected);
    }

    #[test]
    fn modern_meta_has_client_info() {
        let token = ProgressToken::Integer(7);
        check(Revision::R2025_11_25, None, "{}");
        check(Revision::R2025_11_25, Some(&token), r#"{"progressToken":7}"#);
        check(
            Revision::R2026_07_28,
            Some(&token),
            concat!(
                r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28","#,
                r#""io.modelcontextprotocol/clientCapabilities":{},"#,
                r#""io.modelcontextprotocol/clientInfo":{"name":"c","version":""},"#,
                r#""io.modelcontextprotocol/logLevel":"info","progressToken":7}"#
            ),
        );
    }

    #[test]
    fn subscription_id_is_read_from_meta() {
        let of = |id: &str| format!(r#"{{"_meta":{{"{}":{id}}}}}"#, MetaKey::SUBSCRIPTION_ID);
        assert_eq!(subscription_id(of("5").as_bytes()), Some(ProgressToken::Integer(5)));
        assert_eq!(
            subscription_id(of("\"5\"").as_bytes()),
            Some(ProgressToken::Text("5".to_owned()))
        );
        assert_eq!(subscription_id(of("null").as_bytes()), None);
        assert_eq!(subscription_id(br#"{"_meta":7}"#), None);
        assert_eq!(subscription_id(b""), None);
    }

    #[test]
    fn related_task_is_read_from_meta() {
        let of =
            |task: &str| format!(r#"{{"_meta":{{"{}":{task}}},"x":1}}"#, MetaKey::RELATED_TASK);
        let found =
            |params: &str| related_task(params.as_bytes()).map(|task| task.get().to_owned());
        let task = r#"{ "taskId" : "a" }"#;
        assert_eq!(found(&of(task)).as_deref(), Some(task));
        assert_eq!(found(&of("null")), None);
        assert_eq!(found(r#"{"_meta":{}}"#), None);
        assert_eq!(found(""), None);
    }
}
