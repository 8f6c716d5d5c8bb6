//! Messages to a client, written.
//!
//! **Invariant:** every message is one line that ends in `\n`, whatever a server wrote into it.

use bytes::Bytes;
use serde::Serialize;
use toolrack_mcp::ErrorCode;
use toolrack_transport::{
    JsonRpcError, NoParams, Params, RawJson, RequestId, write_answer, write_notification,
    write_request,
};

/// How a request ended: a result as it goes to the client, or a refusal.
pub(crate) type Outcome = Result<RawJson, JsonRpcError>;

/// The answer to a request.
pub(crate) fn answer(id: &RequestId, outcome: &Outcome) -> Bytes {
    let mut out = Vec::new();
    let written = match outcome {
        // What is no JSON would make the whole line unreadable.
        Ok(raw) => raw.checked().and_then(|result| write_answer(&mut out, id, Ok(result))),
        Err(error) => write_answer(&mut out, id, Err(error)),
    };
    if let Err(fault) = written {
        tracing::warn!(%fault, "a result is no JSON");
        out.clear();
        let error = internal("the result of the server is no JSON");
        write_answer(&mut out, id, Err(&error)).unwrap_or_default();
    }
    out.into()
}

/// A refusal of something whose id could not be read.
pub(crate) fn refusal_without_id(error: &JsonRpcError) -> Bytes {
    #[derive(Serialize)]
    struct Refusal<'a> {
        jsonrpc: &'static str,
        id: Option<()>,
        error: &'a JsonRpcError,
    }
    let mut out =
        serde_json::to_vec(&Refusal { jsonrpc: "2.0", id: None, error }).unwrap_or_default();
    out.push(b'\n');
    out.into()
}

/// Something that is told.
pub(crate) fn notification<P: Serialize + Sync>(method: &str, params: &P) -> Bytes {
    told(method, &Some(params))
}

/// Something that is told by its name alone.
pub(crate) fn bare_notification(method: &str) -> Bytes {
    told(method, &NoParams)
}

fn told(method: &str, params: &dyn Params) -> Bytes {
    let mut out = Vec::new();
    write_notification(&mut out, method, params).unwrap_or_default();
    out.into()
}

/// Something that is asked, with the parameters as a server wrote them.
pub(crate) fn question(id: u64, method: &str, params: Option<&RawJson>) -> Bytes {
    let mut out = Vec::new();
    let params = params.and_then(|it| it.checked().ok());
    write_request(&mut out, id, method, &params).unwrap_or_default();
    out.into()
}

/// A result that we make ourselves.
pub(crate) fn result<T: Serialize>(value: &T) -> Outcome {
    let text = serde_json::to_vec(value).map_err(|fault| internal(&fault.to_string()))?;
    Ok(RawJson::new(text))
}

pub(crate) fn internal(message: &str) -> JsonRpcError {
    JsonRpcError::new(ErrorCode::INTERNAL_ERROR.0, message)
}

pub(crate) fn invalid_params(message: impl Into<String>) -> JsonRpcError {
    JsonRpcError::new(ErrorCode::INVALID_PARAMS.0, message.into())
}

pub(crate) fn invalid_request(message: &str) -> JsonRpcError {
    JsonRpcError::new(ErrorCode::INVALID_REQUEST.0, message)
}

pub(crate) fn no_method(method: &str) -> JsonRpcError {
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
    fn results_pass_as_they_are_if_they_are_json() {
        let id = RequestId::from("a");
        let raw = RawJson::new("{ \"x\" :\n1.0 }");
        check(answer(&id, &Ok(raw)), r#"{"jsonrpc":"2.0","id":"a","result":{ "x" : 1.0 }}"#);
        check(
            answer(&id, &Ok(RawJson::new("{oops"))),
            r#"{"jsonrpc":"2.0","id":"a","error":{"code":-32603,"message":"the result of the server is no JSON"}}"#,
        );
        check(
            refusal_without_id(&invalid_request("no")),
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"no"}}"#,
        );
    }

    #[test]
    fn questions_keep_their_parameters() {
        let params = RawJson::new(r#"{"message": "m"}"#);
        check(
            question(3, "elicitation/create", Some(&params)),
            r#"{"jsonrpc":"2.0","id":3,"method":"elicitation/create","params":{"message": "m"}}"#,
        );
        check(question(4, "roots/list", None), r#"{"jsonrpc":"2.0","id":4,"method":"roots/list"}"#);
    }
}
