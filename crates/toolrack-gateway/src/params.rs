//! Messages of a client, each parsed once: its requests with their parameters, and the client info that they carry
//! (revision and capabilities).
//!
//! **Invariant:** members that belong to a server (arguments, input responses, foreign `_meta`) stay byte for byte as
//! the client wrote them.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use toolrack_client::ForwardedFor;
use toolrack_mcp::{
    ClientCapabilities, Era, ErrorCode, InputResponse, InputResponses, MetaKey, Method, Revision,
};
use toolrack_transport::{JsonRpcError, Message, MessageError, RawJson, RequestId, split_batch};

use crate::encode::{Outcome, internal_error, invalid_params, invalid_request};

/// `_meta` key by which a gateway tells another gateway which of its clients sent a request. Servers never get it.
pub(crate) const CLIENT_META_KEY: &str = "toolrack/client";

/// `_meta` key by which a client asks for a result as the server wrote it, with hidden text. Servers never get it; another
/// gateway does.
pub(crate) const RAW_META_KEY: &str = "toolrack/raw";

/// Longest name of a tool or prompt that a client may ask for.
const MAX_NAME_BYTES: usize = 4 << 10;
/// Longest URI of a resource that a client may ask for.
const MAX_URI_BYTES: usize = 64 << 10;

/// Extension that the gateway does not forward: a task lives at one server, and the gateway keeps no route back to it.
const TASKS_EXTENSION: &str = "io.modelcontextprotocol/tasks";

/// The content of a line on stdio or of an HTTP body: one message, or a batch (spec 2025-03-26).
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) messages: Vec<ClientMessage>,
    pub(crate) is_batch: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Contents {
    /// At least one request, so there is a response.
    Requests,
    /// Only notifications and responses.
    NoRequests,
    /// Nothing valid in this revision.
    Malformed,
}

#[derive(Debug)]
pub(crate) enum ClientMessage {
    Request(ClientRequest),
    Notification {
        method: String,
        params: Params,
    },
    /// The id is missing if the client could not parse our request.
    Response {
        id: Option<RequestId>,
        outcome: Outcome,
    },
    /// Error for a message that is none of these, under its id if that is readable.
    Malformed {
        id: Option<RequestId>,
        error: JsonRpcError,
    },
}

#[derive(Debug)]
pub(crate) struct ClientRequest {
    pub(crate) id: RequestId,
    pub(crate) method: String,
    pub(crate) params: Result<Params, JsonRpcError>,
}

impl Incoming {
    pub(crate) fn parse(bytes: &Bytes) -> Self {
        let batch = split_batch(bytes);
        let is_batch = batch.is_some();
        let texts = batch.unwrap_or_else(|| vec![bytes.as_ref()]).into_iter();
        let messages = texts.map(|text| ClientMessage::parse(bytes, text)).collect();
        Self { messages, is_batch }
    }

    /// Whether the revision has messages of this form. An empty batch is no message in any.
    pub(crate) fn is_supported(&self, revision: Option<Revision>) -> bool {
        let has_batches = revision.is_some_and(Revision::has_batches);
        !self.is_batch || (has_batches && !self.messages.is_empty())
    }

    /// Classifies the messages. Malformed ones beside a request are reported with its response.
    pub(crate) fn contents(&self, revision: Option<Revision>) -> Contents {
        let is_request = |message: &ClientMessage| matches!(message, ClientMessage::Request(_));
        let is_malformed =
            |message: &ClientMessage| matches!(message, ClientMessage::Malformed { .. });
        if !self.is_supported(revision) {
            Contents::Malformed
        } else if self.messages.iter().any(is_request) {
            Contents::Requests
        } else if self.messages.iter().any(is_malformed) {
            Contents::Malformed
        } else {
            Contents::NoRequests
        }
    }
}

impl ClientMessage {
    /// Parses `text`, a part of `bytes`.
    fn parse(bytes: &Bytes, text: &[u8]) -> Self {
        match Message::parse(text) {
            Ok(Message::Request { id, method, params }) => {
                ClientMessage::Request(ClientRequest { id, method, params: Params::parse(params) })
            }
            Ok(Message::Notification { method, params }) => {
                let params = Params::parse(params).unwrap_or_default();
                ClientMessage::Notification { method, params }
            }
            Ok(Message::Success { id, result }) => {
                let outcome = Ok(RawJson::new(bytes.slice_ref(result)));
                ClientMessage::Response { id: Some(id), outcome }
            }
            Ok(Message::Failure { id, error }) => {
                ClientMessage::Response { id, outcome: Err(error) }
            }
            Err(MessageError::Shape { id: id @ Some(_) }) => {
                let error = invalid_request("not a request, notification or response");
                ClientMessage::Malformed { id, error }
            }
            Err(_) => {
                let is_json = serde_json::from_slice::<serde::de::IgnoredAny>(text).is_ok();
                let error = if is_json {
                    invalid_request("not a JSON-RPC message")
                } else {
                    JsonRpcError::new(ErrorCode::PARSE_ERROR.0, "Parse error")
                };
                ClientMessage::Malformed { id: None, error }
            }
        }
    }
}

/// Every member that the parameters of a request can have.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Params {
    #[serde(rename = "_meta")]
    meta: BTreeMap<String, Box<RawValue>>,
    pub(crate) name: Option<String>,
    pub(crate) uri: Option<String>,
    pub(crate) cursor: Option<String>,
    pub(crate) arguments: Option<Box<RawValue>>,
    pub(crate) input_responses: Option<BTreeMap<String, Box<RawValue>>>,
    pub(crate) request_state: Option<String>,
    pub(crate) level: Option<Box<RawValue>>,
    #[serde(rename = "ref")]
    pub(crate) reference: Option<Reference>,
    pub(crate) argument: Option<Argument>,
    pub(crate) context: Option<CompletionContext>,
    pub(crate) notifications: Option<Box<RawValue>>,
    pub(crate) request_id: Option<RequestId>,
    pub(crate) protocol_version: Option<String>,
    pub(crate) capabilities: Option<Box<RawValue>>,
    pub(crate) client_info: Option<Box<RawValue>>,
}

/// `ref` of a completion request.
#[derive(Debug, Deserialize)]
#[serde(tag = "type")]
pub(crate) enum Reference {
    #[serde(rename = "ref/prompt")]
    Prompt { name: String },
    #[serde(rename = "ref/resource")]
    Resource { uri: String },
}

/// `argument` of a completion request: the text typed so far.
#[derive(Debug, Deserialize)]
pub(crate) struct Argument {
    pub(crate) name: String,
    pub(crate) value: String,
}

/// `context` of a completion request: arguments chosen before.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct CompletionContext {
    pub(crate) arguments: BTreeMap<String, String>,
}

impl Params {
    pub(crate) fn parse(raw: Option<&[u8]>) -> Result<Self, JsonRpcError> {
        let Some(raw) = raw else { return Ok(Self::default()) };
        // serde would accept an array for the struct, which the protocol does not.
        if !raw.trim_ascii_start().starts_with(b"{") {
            return Err(invalid_params("Invalid params: not an object"));
        }
        serde_json::from_slice(raw)
            .map_err(|error| invalid_params(format!("Invalid params: {error}")))
    }

    /// Revision in the `_meta` of a modern request.
    pub(crate) fn meta_version(&self) -> Result<Option<String>, JsonRpcError> {
        self.meta(MetaKey::PROTOCOL_VERSION)
    }

    /// Revision of a request that has to be modern.
    pub(crate) fn required_meta_version(&self) -> Result<String, JsonRpcError> {
        self.meta_version()?.ok_or_else(|| missing_meta(MetaKey::PROTOCOL_VERSION))
    }

    /// Members of `_meta` that the gateway does not interpret, such as a trace context. They go to the server.
    fn foreign_meta(&self) -> Vec<(&str, &RawValue)> {
        const OWN: [&str; 7] = [
            CLIENT_META_KEY,
            RAW_META_KEY,
            MetaKey::PROTOCOL_VERSION,
            MetaKey::CLIENT_CAPABILITIES,
            MetaKey::CLIENT_INFO,
            MetaKey::LOG_LEVEL,
            MetaKey::PROGRESS_TOKEN,
        ];
        let foreign = self.meta.iter().filter(|(key, _)| !OWN.contains(&key.as_str()));
        foreign.map(|(key, value)| (key.as_str(), &**value)).collect()
    }

    /// `inputResponses`, each byte for byte as the client wrote it.
    pub(crate) fn to_input_responses(&self) -> Option<InputResponses> {
        let responses = self.input_responses.as_ref()?.iter();
        let responses = responses.map(|(key, raw)| (key.clone(), InputResponse::Raw(raw.clone())));
        Some(InputResponses(responses.collect()))
    }

    pub(crate) fn required_name(&self) -> Result<&str, JsonRpcError> {
        let name = self.name.as_deref().ok_or_else(|| invalid_params("`name` is missing"))?;
        check_name(name)
    }

    pub(crate) fn required_uri(&self) -> Result<&str, JsonRpcError> {
        let uri = self.uri.as_deref().ok_or_else(|| invalid_params("`uri` is missing"))?;
        check_uri(uri)
    }

    /// A member of `_meta` that the gateway interprets.
    pub(crate) fn meta<'a, T: Deserialize<'a>>(
        &'a self,
        key: &str,
    ) -> Result<Option<T>, JsonRpcError> {
        let parsed = self.meta.get(key).map(|raw| serde_json::from_str(raw.get())).transpose();
        parsed.map_err(|error| invalid_params(format!("invalid `{key}` in `_meta`: {error}")))
    }
}

/// A name of a tool or prompt, unless it is too long. Names are compared with those of all servers.
pub(crate) fn check_name(name: &str) -> Result<&str, JsonRpcError> {
    check_length(name, "`name`", MAX_NAME_BYTES)
}

/// A URI, unless it is too long. URIs are compared with the templates of all servers.
pub(crate) fn check_uri(uri: &str) -> Result<&str, JsonRpcError> {
    check_length(uri, "`uri`", MAX_URI_BYTES)
}

fn check_length<'a>(
    text: &'a str,
    member: &str,
    max_bytes: usize,
) -> Result<&'a str, JsonRpcError> {
    if text.len() > max_bytes {
        return Err(invalid_params(format!("{member} is longer than {max_bytes} bytes")));
    }
    Ok(text)
}

fn missing_meta(key: &str) -> JsonRpcError {
    invalid_params(format!("`_meta` lacks `{key}`"))
}

/// The client behind a request: its revision, its capabilities and its `clientInfo`.
#[derive(Debug, Clone)]
pub(crate) struct ClientInfo {
    pub(crate) revision: Revision,
    pub(crate) capabilities: ClientCapabilities,
    implementation: Option<Box<RawValue>>,
}

impl ClientInfo {
    /// Client info of a legacy `initialize` request. A known revision is accepted; otherwise the latest legacy one is
    /// offered.
    pub(crate) fn from_initialize(params: Params) -> Result<Self, JsonRpcError> {
        let Some(requested) = &params.protocol_version else {
            return Err(invalid_params("`protocolVersion` is missing"));
        };
        let known = Revision::parse(requested).filter(|revision| revision.era() == Era::Legacy);
        let revision = known.unwrap_or(Revision::LATEST_LEGACY);
        Self::new(revision, params.capabilities.as_deref(), params.client_info)
    }

    /// Client info in the `_meta` of a modern request.
    ///
    /// Spec 2026-07-28, basic §Request Metadata: a request without version and capabilities is invalid.
    pub(crate) fn from_meta(params: &Params) -> Result<Self, JsonRpcError> {
        let version = params.required_meta_version()?;
        let known = Revision::parse(&version).filter(|revision| revision.era() == Era::Modern);
        let Some(revision) = known else { return Err(unsupported_version(&version)) };
        let key = MetaKey::CLIENT_CAPABILITIES;
        let capabilities = params.meta.get(key).ok_or_else(|| missing_meta(key))?;
        if !capabilities.get().starts_with('{') {
            return Err(invalid_params(format!("invalid `{key}` in `_meta`: not an object")));
        }
        let implementation = params.meta.get(MetaKey::CLIENT_INFO).cloned();
        Self::new(revision, Some(capabilities), implementation)
    }

    fn new(
        revision: Revision,
        capabilities: Option<&RawValue>,
        implementation: Option<Box<RawValue>>,
    ) -> Result<Self, JsonRpcError> {
        let parsed = capabilities.map_or(Ok(ClientCapabilities::default()), |raw| {
            serde_json::from_str::<ClientCapabilities>(raw.get())
        });
        let mut capabilities =
            parsed.map_err(|error| invalid_params(format!("invalid `capabilities`: {error}")))?;
        capabilities.extensions.remove(TASKS_EXTENSION);
        Ok(Self { revision, capabilities, implementation })
    }

    /// Whether the client has declared the capability that this server request needs.
    pub(crate) fn supports(&self, method: &str, params: Option<&RawJson>) -> bool {
        let capabilities = &self.capabilities;
        match Method::parse(method) {
            Some(Method::ListRoots) => capabilities.roots.is_some(),
            Some(Method::CreateMessage) => capabilities.sampling.is_some(),
            Some(Method::Elicit) if self.revision.has_elicitation() => {
                #[derive(Deserialize)]
                struct Mode {
                    mode: Option<String>,
                }
                let params = params.and_then(|raw| raw.decode::<Mode>().ok());
                let is_url = params.and_then(|params| params.mode).as_deref() == Some("url");
                let elicitation = capabilities.elicitation;
                elicitation.is_some_and(|modes| if is_url { modes.url } else { modes.form })
            }
            _ => false,
        }
    }

    /// Whether the client supports any server request that belongs to a request of its own. Roots are not counted:
    /// servers ask for them outside of requests.
    pub(crate) fn accepts_server_requests(&self) -> bool {
        self.capabilities.sampling.is_some() || self.capabilities.elicitation.is_some()
    }

    /// The `_meta` with which the client's request is forwarded. `client_name` is set only towards another gateway.
    pub(crate) fn forwarded_for(
        &self,
        params: &Params,
        client_name: Option<&str>,
    ) -> Result<ForwardedFor, JsonRpcError> {
        let to_error = |error: serde_json::Error| internal_error(&error.to_string());
        let capabilities =
            to_raw_value(&self.capabilities.wire(Revision::LATEST)).map_err(to_error)?;
        let client_name = client_name.map(to_raw_value).transpose().map_err(to_error)?;
        let mut meta = params.foreign_meta();
        if let Some(name) = client_name.as_deref() {
            meta.push((CLIENT_META_KEY, name));
            meta.extend(params.meta.get(RAW_META_KEY).map(|raw| (RAW_META_KEY, &**raw)));
        }
        ForwardedFor::new(&capabilities, self.implementation.as_deref(), &meta).map_err(to_error)
    }
}

/// Spec 2026-07-28, versioning: the error for an unsupported revision lists the supported ones.
pub(crate) fn unsupported_version(requested: &str) -> JsonRpcError {
    let revisions = Revision::ALL.iter().rev();
    let supported: Vec<Value> = revisions.map(|revision| revision.as_str().into()).collect();
    let data = serde_json::json!({ "supported": supported, "requested": requested });
    let code = ErrorCode::UNSUPPORTED_VERSION.0;
    JsonRpcError { data: Some(data), ..JsonRpcError::new(code, "Unsupported protocol version") }
}

#[cfg(test)]
mod tests {
    use toolrack_mcp::{LogLevel, ProgressToken};

    use super::*;

    #[test]
    fn post_body_is_classified() {
        let check = |message: &'static str, expected| {
            let incoming = Incoming::parse(&Bytes::from_static(message.as_bytes()));
            assert_eq!(incoming.contents(Some(Revision::R2025_03_26)), expected, "{message}");
            let without_batches = if incoming.is_batch { Contents::Malformed } else { expected };
            let contents = incoming.contents(Some(Revision::R2025_11_25));
            assert_eq!(contents, without_batches, "{message}");
        };
        check(r#"{"id":1,"method":"m"}"#, Contents::Requests);
        check(r#"{"method":"m"}"#, Contents::NoRequests);
        check(r#"{"id":1,"result":{}}"#, Contents::NoRequests);
        check(r#"[{"method":"m"},{"id":1,"method":"m"}]"#, Contents::Requests);
        check(r#"[{"method":"m"}]"#, Contents::NoRequests);
        check("[]", Contents::Malformed);
        check("[7]", Contents::Malformed);
        check(r#"[7,{"method":"m"}]"#, Contents::Malformed);
        check(r#"[7,{"id":1,"method":"m"}]"#, Contents::Requests);
        check("{oops", Contents::Malformed);
    }

    #[test]
    fn malformed_message_has_an_error_code() {
        let check = |message: &'static str, expected: (Option<u64>, i64)| {
            let incoming = Incoming::parse(&Bytes::from_static(message.as_bytes()));
            let [ClientMessage::Malformed { id, error }] = &*incoming.messages else {
                panic!("{incoming:?}")
            };
            assert_eq!((id.clone(), error.code), (expected.0.map(RequestId::from), expected.1));
        };
        check("{oops", (None, -32700));
        check("[7]", (None, -32600));
        check(r#"{"id":7}"#, (Some(7), -32600));
    }

    #[test]
    fn members_are_parsed_and_foreign_meta_is_kept() {
        let raw = br#"{"_meta":{"progressToken":"t","traceparent":"00-1","toolrack/client":"c","io.modelcontextprotocol/logLevel":"loud"},
            "name":"n","arguments":{ "a" : 1.0 },"inputResponses":{"k":{"action": "accept"}},"other":[]}"#;
        let params = Params::parse(Some(raw)).unwrap();
        assert_eq!(params.required_name(), Ok("n"));
        assert_eq!(params.arguments.as_ref().unwrap().get(), r#"{ "a" : 1.0 }"#);
        let token = params.meta(MetaKey::PROGRESS_TOKEN);
        assert_eq!(token, Ok(Some(ProgressToken::Text("t".to_owned()))));
        let level = params.meta::<LogLevel>(MetaKey::LOG_LEVEL);
        assert_eq!(level.unwrap_err().code, -32602);
        let foreign = params.foreign_meta();
        let (key, value) = foreign[0];
        assert_eq!((foreign.len(), key, value.get()), (1, "traceparent", "\"00-1\""));
        let responses = serde_json::to_string(&params.to_input_responses().unwrap()).unwrap();
        assert_eq!(responses, r#"{"k":{"action": "accept"}}"#);
    }

    #[test]
    fn malformed_params_are_invalid_params() {
        for raw in ["[]", "7", r#"{"name":7}"#, r#"{"_meta":[]}"#] {
            assert_eq!(Params::parse(Some(raw.as_bytes())).unwrap_err().code, -32602, "{raw}");
        }
        assert!(Params::parse(None).unwrap().name.is_none());
    }

    #[test]
    fn long_names_and_uris_are_refused() {
        let check = |name: usize, uri: usize, expected: [bool; 2]| {
            let (name, uri) = (Some("n".repeat(name)), Some("u".repeat(uri)));
            let params = Params { name, uri, ..Params::default() };
            let (name, uri) = (params.required_name(), params.required_uri());
            assert_eq!([name.is_ok(), uri.is_ok()], expected);
            for error in [name.err(), uri.err()].into_iter().flatten() {
                assert!(error.code == -32602 && error.message.len() < 100, "{error:?}");
            }
        };
        check(4 << 10, 64 << 10, [true, true]);
        check((4 << 10) + 1, (64 << 10) + 1, [false, false]);
        check(1 << 20, 1 << 20, [false, false]);
    }

    #[track_caller]
    fn check_revision(version: &str, expected: &str) {
        let text = format!(r#"{{"protocolVersion":"{version}","capabilities":{{}}}}"#);
        let params = Params::parse(Some(text.as_bytes())).unwrap();
        assert_eq!(ClientInfo::from_initialize(params).unwrap().revision.as_str(), expected);
    }

    #[test]
    fn legacy_client_gets_the_requested_revision_if_known() {
        check_revision("2024-11-05", "2024-11-05");
        check_revision("2025-03-26", "2025-03-26");
        check_revision("2025-06-18", "2025-06-18");
        check_revision("2025-11-25", "2025-11-25");
        check_revision("2026-07-28", "2025-11-25");
        check_revision("1999-01-01", "2025-11-25");
    }

    #[track_caller]
    fn check_rejected(meta: &str, code: i64) {
        let text = format!(r#"{{"_meta":{meta}}}"#);
        let params = Params::parse(Some(text.as_bytes())).unwrap();
        assert_eq!(ClientInfo::from_meta(&params).map(|_| ()).unwrap_err().code, code, "{meta}");
    }

    /// Protocol facts §4.1.
    #[test]
    fn modern_request_needs_version_and_capabilities() {
        check_rejected("{}", -32602);
        check_rejected(r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}"#, -32602);
        check_rejected(r#"{"io.modelcontextprotocol/protocolVersion":7}"#, -32602);
        check_rejected(
            r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":7}"#,
            -32602,
        );
        check_rejected(r#"{"io.modelcontextprotocol/protocolVersion":"2025-11-25"}"#, -32022);
    }

    #[test]
    fn client_supports_only_declared_capabilities() {
        let text =
            r#"{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{},"roots":{}}}"#;
        let params = Params::parse(Some(text.as_bytes())).unwrap();
        let client = ClientInfo::from_initialize(params).unwrap();
        let url_mode = RawJson::new(r#"{"mode":"url"}"#);
        assert!(client.supports("elicitation/create", None) && client.supports("roots/list", None));
        assert!(!client.supports("elicitation/create", Some(&url_mode)));
        assert!(!client.supports("sampling/createMessage", None));
        assert!(!client.supports("tools/list", None));
    }
}
