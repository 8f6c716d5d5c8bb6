//! The keys of `_meta` that the protocol itself uses, and what we write and read there.

use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::client_capabilities::ClientCapabilities;
use crate::initialize::Implementation;
use crate::logging::LogLevel;
use crate::notification::Token;
use crate::revision::{Era, Revision};
use crate::serde_lenient::{decode, or_absent, or_default};

/// The keys of `_meta` that the protocol itself uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetaKey;

impl MetaKey {
    /// The revision a modern request is written in.
    pub const PROTOCOL_VERSION: &'static str = "io.modelcontextprotocol/protocolVersion";
    /// What the sender of a modern request can do.
    pub const CLIENT_CAPABILITIES: &'static str = "io.modelcontextprotocol/clientCapabilities";
    /// Who sends a modern request.
    pub const CLIENT_INFO: &'static str = "io.modelcontextprotocol/clientInfo";
    /// From which level on log messages are wanted while a modern request runs.
    pub const LOG_LEVEL: &'static str = "io.modelcontextprotocol/logLevel";
    /// Who answers, in modern results.
    pub const SERVER_INFO: &'static str = "io.modelcontextprotocol/serverInfo";
    /// The subscription a modern notification belongs to.
    pub const SUBSCRIPTION_ID: &'static str = "io.modelcontextprotocol/subscriptionId";
    /// The task that a message of 2025-11-25 belongs to.
    pub const RELATED_TASK: &'static str = "io.modelcontextprotocol/related-task";
    /// The token under which progress is reported.
    pub const PROGRESS_TOKEN: &'static str = "progressToken";
}

/// The `_meta` of a request. A legacy one holds nothing but the progress token.
#[derive(Debug, Clone, Copy)]
pub struct RequestMeta<'a> {
    /// The revision that is spoken. It decides what is written at all.
    pub revision: Revision,
    /// What we can do for the server while it works on this request.
    pub capabilities: &'a ClientCapabilities,
    /// Who we are, unless that is withheld.
    pub client: Option<&'a Implementation>,
    /// From which level on we want log messages; `None` is none.
    pub log_level: Option<LogLevel>,
    /// The token under which progress is wanted; `None` is none.
    pub progress_token: Option<&'a Token>,
}

impl RequestMeta<'_> {
    /// Whether there is nothing to write, so that `_meta` can be left out.
    pub fn is_empty(&self) -> bool {
        self.revision.era() == Era::Legacy && self.progress_token.is_none()
    }
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

/// The subscription that a notification's parameters, or a result, name in their `_meta`.
pub fn subscription_id(payload: &[u8]) -> Option<Token> {
    #[derive(Deserialize)]
    struct Payload {
        #[serde(default, rename = "_meta", deserialize_with = "or_default")]
        meta: Meta,
    }
    #[derive(Default, Deserialize)]
    struct Meta {
        #[serde(
            default,
            rename = "io.modelcontextprotocol/subscriptionId",
            deserialize_with = "or_absent"
        )]
        id: Option<Token>,
    }
    decode(payload).ok().and_then(|it: Payload| it.meta.id)
}

/// What the parameters of a request say in their `_meta` of the task that they belong to, as written.
pub fn related_task(params: &[u8]) -> Option<Box<RawValue>> {
    #[derive(Deserialize)]
    struct Params {
        #[serde(default, rename = "_meta", deserialize_with = "or_default")]
        meta: Meta,
    }
    #[derive(Default, Deserialize)]
    struct Meta {
        #[serde(rename = "io.modelcontextprotocol/related-task")]
        task: Option<Box<RawValue>>,
    }
    decode(params).ok().and_then(|it: Params| it.meta.task)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(revision: Revision, token: Option<&Token>, expected: &str) {
        let client = Implementation { name: "c".to_owned(), ..Implementation::default() };
        let meta = RequestMeta {
            revision,
            capabilities: &ClientCapabilities::default(),
            client: Some(&client),
            log_level: Some(LogLevel::Info),
            progress_token: token,
        };
        assert_eq!(serde_json::to_string(&meta).unwrap(), expected);
        assert_eq!(meta.is_empty(), expected == "{}");
    }

    #[test]
    fn a_modern_request_says_who_asks() {
        let token = Token::from(7);
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
    fn the_subscription_is_found_in_meta() {
        let of = |id: &str| format!(r#"{{"_meta":{{"{}":{id}}}}}"#, MetaKey::SUBSCRIPTION_ID);
        assert_eq!(subscription_id(of("5").as_bytes()), Some(Token::from(5)));
        assert_eq!(subscription_id(of("\"5\"").as_bytes()), Some(Token::from("5")));
        assert_eq!(subscription_id(of("null").as_bytes()), None);
        assert_eq!(subscription_id(br#"{"_meta":7}"#), None);
        assert_eq!(subscription_id(b""), None);
    }

    #[test]
    fn the_task_is_found_in_meta() {
        let of =
            |task: &str| format!(r#"{{"_meta":{{"{}":{task}}},"x":1}}"#, MetaKey::RELATED_TASK);
        let found = |params: &str| related_task(params.as_bytes()).map(|it| it.get().to_owned());
        let task = r#"{ "taskId" : "a" }"#;
        assert_eq!(found(&of(task)).as_deref(), Some(task));
        assert_eq!(found(&of("null")), None);
        assert_eq!(found(r#"{"_meta":{}}"#), None);
        assert_eq!(found(""), None);
    }
}
