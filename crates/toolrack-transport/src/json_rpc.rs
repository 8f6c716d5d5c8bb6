//! JSON-RPC messages as values, for callers that build or read whole messages.
//!
//! The hot path does not use these: it reads with [`Frame`](crate::Frame) and writes with
//! [`write_request`](crate::write_request). Field names are those of the founding documents.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::id::RequestId;

const VERSION: &str = "2.0";

/// A request: something that has to be answered.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JsonRpcRequest {
    /// Always `"2.0"`.
    pub jsonrpc: &'static str,
    /// What the answer will carry.
    pub id: u64,
    /// What is asked for.
    pub method: String,
    /// Left out of the message when there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub params: Option<Value>,
}

impl JsonRpcRequest {
    /// Builds a request with the version filled in.
    pub fn new(id: u64, method: impl Into<String>, params: Option<Value>) -> Self {
        Self { jsonrpc: VERSION, id, method: method.into(), params }
    }
}

/// A notification: something that nobody answers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JsonRpcNotification {
    /// Always `"2.0"`.
    pub jsonrpc: &'static str,
    /// What happened.
    pub method: String,
    /// Left out of the message when there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub params: Option<Value>,
}

impl JsonRpcNotification {
    /// Builds a notification with the version filled in.
    pub fn new(method: impl Into<String>, params: Option<Value>) -> Self {
        Self { jsonrpc: VERSION, method: method.into(), params }
    }
}

/// An answer. Reading one fails unless it has exactly one of `result` and `error`.
#[derive(Debug, Clone, PartialEq)]
pub struct JsonRpcResponse {
    /// What the peer wrote as version, empty if it wrote none.
    pub jsonrpc: String,
    /// Which request this answers. Missing only in errors about a request that could not be read.
    pub id: Option<RequestId>,
    /// `Some(Value::Null)` is an answer, `None` is not.
    pub result: Option<Value>,
    /// Why there is no result.
    pub error: Option<JsonRpcError>,
}

impl JsonRpcResponse {
    /// The result, or the error that stands in its place.
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
            return Err(serde::de::Error::custom("exactly one of `result` and `error` is needed"));
        }
        if id.is_none() && error.is_none() {
            return Err(serde::de::Error::missing_field("id"));
        }
        Ok(Self { jsonrpc, id, result, error })
    }
}

/// Why a request was refused. The code survives to the edge, whoever carries it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[error("JSON-RPC error {code}: {message}")]
pub struct JsonRpcError {
    /// Tells kinds of refusals apart.
    pub code: i64,
    /// For people. Some servers leave it out.
    #[serde(default)]
    pub message: String,
    /// Whatever else the peer had to say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
}

impl JsonRpcError {
    /// An error without data.
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }
}

/// Tells a member that is `null` from one that is missing. `"result": null` is a valid answer, and
/// serde's `Option` would fold it into "no result".
pub(crate) fn present<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    T::deserialize(deserializer).map(Some)
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
    fn a_null_result_is_an_answer() {
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
    fn refuse(json: &str) {
        assert!(serde_json::from_str::<JsonRpcResponse>(json).is_err(), "{json}");
    }

    #[test]
    fn both_or_neither_is_malformed() {
        refuse(r#"{"jsonrpc":"2.0","id":1,"result":1,"error":{"code":1,"message":""}}"#);
        refuse(r#"{"jsonrpc":"2.0","id":1,"result":null,"error":{"code":1,"message":""}}"#);
        refuse(r#"{"jsonrpc":"2.0","id":1}"#);
        refuse(r#"{"jsonrpc":"2.0","id":null,"result":1}"#);
        refuse(r#"{"jsonrpc":"2.0","id":1,"id":2,"result":1}"#);
    }

    #[test]
    fn error_display_carries_code_and_message() {
        let error = JsonRpcError::new(-32601, "Method not found");
        assert_eq!(error.to_string(), "JSON-RPC error -32601: Method not found");
    }
}
