//! Request parameters, parsed once, and the client info that they carry: revision and capabilities.
//!
//! **Invariant:** members that belong to a server (arguments, input responses, foreign `_meta`) stay byte for byte as
//! the client wrote them.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use toolrack_client::ForwardedFor;
use toolrack_mcp::{
    ClientCapabilities, Era, ErrorCode, InputResponse, InputResponses, LogLevel, MetaKey, Method,
    ProgressToken, Revision,
};
use toolrack_transport::{JsonRpcError, RawJson, RequestId};

use crate::encode::{internal_error, invalid_params};

/// `_meta` key by which a gateway tells another gateway which of its clients sent a request. Servers never get it.
pub(crate) const CLIENT_META_KEY: &str = "toolrack/client";

/// Extension that the gateway does not forward: a task lives at one server, and the gateway keeps no route back to it.
const TASKS_EXTENSION: &str = "io.modelcontextprotocol/tasks";

/// Every member that the parameters of a request can have.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Params<'a> {
    #[serde(borrow, rename = "_meta")]
    meta: BTreeMap<String, &'a RawValue>,
    pub(crate) name: Option<String>,
    pub(crate) uri: Option<String>,
    pub(crate) cursor: Option<String>,
    #[serde(borrow)]
    pub(crate) arguments: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) input_responses: Option<BTreeMap<String, &'a RawValue>>,
    pub(crate) request_state: Option<String>,
    #[serde(borrow)]
    pub(crate) level: Option<&'a RawValue>,
    #[serde(rename = "ref")]
    pub(crate) reference: Option<Reference>,
    pub(crate) argument: Option<Argument>,
    pub(crate) context: Option<CompletionContext>,
    #[serde(borrow)]
    pub(crate) notifications: Option<&'a RawValue>,
    pub(crate) request_id: Option<RequestId>,
    pub(crate) protocol_version: Option<String>,
    #[serde(borrow)]
    pub(crate) capabilities: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) client_info: Option<&'a RawValue>,
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

impl<'a> Params<'a> {
    pub(crate) fn parse(raw: Option<&'a [u8]>) -> Result<Self, JsonRpcError> {
        let Some(raw) = raw else { return Ok(Self::default()) };
        // serde would accept an array for the struct, which the protocol does not.
        if !raw.trim_ascii_start().starts_with(b"{") {
            return Err(invalid_params("Invalid params: not an object"));
        }
        serde_json::from_slice(raw)
            .map_err(|error| invalid_params(format!("Invalid params: {error}")))
    }

    pub(crate) fn meta(&self, key: &str) -> Option<&'a RawValue> {
        self.meta.get(key).copied()
    }

    /// Revision in the `_meta` of a modern request.
    pub(crate) fn meta_version(&self) -> Result<Option<String>, JsonRpcError> {
        self.meta_as(MetaKey::PROTOCOL_VERSION)
    }

    /// Name of the client behind another gateway that sent this request.
    pub(crate) fn forwarded_client(&self) -> Result<Option<String>, JsonRpcError> {
        self.meta_as(CLIENT_META_KEY)
    }

    pub(crate) fn progress_token(&self) -> Result<Option<ProgressToken>, JsonRpcError> {
        self.meta_as(MetaKey::PROGRESS_TOKEN)
    }

    pub(crate) fn log_level(&self) -> Result<Option<LogLevel>, JsonRpcError> {
        self.meta_as(MetaKey::LOG_LEVEL)
    }

    /// Members of `_meta` that the gateway does not interpret, such as a trace context. They go to the server.
    pub(crate) fn foreign_meta(&self) -> Vec<(&str, &'a RawValue)> {
        const OWN: [&str; 6] = [
            CLIENT_META_KEY,
            MetaKey::PROTOCOL_VERSION,
            MetaKey::CLIENT_CAPABILITIES,
            MetaKey::CLIENT_INFO,
            MetaKey::LOG_LEVEL,
            MetaKey::PROGRESS_TOKEN,
        ];
        let foreign = self.meta.iter().filter(|(key, _)| !OWN.contains(&key.as_str()));
        foreign.map(|(key, value)| (key.as_str(), *value)).collect()
    }

    /// `inputResponses`, each byte for byte as the client wrote it.
    pub(crate) fn to_input_responses(&self) -> Option<InputResponses> {
        let responses = self.input_responses.as_ref()?.iter();
        Some(
            responses
                .map(|(key, raw)| (key.clone(), InputResponse::Raw((*raw).to_owned())))
                .collect(),
        )
    }

    pub(crate) fn required_name(&self) -> Result<&str, JsonRpcError> {
        self.name.as_deref().ok_or_else(|| invalid_params("`name` is missing"))
    }

    pub(crate) fn required_uri(&self) -> Result<&str, JsonRpcError> {
        self.uri.as_deref().ok_or_else(|| invalid_params("`uri` is missing"))
    }

    fn meta_as<T: Deserialize<'a>>(&self, key: &str) -> Result<Option<T>, JsonRpcError> {
        let Some(raw) = self.meta(key) else { return Ok(None) };
        let parsed = serde_json::from_str(raw.get());
        parsed
            .map(Some)
            .map_err(|error| invalid_params(format!("invalid `{key}` in `_meta`: {error}")))
    }
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
    pub(crate) fn from_initialize(params: &Params<'_>) -> Result<Self, JsonRpcError> {
        let Some(requested) = &params.protocol_version else {
            return Err(invalid_params("`protocolVersion` is missing"));
        };
        let known = Revision::parse(requested).filter(|revision| revision.era() == Era::Legacy);
        let revision = known.unwrap_or(Revision::LATEST_LEGACY);
        Self::new(revision, params.capabilities, params.client_info)
    }

    /// Client info in the `_meta` of a modern request.
    ///
    /// Spec 2026-07-28, basic §Request Metadata: a request without version and capabilities is invalid.
    pub(crate) fn from_meta(params: &Params<'_>) -> Result<Self, JsonRpcError> {
        let missing = |key: &str| invalid_params(format!("`_meta` lacks `{key}`"));
        let version = params.meta_version()?.ok_or_else(|| missing(MetaKey::PROTOCOL_VERSION))?;
        let known = Revision::parse(&version).filter(|revision| revision.era() == Era::Modern);
        let Some(revision) = known else { return Err(unsupported_version(&version)) };
        let capabilities = params.meta(MetaKey::CLIENT_CAPABILITIES);
        let capabilities = capabilities.ok_or_else(|| missing(MetaKey::CLIENT_CAPABILITIES))?;
        if !capabilities.get().starts_with('{') {
            let key = MetaKey::CLIENT_CAPABILITIES;
            return Err(invalid_params(format!("invalid `{key}` in `_meta`: not an object")));
        }
        Self::new(revision, Some(capabilities), params.meta(MetaKey::CLIENT_INFO))
    }

    fn new(
        revision: Revision,
        capabilities: Option<&RawValue>,
        implementation: Option<&RawValue>,
    ) -> Result<Self, JsonRpcError> {
        let parsed = capabilities.map_or(Ok(ClientCapabilities::default()), |raw| {
            serde_json::from_str::<ClientCapabilities>(raw.get())
        });
        let mut capabilities =
            parsed.map_err(|error| invalid_params(format!("invalid `capabilities`: {error}")))?;
        capabilities.extensions.remove(TASKS_EXTENSION);
        let implementation = implementation.map(ToOwned::to_owned);
        Ok(Self { revision, capabilities, implementation })
    }

    pub(crate) fn era(&self) -> Era {
        self.revision.era()
    }

    /// Whether the client has declared the capability that this server request needs.
    pub(crate) fn supports(&self, method: &str, params: Option<&RawJson>) -> bool {
        let capabilities = &self.capabilities;
        match Method::parse(method) {
            Some(Method::ListRoots) => capabilities.roots.is_some(),
            Some(Method::CreateMessage) => capabilities.sampling.is_some(),
            Some(Method::Elicit) if self.revision.has_elicitation() => {
                let elicitation = capabilities.elicitation;
                elicitation
                    .is_some_and(|modes| if is_url_mode(params) { modes.url } else { modes.form })
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
        params: &Params<'_>,
        client_name: Option<&str>,
    ) -> Result<ForwardedFor, JsonRpcError> {
        let to_error = |error: serde_json::Error| internal_error(&error.to_string());
        let capabilities =
            to_raw_value(&self.capabilities.wire(Revision::LATEST)).map_err(to_error)?;
        let client_name = client_name.map(to_raw_value).transpose().map_err(to_error)?;
        let mut meta = params.foreign_meta();
        meta.extend(client_name.as_deref().map(|name| (CLIENT_META_KEY, name)));
        ForwardedFor::new(&capabilities, self.implementation.as_deref(), &meta).map_err(to_error)
    }
}

fn is_url_mode(params: Option<&RawJson>) -> bool {
    #[derive(Deserialize)]
    struct Mode {
        mode: Option<String>,
    }
    let mode = params.and_then(|raw| raw.decode::<Mode>().ok()).and_then(|params| params.mode);
    mode.as_deref() == Some("url")
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
    use super::*;

    #[test]
    fn members_are_parsed_and_foreign_meta_is_kept() {
        let raw = br#"{"_meta":{"progressToken":"t","traceparent":"00-1","toolrack/client":"c","io.modelcontextprotocol/logLevel":"loud"},
            "name":"n","arguments":{ "a" : 1.0 },"inputResponses":{"k":{"action": "accept"}},"other":[]}"#;
        let params = Params::parse(Some(raw)).unwrap();
        assert_eq!(params.required_name(), Ok("n"));
        assert_eq!(params.arguments.unwrap().get(), r#"{ "a" : 1.0 }"#);
        assert_eq!(params.progress_token(), Ok(Some(ProgressToken::from("t"))));
        assert_eq!(params.log_level().unwrap_err().code, -32602);
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

    #[track_caller]
    fn check_revision(version: &str, expected: &str) {
        let text = format!(r#"{{"protocolVersion":"{version}","capabilities":{{}}}}"#);
        let params = Params::parse(Some(text.as_bytes())).unwrap();
        assert_eq!(ClientInfo::from_initialize(&params).unwrap().revision.as_str(), expected);
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
        let client = ClientInfo::from_initialize(&params).unwrap();
        let url_mode = RawJson::new(r#"{"mode":"url"}"#);
        assert!(client.supports("elicitation/create", None) && client.supports("roots/list", None));
        assert!(!client.supports("elicitation/create", Some(&url_mode)));
        assert!(!client.supports("sampling/createMessage", None));
        assert!(!client.supports("tools/list", None));
    }
}
