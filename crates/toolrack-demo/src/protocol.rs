//! JSON-RPC messages, errors and protocol revisions of the demo server.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// Protocol revision. The dates sort as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct Revision(&'static str);

impl Revision {
    pub(crate) const R2025_03_26: Self = Self("2025-03-26");
    pub(crate) const R2025_06_18: Self = Self("2025-06-18");
    pub(crate) const R2025_11_25: Self = Self("2025-11-25");
    pub(crate) const R2026_07_28: Self = Self("2026-07-28");

    /// Newest first, as in a discovery result.
    pub(crate) const ALL: [Self; 5] = [
        Self::R2026_07_28,
        Self::R2025_11_25,
        Self::R2025_06_18,
        Self::R2025_03_26,
        Self("2024-11-05"),
    ];

    /// Whether the revision has no handshake: each request names it in `_meta`.
    pub(crate) fn is_modern(self) -> bool {
        self >= Self::R2026_07_28
    }

    /// Revision for the response to `initialize`, which is always a legacy one.
    pub(crate) fn negotiate(requested: &str) -> Self {
        let mut legacy = Self::ALL.into_iter().filter(|revision| !revision.is_modern());
        legacy.find(|revision| revision.0 == requested).unwrap_or(Self::R2025_11_25)
    }
}

/// Any message of a client; its members decide the kind.
#[derive(Debug, Deserialize)]
pub(crate) struct Message<'a> {
    /// Raw, so that a response carries it back byte for byte.
    #[serde(borrow)]
    pub(crate) id: Option<&'a RawValue>,
    pub(crate) method: Option<String>,
    #[serde(borrow)]
    pub(crate) params: Option<&'a RawValue>,
}

/// Members of `params` that the server uses.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Params {
    #[serde(rename = "_meta")]
    pub(crate) meta: Meta,
    /// Name of the tool or prompt.
    pub(crate) name: String,
    pub(crate) arguments: Value,
    pub(crate) uri: String,
    pub(crate) protocol_version: String,
    pub(crate) request_id: Option<Box<RawValue>>,
}

impl Params {
    pub(crate) fn parse(raw: Option<&RawValue>) -> Result<Self, RpcError> {
        let parsed = raw.map_or_else(|| Ok(Self::default()), |raw| serde_json::from_str(raw.get()));
        parsed.map_err(|error| RpcError::invalid_params(format!("params: {error}")))
    }
}

/// Members of `params._meta` that the server uses.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Meta {
    #[serde(rename = "progressToken")]
    pub(crate) progress_token: Option<Value>,
    #[serde(rename = "io.modelcontextprotocol/protocolVersion")]
    pub(crate) protocol_version: Option<String>,
    #[serde(rename = "io.modelcontextprotocol/clientCapabilities")]
    client_capabilities: Option<Value>,
}

impl Meta {
    /// Spec 2026-07-28, per-request metadata: the revision and the capabilities are required on every request.
    pub(crate) fn check(&self) -> Result<(), RpcError> {
        let lacks = |key| RpcError::invalid_params(format!("`_meta` lacks `{key}`"));
        let Some(requested) = &self.protocol_version else {
            return Err(lacks("io.modelcontextprotocol/protocolVersion"));
        };
        if !self.client_capabilities.as_ref().is_some_and(Value::is_object) {
            return Err(lacks("io.modelcontextprotocol/clientCapabilities"));
        }
        if requested != Revision::R2026_07_28.0 {
            let data = json!({ "supported": Revision::ALL, "requested": requested });
            let error =
                RpcError::new(RpcError::UNSUPPORTED_VERSION, "unsupported protocol version");
            return Err(RpcError { data: Some(data), ..error });
        }
        Ok(())
    }
}

/// A JSON-RPC error.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct RpcError {
    pub(crate) code: i64,
    pub(crate) message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) data: Option<Value>,
}

impl RpcError {
    pub(crate) const PARSE_ERROR: i64 = -32700;
    pub(crate) const METHOD_NOT_FOUND: i64 = -32601;
    pub(crate) const INVALID_PARAMS: i64 = -32602;
    /// Legacy only; 2026-07-28 uses `INVALID_PARAMS` for a missing resource.
    pub(crate) const RESOURCE_NOT_FOUND: i64 = -32002;
    pub(crate) const UNSUPPORTED_VERSION: i64 = -32022;

    pub(crate) fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    pub(crate) fn invalid_params(message: impl Into<String>) -> Self {
        Self::new(Self::INVALID_PARAMS, message)
    }
}

/// The object without its members that are `null`: those that a revision does not have.
pub(crate) fn without_nulls(mut object: Value) -> Value {
    if let Some(members) = object.as_object_mut() {
        members.retain(|_, value| !value.is_null());
    }
    object
}

/// Line that responds to the request with this id.
pub(crate) fn response_line(id: &str, outcome: Result<Value, RpcError>) -> String {
    let (kind, body) = match outcome {
        Ok(result) => ("result", result),
        Err(error) => ("error", json!(error)),
    };
    format!(r#"{{"jsonrpc":"2.0","id":{id},"{kind}":{body}}}"#)
}
