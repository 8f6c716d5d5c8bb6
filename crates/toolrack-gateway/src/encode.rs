//! Encodes JSON-RPC messages for clients: responses, notifications, requests and errors.
//!
//! **Invariant:** every message is one line that ends in `\n`, even if a server put line breaks into its JSON.

use std::borrow::Cow;

use bytes::Bytes;
use serde::Serialize;
use serde_json::value::RawValue;
use toolrack_mcp::ErrorCode;
use toolrack_transport::{
    JsonRpcError, RawJson, RequestId, strip_hidden, strip_hidden_json, write_notification,
    write_request, write_response,
};

/// The outcome of a request: the result as it goes to the client, or an error.
pub(crate) type Outcome = Result<RawJson, JsonRpcError>;

/// Response to a request.
pub(crate) fn response(id: &RequestId, outcome: &Outcome) -> Bytes {
    let mut out = Vec::new();
    let written = match outcome {
        // The result is embedded unparsed: invalid JSON in it would make the whole line unreadable.
        Ok(raw) => raw.as_raw_value().and_then(|result| write_response(&mut out, id, Ok(result))),
        Err(error) => write_response(&mut out, id, Err(error)),
    };
    if let Err(error) = written {
        tracing::warn!(%error, "server returned invalid JSON");
        out.clear();
        let error = internal_error("the server's result is not valid JSON");
        write_response(&mut out, id, Err(&error)).unwrap_or_default();
    }
    out.into()
}

/// Error response to a message, whose id may be unreadable.
pub(crate) fn error_message(id: Option<&RequestId>, error: &JsonRpcError) -> Bytes {
    #[derive(Serialize)]
    struct ErrorResponse<'a> {
        jsonrpc: &'static str,
        id: Option<&'a RequestId>,
        error: &'a JsonRpcError,
    }
    let mut out =
        serde_json::to_vec(&ErrorResponse { jsonrpc: "2.0", id, error }).unwrap_or_default();
    out.push(b'\n');
    out.into()
}

pub(crate) fn notification<P: Serialize + Sync>(method: &str, params: Option<&P>) -> Bytes {
    let mut out = Vec::new();
    write_notification(&mut out, method, &params).unwrap_or_default();
    out.into()
}

/// Request to the client, with the parameters byte for byte as the server wrote them.
pub(crate) fn request(id: u64, method: &str, params: Option<&RawJson>) -> Bytes {
    let mut out = Vec::new();
    let params = params.and_then(|raw| raw.as_raw_value().ok());
    write_request(&mut out, id, method, &params).unwrap_or_default();
    out.into()
}

/// Result that the gateway produces itself.
pub(crate) fn to_result<T: Serialize>(value: &T) -> Outcome {
    let text = serde_json::to_vec(value).map_err(|error| internal_error(&error.to_string()))?;
    Ok(RawJson::new(text))
}

/// JSON of a server without hidden text: bidi controls, tags, escape sequences and invisible characters, which a model
/// reads and a person does not see. JSON that has none keeps its bytes.
pub(crate) fn without_hidden_text(raw: RawJson) -> RawJson {
    strip_hidden_json(raw.as_bytes()).map_or(raw, RawJson::new)
}

/// Error of a server without hidden text in its message and data.
pub(crate) fn error_without_hidden_text(error: JsonRpcError) -> JsonRpcError {
    let message = match strip_hidden(&error.message) {
        Cow::Borrowed(_) => error.message,
        Cow::Owned(stripped) => stripped,
    };
    let stripped =
        error.data.as_ref().and_then(|data| strip_hidden_json(data.to_string().as_bytes()));
    let data = match stripped {
        Some(json) => serde_json::from_slice(&json).ok(),
        None => error.data,
    };
    JsonRpcError { message, data, ..error }
}

/// Response of a client, as it goes to the server.
pub(crate) fn into_raw(outcome: Outcome) -> Result<Box<RawValue>, JsonRpcError> {
    let raw = outcome?;
    let checked = raw.as_raw_value().map(ToOwned::to_owned);
    checked.map_err(|_error| internal_error("the client's response is not valid JSON"))
}

pub(crate) fn internal_error(message: &str) -> JsonRpcError {
    JsonRpcError::new(ErrorCode::INTERNAL_ERROR.0, message)
}

pub(crate) fn invalid_params(message: impl Into<String>) -> JsonRpcError {
    JsonRpcError::new(ErrorCode::INVALID_PARAMS.0, message.into())
}

pub(crate) fn invalid_request(message: &str) -> JsonRpcError {
    JsonRpcError::new(ErrorCode::INVALID_REQUEST.0, message)
}

pub(crate) fn method_not_found(method: &str) -> JsonRpcError {
    JsonRpcError::new(ErrorCode::METHOD_NOT_FOUND.0, format!("Method not found: {method}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(written: Bytes, expected: &str) {
        assert_eq!(String::from_utf8_lossy(&written), format!("{expected}\n"));
    }

    #[test]
    fn valid_json_results_pass_unchanged() {
        let id = RequestId::from("a");
        let raw = RawJson::new("{ \"x\" :\n1.0 }");
        check(response(&id, &Ok(raw)), r#"{"jsonrpc":"2.0","id":"a","result":{ "x" : 1.0 }}"#);
        check(
            response(&id, &Ok(RawJson::new("{oops"))),
            r#"{"jsonrpc":"2.0","id":"a","error":{"code":-32603,"message":"the server's result is not valid JSON"}}"#,
        );
        check(
            error_message(None, &invalid_request("no")),
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"no"}}"#,
        );
    }

    #[test]
    fn server_requests_keep_their_params() {
        let params = RawJson::new(r#"{"message": "m"}"#);
        check(
            request(3, "elicitation/create", Some(&params)),
            r#"{"jsonrpc":"2.0","id":3,"method":"elicitation/create","params":{"message": "m"}}"#,
        );
        check(request(4, "roots/list", None), r#"{"jsonrpc":"2.0","id":4,"method":"roots/list"}"#);
    }
}
