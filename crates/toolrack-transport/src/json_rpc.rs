//! JSON-RPC types: request, notification, response, error, request id and undecoded JSON.
//!
//! The hot path does not use the owned messages: it parses with [`Message`](crate::Message) and encodes with
//! [`write_request`](crate::write_request). Founding document 001 gives the names of their types and fields.

use std::fmt;

use bytes::Bytes;
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

const VERSION: &str = "2.0";

/// A request.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JsonRpcRequest {
    /// Always `"2.0"`.
    pub jsonrpc: &'static str,
    /// The id of the response.
    pub id: u64,
    /// The method.
    pub method: String,
    /// Omitted from the message when `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub params: Option<Value>,
}

impl JsonRpcRequest {
    /// Creates a request with the version filled in.
    pub fn new(id: u64, method: impl Into<String>, params: Option<Value>) -> Self {
        Self { jsonrpc: VERSION, id, method: method.into(), params }
    }
}

/// A notification.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JsonRpcNotification {
    /// Always `"2.0"`.
    pub jsonrpc: &'static str,
    /// The method.
    pub method: String,
    /// Omitted from the message when `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub params: Option<Value>,
}

impl JsonRpcNotification {
    /// Creates a notification with the version filled in.
    pub fn new(method: impl Into<String>, params: Option<Value>) -> Self {
        Self { jsonrpc: VERSION, method: method.into(), params }
    }
}

/// A response. Deserializing fails unless exactly one of `result` and `error` is present.
#[derive(Debug, Clone, PartialEq)]
pub struct JsonRpcResponse {
    /// The version that the peer wrote, empty if it wrote none.
    pub jsonrpc: String,
    /// The id of the request.
    pub id: ResponseId,
    /// `Some(Value::Null)` is a result, `None` is not.
    pub result: Option<Value>,
    /// The error in place of a result.
    pub error: Option<JsonRpcError>,
}

impl JsonRpcResponse {
    /// The result or the error.
    pub fn into_result(self) -> Result<Value, JsonRpcError> {
        match self.error {
            Some(error) => Err(error),
            None => Ok(self.result.unwrap_or(Value::Null)),
        }
    }
}

impl<'de> Deserialize<'de> for JsonRpcResponse {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Members {
            #[serde(default)]
            jsonrpc: String,
            id: Option<RequestId>,
            #[serde(default, deserialize_with = "present")]
            result: Option<Value>,
            error: Option<JsonRpcError>,
        }
        let Members { jsonrpc, id, result, error } = Members::deserialize(deserializer)?;
        if result.is_some() == error.is_some() {
            return Err(D::Error::custom("expected exactly one of `result` and `error`"));
        }
        if id.is_none() && error.is_none() {
            return Err(D::Error::missing_field("id"));
        }
        Ok(Self { jsonrpc, id: ResponseId(id), result, error })
    }
}

/// A JSON-RPC error object. Every layer passes on its code, message and data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[error("JSON-RPC error {code}: {message}")]
pub struct JsonRpcError {
    /// The kind of error.
    pub code: i64,
    /// For people. Some servers omit it.
    #[serde(default)]
    pub message: String,
    /// Further details.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
}

impl JsonRpcError {
    /// An error without data.
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }
}

/// Deserializes a present member to `Some`, also if it is `null`. `"result": null` is a valid response, and serde's
/// `Option` would treat it as a missing result.
pub(crate) fn present<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    T::deserialize(deserializer).map(Some)
}

/// The largest integer that survives a peer which stores numbers as doubles.
const MAX_EXACT: f64 = 9_007_199_254_740_991.0;

/// The id that ties a response to its request: a number or a string, as the sender chose.
///
/// We send numbers. Ids of the peer are read leniently (`1.0` is `1`) and returned unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(untagged)]
pub enum RequestId {
    /// An integer. Our own ids are always numbers.
    Number(i64),
    /// A string, compared byte for byte.
    Text(Box<str>),
}

impl RequestId {
    /// The id as one of our own, if it can be one.
    ///
    /// Some servers return a number as a string. Since we never send strings, `"7"` can only be our 7.
    pub fn as_local_id(&self) -> Option<u64> {
        match self {
            RequestId::Number(number) => u64::try_from(*number).ok(),
            RequestId::Text(text) => text.parse().ok(),
        }
    }
}

impl From<u64> for RequestId {
    /// Ids count up from one, so the upper half of `u64` is out of reach.
    fn from(number: u64) -> Self {
        RequestId::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl PartialEq<u64> for RequestId {
    fn eq(&self, number: &u64) -> bool {
        matches!(self, RequestId::Number(own) if u64::try_from(*own) == Ok(*number))
    }
}

/// The id in a response. `None` only in errors about a request that the peer could not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponseId(pub Option<RequestId>);

impl PartialEq<u64> for ResponseId {
    /// So that `response.id == 1` can be written.
    fn eq(&self, number: &u64) -> bool {
        self.0.as_ref().is_some_and(|id| id == number)
    }
}

impl From<&str> for RequestId {
    fn from(text: &str) -> Self {
        RequestId::Text(text.into())
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RequestId::Number(number) => number.fmt(f),
            RequestId::Text(text) => write!(f, "{text:?}"),
        }
    }
}

// Not derived: an untagged enum would first store what is there, which may be a large list.
impl<'de> Deserialize<'de> for RequestId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(IdVisitor)
    }
}

struct IdVisitor;

impl Visitor<'_> for IdVisitor {
    type Value = RequestId;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an integer or a string as id")
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<RequestId, E> {
        Ok(RequestId::Number(number))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<RequestId, E> {
        let number = i64::try_from(number);
        number.map(RequestId::Number).map_err(|_too_large| E::custom("the id is too large"))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<RequestId, E> {
        if number.fract() != 0.0 || number.abs() > MAX_EXACT {
            return Err(E::custom("the id is not an integer"));
        }
        #[expect(clippy::cast_possible_truncation, reason = "a whole number below 2^53")]
        Ok(RequestId::Number(number as i64))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<RequestId, E> {
        Ok(RequestId::Text(text.into()))
    }
}

/// Undecoded JSON, cheap to clone and to pass on.
///
/// **Invariant:** the bytes are exactly those that the peer sent. They may be invalid JSON: the caller that decodes
/// them finds out, in its own task.
#[derive(Clone, PartialEq, Eq)]
pub struct RawJson(Bytes);

impl RawJson {
    /// The literal `null`.
    pub const NULL: RawJson = RawJson(Bytes::from_static(b"null"));

    /// Wraps text that is expected to be JSON.
    pub fn new(text: impl Into<Bytes>) -> Self {
        Self(text.into())
    }

    /// The unchanged text.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Deserializes the text as `T`, which may borrow from it.
    pub fn decode<'de, T: Deserialize<'de>>(&'de self) -> Result<T, serde_json::Error> {
        serde_json::from_slice(&self.0)
    }

    /// Checks that the text is one JSON value and borrows it as such.
    pub fn as_raw_value(&self) -> Result<&RawValue, serde_json::Error> {
        self.decode()
    }

    /// The buffer, for a caller that forwards it.
    pub fn into_bytes(self) -> Bytes {
        self.0
    }
}

impl From<Box<RawValue>> for RawJson {
    fn from(value: Box<RawValue>) -> Self {
        Self(Bytes::from(Box::<str>::from(value).into_boxed_bytes()))
    }
}

/// Shows only the size, because payloads may contain secrets.
impl fmt::Debug for RawJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RawJson({} bytes)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn request_serializes_correctly() {
        let request = JsonRpcRequest::new(1, "test", Some(json!({"key": "value"})));
        assert_eq!(
            serde_json::to_string(&request).unwrap(),
            r#"{"jsonrpc":"2.0","id":1,"method":"test","params":{"key":"value"}}"#
        );
    }

    #[test]
    fn request_without_params_omits_field() {
        let request = JsonRpcRequest::new(1, "test", None);
        assert_eq!(
            serde_json::to_string(&request).unwrap(),
            r#"{"jsonrpc":"2.0","id":1,"method":"test"}"#
        );
    }

    #[test]
    fn notification_serializes_correctly() {
        let notification = JsonRpcNotification::new("notify", None);
        assert_eq!(
            serde_json::to_string(&notification).unwrap(),
            r#"{"jsonrpc":"2.0","method":"notify"}"#
        );
    }

    #[track_caller]
    fn check(json: &str, expected: Result<Value, JsonRpcError>) {
        let response: JsonRpcResponse = serde_json::from_str(json).unwrap();
        assert_eq!(response.into_result(), expected, "{json}");
    }

    #[test]
    fn response_deserializes_success() {
        check(r#"{"jsonrpc":"2.0","id":1,"result":{"ok":true}}"#, Ok(json!({"ok": true})));
        check(r#"{"jsonrpc":"2.0","id":"a","result":{"tools":[]}}"#, Ok(json!({"tools": []})));
        check(r#"{"id":1,"result":7,"error":null}"#, Ok(json!(7)));
    }

    #[test]
    fn response_keeps_its_version_and_id() {
        let read = |json: &str| serde_json::from_str::<JsonRpcResponse>(json).unwrap();
        let response = read(r#"{"jsonrpc":"2.0","id":7,"result":{}}"#);
        assert_eq!(response.jsonrpc, "2.0");
        assert!(response.id == 7 && response.id != 8);
        let response = read(r#"{"jsonrpc":"1.0","id":"a","result":{}}"#);
        assert_eq!(response.jsonrpc, "1.0");
        assert_eq!(response.id.0, Some(RequestId::Text("a".into())));
        let response = read(r#"{"error":{"code":1}}"#);
        assert_eq!((response.jsonrpc.as_str(), response.id.0), ("", None));
    }

    #[test]
    fn null_result_is_a_response() {
        check(r#"{"jsonrpc":"2.0","id":1,"result":null}"#, Ok(Value::Null));
    }

    #[test]
    fn response_deserializes_error() {
        check(
            r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"Invalid Request"}}"#,
            Err(JsonRpcError::new(-32600, "Invalid Request")),
        );
        check(
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"","data":[1]}}"#,
            Err(JsonRpcError { code: -32700, message: String::new(), data: Some(json!([1])) }),
        );
        check(r#"{"error":{"code":1}}"#, Err(JsonRpcError::new(1, "")));
    }

    #[track_caller]
    fn check_invalid(json: &str) {
        assert!(serde_json::from_str::<JsonRpcResponse>(json).is_err(), "{json}");
    }

    #[test]
    fn both_or_neither_is_malformed() {
        check_invalid(r#"{"jsonrpc":"2.0","id":1,"result":1,"error":{"code":1,"message":""}}"#);
        check_invalid(r#"{"jsonrpc":"2.0","id":1,"result":null,"error":{"code":1,"message":""}}"#);
        check_invalid(r#"{"jsonrpc":"2.0","id":1}"#);
        check_invalid(r#"{"jsonrpc":"2.0","id":null,"result":1}"#);
        check_invalid(r#"{"jsonrpc":"2.0","id":1,"id":2,"result":1}"#);
    }

    #[test]
    fn error_display_carries_code_and_message() {
        let error = JsonRpcError::new(-32601, "Method not found");
        assert_eq!(error.to_string(), "JSON-RPC error -32601: Method not found");
    }

    #[track_caller]
    fn check_id(json: &str, expected: Option<RequestId>) {
        assert_eq!(serde_json::from_str(json).ok(), expected, "{json}");
    }

    #[test]
    fn ids_are_read_leniently() {
        check_id("7", Some(RequestId::Number(7)));
        check_id("-7", Some(RequestId::Number(-7)));
        check_id("7.0", Some(RequestId::Number(7)));
        check_id("7e0", Some(RequestId::Number(7)));
        check_id("\"7\"", Some(RequestId::from("7")));
        check_id("\"probe\"", Some(RequestId::from("probe")));
        check_id("7.5", None);
        check_id("18446744073709551615", None);
        check_id("18446744073709551616", None);
        check_id("null", None);
        check_id("true", None);
        check_id("[7]", None);
    }

    #[test]
    fn number_returned_as_string_is_our_id() {
        assert_eq!(RequestId::from("7").as_local_id(), Some(7));
        assert_eq!(RequestId::from("seven").as_local_id(), None);
        assert_eq!(RequestId::Number(-1).as_local_id(), None);
    }

    #[test]
    fn ids_are_serialized_unchanged() {
        assert_eq!(serde_json::to_string(&RequestId::Number(7)).unwrap(), "7");
        assert_eq!(serde_json::to_string(&RequestId::from("7")).unwrap(), "\"7\"");
    }
}
