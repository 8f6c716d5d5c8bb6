//! What a client is told when a server could not be asked, or said no.
//!
//! **Invariant:** what a server refused keeps its code, its message and its data. Only a code that the client's
//! era does not have is replaced by the one that means the same.

use serde_json::json;
use toolrack_client::CallError;
use toolrack_link::Delivery;
use toolrack_manager::{RackError, with_causes};
use toolrack_mcp::{Era, ErrorCode};
use toolrack_rpc::JsonRpcError;

use crate::wire::invalid_params;

/// A failure before or after a request reached its server, in the words of the protocol.
pub(crate) fn of_rack(error: RackError, era: Era) -> JsonRpcError {
    match error {
        RackError::Call { source, .. } => of_call(*source, era),
        RackError::NoSuchTool { tool, .. } => invalid_params(format!("Unknown tool: {tool}")),
        error @ RackError::Denied { .. } => invalid_params(error.to_string()),
        error => {
            let hint = error.hint();
            failed(&with_causes(&error), error.delivery(), hint.as_deref())
        }
    }
}

/// A failure of one request, in the words of the protocol.
pub(crate) fn of_call(error: CallError, era: Era) -> JsonRpcError {
    match error {
        CallError::Refused(refusal) | CallError::NoSuchResource { source: refusal, .. } => {
            translated(refusal, era)
        }
        CallError::Unsupported { feature } => JsonRpcError::new(
            ErrorCode::METHOD_NOT_FOUND.0,
            format!("Method not found: the server does not offer {feature}"),
        ),
        error => failed(&with_causes(&error), error.delivery(), None),
    }
}

/// Spec 2026-07-28, resources §Error Handling: a missing resource is an invalid parameter.
fn translated(refusal: JsonRpcError, era: Era) -> JsonRpcError {
    let code = match (era, ErrorCode(refusal.code)) {
        (Era::Modern, ErrorCode::RESOURCE_NOT_FOUND) => ErrorCode::INVALID_PARAMS.0,
        (_, ErrorCode(code)) => code,
    };
    JsonRpcError { code, ..refusal }
}

fn failed(message: &str, delivery: Delivery, hint: Option<&str>) -> JsonRpcError {
    let delivery = match delivery {
        Delivery::NotSent => "not_sent",
        Delivery::Unknown => "unknown",
        Delivery::Answered => "answered",
    };
    let data = match hint {
        Some(hint) => json!({ "delivery": delivery, "hint": hint }),
        None => json!({ "delivery": delivery }),
    };
    let code = ErrorCode::INTERNAL_ERROR.0;
    JsonRpcError { data: Some(data), ..JsonRpcError::new(code, message.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(error: CallError, era: Era, expected: i64) {
        let shown = error.to_string();
        assert_eq!(of_call(error, era).code, expected, "{shown} for {era:?}");
    }

    #[test]
    fn a_refusal_keeps_its_code_unless_the_era_has_another() {
        let refused = |code| CallError::Refused(JsonRpcError::new(code, "no"));
        check(refused(-32002), Era::Legacy, -32002);
        check(refused(-32002), Era::Modern, -32602);
        check(refused(-32602), Era::Legacy, -32602);
        check(refused(42), Era::Modern, 42);
        check(CallError::Unsupported { feature: "prompts" }, Era::Legacy, -32601);
        check(CallError::TooManyRounds { rounds: 3 }, Era::Legacy, -32603);
    }
}
