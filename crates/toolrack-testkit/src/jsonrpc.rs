//! JSON-RPC messages of the test servers: zero-copy parsing and response text.
//!
//! **Invariant:** ids, arguments and tokens stay the raw JSON of the client, so a response carries its id back byte
//! for byte.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::revision::{Era, Revision};

/// JSON-RPC and MCP error codes.
pub(crate) mod error_code {
    pub(crate) const PARSE_ERROR: i64 = -32700;
    pub(crate) const INVALID_REQUEST: i64 = -32600;
    pub(crate) const METHOD_NOT_FOUND: i64 = -32601;
    pub(crate) const INVALID_PARAMS: i64 = -32602;
    /// Legacy only; 2026-07-28 uses `INVALID_PARAMS` for a missing resource.
    pub(crate) const RESOURCE_NOT_FOUND: i64 = -32002;
    /// HTTP headers and body differ.
    pub(crate) const HEADER_MISMATCH: i64 = -32020;
    pub(crate) const MISSING_CLIENT_CAPABILITY: i64 = -32021;
    pub(crate) const UNSUPPORTED_VERSION: i64 = -32022;
    /// Codes of older SDKs for a request without a session, and for an unknown session.
    pub(crate) const NO_SESSION: i64 = -32000;
    pub(crate) const SESSION_NOT_FOUND: i64 = -32001;
}

/// Any client message; its members decide the kind.
#[derive(Debug, Deserialize)]
pub(crate) struct Incoming<'a> {
    #[serde(borrow)]
    pub(crate) id: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) method: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(crate) params: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) result: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) error: Option<&'a RawValue>,
}

/// Members that `params` may have in any revision.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Params<'a> {
    #[serde(borrow, default, rename = "_meta")]
    pub(crate) meta: Meta<'a>,
    pub(crate) name: Option<String>,
    #[serde(borrow)]
    pub(crate) arguments: Option<&'a RawValue>,
    pub(crate) cursor: Option<String>,
    pub(crate) uri: Option<String>,
    pub(crate) level: Option<String>,
    pub(crate) protocol_version: Option<String>,
    #[serde(borrow)]
    pub(crate) request_id: Option<&'a RawValue>,
    #[serde(rename = "ref")]
    pub(crate) reference: Option<Value>,
    pub(crate) argument: Option<Value>,
    pub(crate) notifications: Option<Value>,
    pub(crate) input_responses: Option<Value>,
    pub(crate) request_state: Option<String>,
}

impl<'a> Params<'a> {
    pub(crate) fn parse(raw: Option<&'a RawValue>) -> Result<Self, RpcError> {
        let Some(raw) = raw else { return Ok(Self::default()) };
        serde_json::from_str(raw.get())
            .map_err(|error| RpcError::invalid_params(format!("params: {error}")))
    }

    /// Name of the tool or prompt.
    pub(crate) fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    /// Arguments of a tool call or a prompt; invalid ones count as none.
    pub(crate) fn arguments(&self) -> Arguments {
        let parsed = self.arguments.and_then(|raw| serde_json::from_str(raw.get()).ok());
        Arguments(parsed.unwrap_or_default())
    }
}

/// Parsed arguments of a tool call or a prompt.
#[derive(Debug)]
pub(crate) struct Arguments(pub(crate) Value);

impl Arguments {
    /// A missing argument counts as `null`, so `Option` types are optional.
    pub(crate) fn get<T: DeserializeOwned>(&self, name: &str) -> Result<T, RpcError> {
        let given = self.0.get(name);
        T::deserialize(given.unwrap_or(&Value::Null)).map_err(|error| {
            RpcError::invalid_params(match given {
                Some(_) => format!("arguments: `{name}`: {error}"),
                None => format!("arguments: `{name}` is missing"),
            })
        })
    }
}

/// Members of `params._meta` that servers use.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Meta<'a> {
    #[serde(borrow, rename = "progressToken")]
    pub(crate) progress_token: Option<&'a RawValue>,
    #[serde(rename = "io.modelcontextprotocol/protocolVersion")]
    pub(crate) protocol_version: Option<String>,
    #[serde(borrow, rename = "io.modelcontextprotocol/clientCapabilities")]
    pub(crate) client_capabilities: Option<&'a RawValue>,
    #[serde(rename = "io.modelcontextprotocol/logLevel")]
    pub(crate) log_level: Option<String>,
}

impl Meta<'_> {
    /// Spec 2026-07-28, per-request metadata: the revision and the capabilities are required on every request.
    pub(crate) fn check(&self, supported: &[&str]) -> Result<(), RpcError> {
        let Some(requested) = &self.protocol_version else {
            return Err(RpcError::missing_meta("io.modelcontextprotocol/protocolVersion"));
        };
        if !self.client_capabilities.is_some_and(|raw| raw.get().starts_with('{')) {
            return Err(RpcError::missing_meta("io.modelcontextprotocol/clientCapabilities"));
        }
        if requested != "2026-07-28" {
            return Err(RpcError::unsupported_version(requested, supported));
        }
        self.log_level.as_deref().map_or(Ok(()), |level| severity(level).map(drop))
    }

    pub(crate) fn declares(&self, capability: &str) -> bool {
        self.client_capabilities
            .and_then(|raw| serde_json::from_str::<Value>(raw.get()).ok())
            .is_some_and(|declared| declared.get(capability).is_some())
    }
}

/// Rank of a log level, lowest first.
pub(crate) fn severity(level: &str) -> Result<usize, RpcError> {
    ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
        .iter()
        .position(|known| *known == level)
        .ok_or_else(|| RpcError::invalid_params(format!("no log level `{level}`")))
}

/// A JSON-RPC error.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RpcError {
    pub(crate) code: i64,
    pub(crate) message: String,
    pub(crate) data: Option<Value>,
}

impl RpcError {
    pub(crate) fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    pub(crate) fn invalid_params(message: impl Into<String>) -> Self {
        Self::new(error_code::INVALID_PARAMS, message)
    }

    /// A missing resource; the code differs by era.
    pub(crate) fn resource_not_found(era: Era, uri: &str, message: impl Into<String>) -> Self {
        let code = match era {
            Era::Legacy => error_code::RESOURCE_NOT_FOUND,
            Era::Modern => error_code::INVALID_PARAMS,
        };
        Self { data: Some(json!({ "uri": uri })), ..Self::new(code, message) }
    }

    /// A call needs a capability that the client does not declare.
    pub(crate) fn missing_capability(capability: &str) -> Self {
        let message = format!("the client declares no `{capability}`");
        let data = json!({ "requiredCapabilities": { capability: {} } });
        Self { data: Some(data), ..Self::new(error_code::MISSING_CLIENT_CAPABILITY, message) }
    }

    pub(crate) fn unknown_method(method: &str) -> Self {
        Self::new(error_code::METHOD_NOT_FOUND, format!("no method `{method}`"))
    }

    pub(crate) fn unsupported_version(requested: &str, supported: &[&str]) -> Self {
        let data = json!({ "supported": supported, "requested": requested });
        let message = "unsupported protocol version";
        Self { data: Some(data), ..Self::new(error_code::UNSUPPORTED_VERSION, message) }
    }

    fn missing_meta(key: &str) -> Self {
        Self::invalid_params(format!("`_meta` lacks `{key}`"))
    }

    /// Error response to a message whose id could not be parsed.
    pub(crate) fn to_response_without_id(&self) -> Vec<u8> {
        json!({ "jsonrpc": "2.0", "error": self.to_json() }).to_string().into_bytes()
    }

    pub(crate) fn to_json(&self) -> Value {
        let mut error = json!({ "code": self.code, "message": self.message });
        insert(&mut error, "data", self.data.clone());
        error
    }
}

/// Response, or the error that is the response.
pub(crate) type RpcResult = Result<Response, RpcError>;

/// Response to a request. Strings are the members of the result object, without its braces.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Response {
    Complete(String),
    /// A complete result with the cache hints that 2026-07-28 requires on lists, reads and discovery.
    Cacheable(String),
    InputRequired(String),
    Error(RpcError),
}

impl Response {
    pub(crate) fn empty() -> Self {
        Self::Complete(String::new())
    }

    /// A complete result with the members of this object.
    pub(crate) fn complete(object: &Value) -> Self {
        Self::Complete(object_members(object))
    }

    /// A complete result with the members of this object, and cache hints.
    pub(crate) fn cacheable(object: &Value) -> Self {
        Self::Cacheable(object_members(object))
    }

    pub(crate) fn input_required(object: &Value) -> Self {
        Self::InputRequired(object_members(object))
    }

    /// A tool result of one text block.
    pub(crate) fn text(text: &str) -> Self {
        Self::text_and(text, "")
    }

    /// A tool result with `isError`.
    pub(crate) fn tool_error(text: &str) -> Self {
        Self::text_and(text, r#","isError":true"#)
    }

    /// Result of the tool `add`, with structured content where the revision has it.
    pub(crate) fn sum(a: f64, b: f64, revision: Revision) -> Self {
        let sum = a + b;
        if revision < Revision::R2025_06_18 {
            return Self::text(&sum.to_string());
        }
        let structure = json!({ "sum": sum });
        Self::text_and(&sum.to_string(), &format!(r#","structuredContent":{structure}"#))
    }

    /// Adds or replaces a member of the result, by its JSON text.
    pub(crate) fn set_member(&mut self, name: &str, value: &str) {
        // The cache hint would repeat.
        if let (Self::Cacheable(members), "ttlMs") = (&mut *self, name) {
            *self = Self::Complete(std::mem::take(members));
            self.set_member("cacheScope", r#""public""#);
        }
        let (Self::Complete(members) | Self::Cacheable(members) | Self::InputRequired(members)) =
            self
        else {
            return;
        };
        let text = format!("{{{members}}}");
        // The server wrote the members itself, so they are JSON.
        let mut parsed: BTreeMap<&str, &RawValue> = serde_json::from_str(&text).unwrap_or_default();
        parsed.remove(name);
        let kept = parsed.iter().map(|(name, value)| (*name, value.get()));
        let member = |(name, value): (&str, &str)| format!("{}:{value}", json_string(name));
        let all: Vec<String> = kept.chain([(name, value)]).map(member).collect();
        *members = all.join(",");
    }

    /// A prompt result: messages of the user.
    pub(crate) fn prompt(contents: Vec<Value>) -> Self {
        let message = |content| json!({ "role": "user", "content": content });
        let messages: Vec<Value> = contents.into_iter().map(message).collect();
        Self::complete(&json!({ "messages": messages }))
    }

    fn text_and(text: &str, more: &str) -> Self {
        let text = json_string(text);
        Self::Complete(format!(r#""content":[{{"type":"text","text":{text}}}]{more}"#))
    }

    /// `"result":…` or `"error":…`, as in the response.
    pub(crate) fn body(&self, era: Era, server_meta: &str) -> String {
        let (kind, hints, members) = match self {
            Self::Error(rpc_error) => return format!(r#""error":{}"#, rpc_error.to_json()),
            Self::Complete(members) => ("complete", "", members),
            Self::Cacheable(members) => {
                ("complete", r#","ttlMs":60000,"cacheScope":"public""#, members)
            }
            Self::InputRequired(members) => ("input_required", "", members),
        };
        if era == Era::Legacy {
            return format!(r#""result":{{{members}}}"#);
        }
        let comma = if members.is_empty() { "" } else { "," };
        // A `_meta` of the result replaces the default one: names must not repeat.
        let meta = if members.starts_with(r#""_meta""#) { "" } else { server_meta };
        format!(r#""result":{{"resultType":"{kind}"{hints}{meta}{comma}{members}}}"#)
    }
}

impl From<RpcResult> for Response {
    fn from(outcome: RpcResult) -> Self {
        outcome.unwrap_or_else(Self::Error)
    }
}

/// Members of a JSON object, without its braces.
fn object_members(object: &Value) -> String {
    let text = object.to_string();
    text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).unwrap_or_default().to_owned()
}

/// A text block of a tool result or a prompt.
pub(crate) fn text_block(text: impl Into<String>) -> Value {
    json!({ "type": "text", "text": text.into() })
}

/// Adds a member to an object, unless it is `None`.
pub(crate) fn insert(object: &mut Value, name: &str, value: Option<Value>) {
    if let (Some(value), Some(members)) = (value, object.as_object_mut()) {
        members.insert(name.to_owned(), value);
    }
}

/// Response line without its newline.
pub(crate) fn response_line(id: &str, body: &str) -> String {
    let comma = if body.is_empty() { "" } else { "," };
    format!(r#"{{"jsonrpc":"2.0","id":{id}{comma}{body}}}"#)
}

/// Notification line without its newline.
pub(crate) fn notification_line(method: &str, params: Option<&Value>) -> Vec<u8> {
    let mut notification = json!({ "jsonrpc": "2.0", "method": method });
    insert(&mut notification, "params", params.cloned());
    notification.to_string().into_bytes()
}

/// JSON string, including quotes.
pub(crate) fn json_string(text: &str) -> String {
    Value::String(text.to_owned()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_format_depends_on_the_era() {
        let check = |response: Response, era: Era, expected: &str| {
            assert_eq!(response.body(era, r#","_meta":{}"#), expected);
        };
        check(Response::empty(), Era::Legacy, r#""result":{}"#);
        check(Response::empty(), Era::Modern, r#""result":{"resultType":"complete","_meta":{}}"#);
        check(
            Response::Cacheable(r#""tools":[]"#.to_owned()),
            Era::Modern,
            r#""result":{"resultType":"complete","ttlMs":60000,"cacheScope":"public","_meta":{},"tools":[]}"#,
        );
        check(
            Response::Complete(r#""_meta":{"a":1}"#.to_owned()),
            Era::Modern,
            r#""result":{"resultType":"complete","_meta":{"a":1}}"#,
        );
        check(
            Response::Error(RpcError::unknown_method("x")),
            Era::Modern,
            r#""error":{"code":-32601,"message":"no method `x`"}"#,
        );
    }

    #[test]
    fn modern_meta_is_validated() {
        let check = |params: &str, expected: Result<(), i64>| {
            let raw: &RawValue = serde_json::from_str(params).expect("JSON");
            let read = Params::parse(Some(raw)).expect("params");
            assert_eq!(
                read.meta.check(&["2026-07-28"]).map_err(|error| error.code),
                expected,
                "{params}"
            );
        };
        check("{}", Err(error_code::INVALID_PARAMS));
        check(
            r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}"#,
            Err(error_code::INVALID_PARAMS),
        );
        check(
            r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2030-01-01","io.modelcontextprotocol/clientCapabilities":{}}}"#,
            Err(error_code::UNSUPPORTED_VERSION),
        );
        check(
            r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}"#,
            Ok(()),
        );
    }
}
