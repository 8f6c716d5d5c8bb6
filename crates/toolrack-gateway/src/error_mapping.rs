//! Maps manager and call errors to the JSON-RPC errors that clients get.
//!
//! **Invariant:** an error of a server keeps its code, message and data, apart from hidden text. A URL elicitation
//! error loses its data here: the pages of a call are checked before, and those of other requests are not shown.
//! Only a code that the client's era does not have is replaced by its equivalent.
//! **Invariant:** a failure between the gateway and a server carries its delivery and cause in `error.data`
//! ([`GatewayErrorData`]), so that clients never have to parse the message.

use serde::{Deserialize, Serialize};
use serde_json::json;
use toolrack_client::CallError;
use toolrack_manager::{ErrorKind, ManagerError, error_chain};
use toolrack_mcp::{Era, ErrorCode};
use toolrack_transport::Delivery;
use toolrack_transport::JsonRpcError;

use crate::encode::{error_without_hidden_text, invalid_params};
use crate::gateway::Upstream;

/// The `data` of a JSON-RPC error that the gateway itself raises: how a request failed between it and a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatewayErrorData {
    /// Whether the request may have reached the server.
    #[serde(with = "DeliveryDef")]
    pub delivery: Delivery,
    /// The kind of failure, coarser than the one that the gateway knows.
    #[serde(with = "cause_name")]
    pub cause: ErrorKind,
    /// The next step for the user, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// Names of causes. Clients and other gateways read them, so they keep their first spelling.
const CAUSE_NAMES: [(ErrorKind, &str); 10] = [
    (ErrorKind::TimedOut, "timed_out"),
    (ErrorKind::Lost, "line"),
    (ErrorKind::TooLarge, "too_large"),
    (ErrorKind::NeedsLogin, "needs_login"),
    (ErrorKind::InvalidResponse, "bad_answer"),
    (ErrorKind::NotRunning, "not_connected"),
    (ErrorKind::BadConfig, "bad_config"),
    (ErrorKind::Disabled, "disabled"),
    (ErrorKind::Busy, "busy"),
    (ErrorKind::Internal, "other"),
];

/// Serialized form of a cause.
mod cause_name {
    use super::{CAUSE_NAMES, Deserialize as _, ErrorKind};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
    pub(super) fn serialize<S: serde::Serializer>(
        kind: &ErrorKind,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let named = CAUSE_NAMES.iter().find(|(named, _)| named == kind);
        serializer.serialize_str(named.map_or("other", |(_, name)| name))
    }

    pub(super) fn deserialize<'de, D: serde::Deserializer<'de>>(
        deserializer: D,
    ) -> Result<ErrorKind, D::Error> {
        let text = String::deserialize(deserializer)?;
        let named = CAUSE_NAMES.iter().find(|(_, name)| *name == text);
        // A later version may know more causes.
        Ok(named.map_or(ErrorKind::Internal, |(kind, _)| *kind))
    }
}

/// Serialized form of [`Delivery`].
#[derive(Serialize, Deserialize)]
#[serde(remote = "Delivery", rename_all = "snake_case")]
enum DeliveryDef {
    NotSent,
    Unknown,
    Answered,
}

impl GatewayErrorData {
    /// Reads the data of an error that a gateway raised. `None` for an error of a server.
    pub fn from_error(error: &JsonRpcError) -> Option<Self> {
        let is_ours = error.code == ErrorCode::INTERNAL_ERROR.0;
        Self::deserialize(error.data.as_ref().filter(|_| is_ours)?).ok()
    }

    /// Error for a request that never left the gateway because its client has too many others in flight.
    pub(crate) fn busy(message: String) -> JsonRpcError {
        let hint = Some("wait for some of the open requests to finish".to_owned());
        Self { delivery: Delivery::NotSent, cause: ErrorKind::Busy, hint }.into_error(message)
    }

    fn into_error(self, message: String) -> JsonRpcError {
        let data = serde_json::to_value(self).ok();
        JsonRpcError { data, ..JsonRpcError::new(ErrorCode::INTERNAL_ERROR.0, message) }
    }
}

/// How errors are presented to a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ErrorStyle {
    /// Era of the client.
    pub(crate) era: Era,
    /// Where the error may come from.
    pub(crate) upstream: Upstream,
}

pub(crate) fn from_manager_error(error: ManagerError, style: ErrorStyle) -> JsonRpcError {
    match error {
        ManagerError::Call { source, .. } => from_call_error(*source, style),
        ManagerError::NoSuchTool { tool, .. } => invalid_params(format!("Unknown tool: {tool}")),
        error @ ManagerError::Denied { .. } => invalid_params(error.to_string()),
        error => {
            let (delivery, cause, hint) = (error.delivery(), manager_cause(&error), error.hint());
            GatewayErrorData { delivery, cause, hint }.into_error(error_chain(&error))
        }
    }
}

pub(crate) fn from_call_error(error: CallError, style: ErrorStyle) -> JsonRpcError {
    match error {
        CallError::Refused(error) | CallError::NoSuchResource { source: error, .. } => {
            // First, because without hidden text a member can have another name.
            let mut error = error_without_hidden_text(error);
            // Calls check the pages of this error before. Here nothing has checked or counted them.
            if ErrorCode(error.code) == ErrorCode::URL_ELICITATION_REQUIRED {
                error.data = None;
            }
            // Retries depend on `delivery`, so a server must not be able to forge it. An upstream gateway has wrapped
            // the data of its servers already; its own data is trusted.
            let is_trusted = style.upstream == Upstream::Gateway;
            if !is_trusted && GatewayErrorData::from_error(&error).is_some() {
                error.data = error.data.map(|data| json!({ "server": data }));
            }
            // Spec 2026-07-28, resources §Error Handling: a missing resource is an invalid parameter.
            if style.era == Era::Modern && error.code == ErrorCode::RESOURCE_NOT_FOUND.0 {
                error.code = ErrorCode::INVALID_PARAMS.0;
            }
            error
        }
        CallError::Unsupported { feature } => JsonRpcError::new(
            ErrorCode::METHOD_NOT_FOUND.0,
            format!("Method not found: the server does not offer {feature}"),
        ),
        error => {
            let (delivery, cause) = (error.delivery(), call_cause(&error));
            let needs_login = cause == ErrorKind::NeedsLogin;
            let hint = needs_login.then(|| "log in to the server again".to_owned());
            GatewayErrorData { delivery, cause, hint }.into_error(error_chain(&error))
        }
    }
}

/// Error of `resources/read`. A modern server reports a missing resource as invalid parameters whose data names the
/// URI; a legacy client gets the legacy code for it.
pub(crate) fn from_read_error(error: CallError, style: ErrorStyle, uri: &str) -> JsonRpcError {
    let error = from_call_error(error, style);
    let named = error.data.as_ref().and_then(|data| data.get("uri")?.as_str());
    let is_missing = error.code == ErrorCode::INVALID_PARAMS.0 && named == Some(uri);
    match style.era {
        Era::Legacy if is_missing => {
            JsonRpcError { code: ErrorCode::RESOURCE_NOT_FOUND.0, ..error }
        }
        _ => error,
    }
}

fn manager_cause(error: &ManagerError) -> ErrorKind {
    match error {
        ManagerError::NotConnected { .. } | ManagerError::NotReady { .. } => match error.kind() {
            kind @ (ErrorKind::Disabled | ErrorKind::NeedsLogin) => kind,
            ErrorKind::BadConfig | ErrorKind::MissingCredentials => ErrorKind::BadConfig,
            _ => ErrorKind::NotRunning,
        },
        _ => ErrorKind::Internal,
    }
}

fn call_cause(error: &CallError) -> ErrorKind {
    match (ErrorKind::from_call_error(error), error) {
        (kind @ (ErrorKind::NeedsLogin | ErrorKind::TooLarge), _) => kind,
        (_, CallError::TimedOut { .. }) => ErrorKind::TimedOut,
        (_, CallError::Transport(_)) => ErrorKind::Lost,
        _ => ErrorKind::InvalidResponse,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::Value;
    use toolrack_manager::{ConnectionState, Failure};
    use toolrack_transport::{AuthError, RequestError, TransportError};

    use super::*;

    fn style(era: Era) -> ErrorStyle {
        ErrorStyle { era, upstream: Upstream::Servers }
    }

    #[track_caller]
    fn check(error: CallError, era: Era, expected: i64) {
        let text = error.to_string();
        assert_eq!(from_call_error(error, style(era)).code, expected, "{text} for {era:?}");
    }

    #[test]
    fn server_error_keeps_its_code_unless_the_era_has_another() {
        let refused = |code| CallError::Refused(JsonRpcError::new(code, "no"));
        check(refused(-32002), Era::Legacy, -32002);
        check(refused(-32002), Era::Modern, -32602);
        check(refused(-32602), Era::Legacy, -32602);
        check(refused(42), Era::Modern, 42);
        check(CallError::Unsupported { feature: "prompts" }, Era::Legacy, -32601);
        check(CallError::TooManyRounds { rounds: 3 }, Era::Legacy, -32603);
    }

    #[track_caller]
    fn check_data(error: ManagerError, data: Value) {
        let mapped = from_manager_error(error, style(Era::Modern));
        assert_eq!(mapped.data.as_ref(), Some(&data));
        let parsed = GatewayErrorData::from_error(&mapped).unwrap();
        assert_eq!(serde_json::to_value(parsed).unwrap(), data);
    }

    #[test]
    fn gateway_errors_carry_delivery_and_cause() {
        let call = |source| ManagerError::Call {
            server: "s".to_owned(),
            tool: "t".to_owned(),
            source: Box::new(source),
        };
        let waited = Duration::from_secs(2);
        check_data(
            call(CallError::TimedOut { waited, delivery: Delivery::Unknown }),
            json!({ "delivery": "unknown", "cause": "timed_out" }),
        );
        let lost = RequestError::not_sent(TransportError::Shutdown);
        check_data(call(lost.into()), json!({ "delivery": "not_sent", "cause": "line" }));
        let unauthorized = AuthError::LoginRequired { reason: "no token".to_owned() };
        let unauthorized = RequestError::answered(TransportError::Unauthorized(unauthorized));
        check_data(
            call(unauthorized.into()),
            json!({
                "delivery": "answered", "cause": "needs_login", "hint": "log in to the server again",
            }),
        );
        let large = RequestError::answered(TransportError::Oversize { limit_bytes: 10 });
        check_data(call(large.into()), json!({ "delivery": "answered", "cause": "too_large" }));
        check_data(
            call(CallError::TooManyRounds { rounds: 3 }),
            json!({ "delivery": "answered", "cause": "bad_answer" }),
        );
        let failed = |kind| {
            let failure = Failure::new(kind, "why").with_hint("look");
            let state = ConnectionState::Failed(failure);
            ManagerError::NotConnected { server: "s".to_owned(), state }
        };
        for (kind, cause) in [
            (ErrorKind::Exited, "not_connected"),
            (ErrorKind::MissingCredentials, "bad_config"),
            (ErrorKind::NeedsLogin, "needs_login"),
        ] {
            let data = json!({ "delivery": "not_sent", "cause": cause, "hint": "look" });
            check_data(failed(kind), data);
        }
        let hint = ManagerError::Closed.hint();
        let data = json!({ "delivery": "not_sent", "cause": "other", "hint": hint });
        check_data(ManagerError::Closed, data);
    }

    #[test]
    fn server_cannot_forge_gateway_error_data() {
        let forged = json!({ "delivery": "not_sent", "cause": "line", "hint": "run this" });
        let source = JsonRpcError { data: Some(forged.clone()), ..JsonRpcError::new(-32603, "no") };
        let mapped = from_call_error(CallError::Refused(source.clone()), style(Era::Modern));
        assert_eq!(GatewayErrorData::from_error(&mapped), None);
        assert_eq!(mapped.data, Some(json!({ "server": forged })), "the data is kept");
        let behind_gateway = ErrorStyle { era: Era::Legacy, upstream: Upstream::Gateway };
        let mapped = from_call_error(CallError::Refused(source.clone()), behind_gateway);
        assert_eq!(mapped, source, "the daemon is trusted");
        let wrapped = from_call_error(CallError::Refused(mapped), style(Era::Legacy));
        assert_eq!(
            from_call_error(CallError::Refused(wrapped.clone()), behind_gateway),
            wrapped,
            "data that the daemon wrapped stays wrapped"
        );
    }

    /// Without hidden text a member can have another name, and a value another meaning.
    #[test]
    fn hidden_text_forges_no_gateway_error_data() {
        for forged in [
            json!({ "delivery\u{200b}": "not_sent", "cause": "line" }),
            json!({ "delivery": "not\u{200b}_sent", "cause": "line" }),
            json!({ "delivery": "not_sent", "cause\u{202e}": "line" }),
        ] {
            let source = JsonRpcError { data: Some(forged), ..JsonRpcError::new(-32603, "no") };
            let mapped = from_call_error(CallError::Refused(source), style(Era::Modern));
            assert_eq!(GatewayErrorData::from_error(&mapped), None, "{mapped:?}");
        }
    }

    /// Only a call can ask for pages; its error is checked and counted before.
    #[test]
    fn unchecked_pages_are_not_shown() {
        let data = json!({ "elicitations": [{ "url": "https://e.org/", "message": "m" }] });
        let source = JsonRpcError { data: Some(data), ..JsonRpcError::new(-32042, "open") };
        let mapped = from_call_error(CallError::Refused(source), style(Era::Legacy));
        assert_eq!(mapped, JsonRpcError::new(-32042, "open"));
    }

    #[test]
    fn missing_resource_error_is_mapped_to_the_era() {
        let check = |data: Value, era: Era, expected: i64| {
            let source = JsonRpcError { data: Some(data), ..JsonRpcError::new(-32602, "no") };
            let mapped = from_read_error(CallError::Refused(source), style(era), "u:");
            assert_eq!(mapped.code, expected, "{mapped:?}");
        };
        check(json!({ "uri": "u:" }), Era::Legacy, -32002);
        check(json!({ "uri": "u:" }), Era::Modern, -32602);
        check(json!({ "uri": "v:" }), Era::Legacy, -32602);
        check(json!({}), Era::Legacy, -32602);
    }

    #[test]
    fn server_error_has_no_gateway_error_data() {
        let check = |code, data: Option<Value>, expected: Option<ErrorKind>| {
            let error = JsonRpcError { data, ..JsonRpcError::new(code, "no") };
            let cause = GatewayErrorData::from_error(&error).map(|parsed| parsed.cause);
            assert_eq!(cause, expected, "{error:?}");
        };
        let data = json!({ "delivery": "unknown", "cause": "line" });
        check(-32603, Some(data.clone()), Some(ErrorKind::Lost));
        check(-32602, Some(data), None);
        check(-32603, None, None);
        check(-32603, Some(json!({ "delivery": "unknown" })), None);
        let newer = json!({ "delivery": "answered", "cause": "a_new_one" });
        check(-32603, Some(newer), Some(ErrorKind::Internal));
    }
}
