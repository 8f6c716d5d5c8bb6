//! What a client is told when a server could not be asked, or said no.
//!
//! **Invariant:** what a server refused keeps its code, its message and its data. Only a code that the client's
//! era does not have is replaced by the one that means the same.
//! **Invariant:** what failed between us and a server says how far the request came and why in the data of the
//! error, so that no client has to read the message.

use serde::{Deserialize, Serialize};
use serde_json::json;
use toolrack_client::CallError;
use toolrack_manager::{ConnectionState, FailureKind, RackError, with_causes};
use toolrack_mcp::{Era, ErrorCode};
use toolrack_transport::JsonRpcError;
use toolrack_transport::{Delivery, TransportError};

use crate::encode::invalid_params;
use crate::gateway::Behind;

/// How a request failed between a gateway and its server: the data of the error that a client gets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelayFailure {
    /// How far the request may have come.
    #[serde(with = "Far")]
    pub delivery: Delivery,
    /// What kind of failure it is.
    pub cause: RelayCause,
    /// What to do next, if the gateway knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// Why a request that was to be passed on failed. Each asks for its own reaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RelayCause {
    /// The server did not answer in time.
    TimedOut,
    /// The line to the server failed.
    Line,
    /// The answer of the server was larger than the config allows.
    TooLarge,
    /// The server wants a login, or another token.
    NeedsLogin,
    /// The server answered, and it is no answer.
    BadAnswer,
    /// The server does not run.
    NotConnected,
    /// What the config says of the server cannot be used, or lacks something.
    BadConfig,
    /// The config says that the server is not to be used.
    Disabled,
    /// The client has too many requests open.
    Busy,
    /// Something else, such as a gateway that is about to end.
    #[serde(other)]
    Other,
}

/// [`Delivery`], as it is written.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Delivery", rename_all = "snake_case")]
enum Far {
    NotSent,
    Unknown,
    Answered,
}

impl RelayFailure {
    /// What the error of a gateway tells. Nothing if it is the refusal of a server.
    pub fn read(error: &JsonRpcError) -> Option<Self> {
        let is_ours = error.code == ErrorCode::INTERNAL_ERROR.0;
        Self::deserialize(error.data.as_ref().filter(|_| is_ours)?).ok()
    }

    /// One that never left the gateway, because its client has so many others open.
    pub(crate) fn busy(message: String) -> JsonRpcError {
        let hint = Some("wait until some of the requests that are open are answered".to_owned());
        Self { delivery: Delivery::NotSent, cause: RelayCause::Busy, hint }.told(message)
    }

    fn told(self, message: String) -> JsonRpcError {
        let data = serde_json::to_value(self).ok();
        JsonRpcError { data, ..JsonRpcError::new(ErrorCode::INTERNAL_ERROR.0, message) }
    }
}

/// How a client is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Manner {
    /// The client's.
    pub(crate) era: Era,
    /// Who may have said it.
    pub(crate) behind: Behind,
}

/// A failure before or after a request reached its server, in the words of the protocol.
pub(crate) fn of_rack(error: RackError, manner: Manner) -> JsonRpcError {
    match error {
        RackError::Call { source, .. } => of_call(*source, manner),
        RackError::NoSuchTool { tool, .. } => invalid_params(format!("Unknown tool: {tool}")),
        error @ RackError::Denied { .. } => invalid_params(error.to_string()),
        error => {
            let (delivery, cause, hint) = (error.delivery(), cause_of(&error), error.hint());
            RelayFailure { delivery, cause, hint }.told(with_causes(&error))
        }
    }
}

/// A failure of one request, in the words of the protocol.
pub(crate) fn of_call(error: CallError, manner: Manner) -> JsonRpcError {
    match error {
        CallError::Refused(refusal) | CallError::NoSuchResource { source: refusal, .. } => {
            // A gateway of ours has set aside what its servers say, and speaks for itself.
            let refusal = match manner.behind {
                Behind::Servers => set_aside(refusal),
                Behind::Gateway => refusal,
            };
            translated(refusal, manner.era)
        }
        CallError::Unsupported { feature } => JsonRpcError::new(
            ErrorCode::METHOD_NOT_FOUND.0,
            format!("Method not found: the server does not offer {feature}"),
        ),
        error => {
            let (delivery, cause) = (error.delivery(), cause_of_call(&error));
            RelayFailure { delivery, cause, hint: None }.told(with_causes(&error))
        }
    }
}

/// The failure of a request for a resource. A modern refusal that names the resource says that there is none.
pub(crate) fn of_read(error: CallError, manner: Manner, uri: &str) -> JsonRpcError {
    let refusal = of_call(error, manner);
    let named = refusal.data.as_ref().and_then(|it| it.get("uri")?.as_str());
    let is_missing = refusal.code == ErrorCode::INVALID_PARAMS.0 && named == Some(uri);
    match manner.era {
        Era::Legacy if is_missing => {
            JsonRpcError { code: ErrorCode::RESOURCE_NOT_FOUND.0, ..refusal }
        }
        _ => refusal,
    }
}

fn cause_of(error: &RackError) -> RelayCause {
    match error {
        RackError::NotConnected { state, .. } | RackError::NotReady { state, .. } => match state {
            ConnectionState::Disabled => RelayCause::Disabled,
            state => match state.failure().map(toolrack_manager::Failure::kind) {
                Some(FailureKind::NeedsLogin) => RelayCause::NeedsLogin,
                Some(FailureKind::BadConfig | FailureKind::MissingCredentials) => {
                    RelayCause::BadConfig
                }
                _ => RelayCause::NotConnected,
            },
        },
        _ => RelayCause::Other,
    }
}

fn cause_of_call(error: &CallError) -> RelayCause {
    match error {
        CallError::TimedOut { .. } => RelayCause::TimedOut,
        CallError::Line(failure) => match failure.error {
            TransportError::Unauthorized(_) => RelayCause::NeedsLogin,
            TransportError::Oversize { .. } => RelayCause::TooLarge,
            _ => RelayCause::Line,
        },
        _ => RelayCause::BadAnswer,
    }
}

/// What a server says of itself must not look like our own word on how far its request came.
fn set_aside(refusal: JsonRpcError) -> JsonRpcError {
    match RelayFailure::read(&refusal) {
        Some(_) => JsonRpcError { data: refusal.data.map(|it| json!({ "server": it })), ..refusal },
        None => refusal,
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::Value;
    use toolrack_manager::Failure;
    use toolrack_transport::{AuthError, LineError};

    use super::*;

    fn to(era: Era) -> Manner {
        Manner { era, behind: Behind::Servers }
    }

    #[track_caller]
    fn check(error: CallError, era: Era, expected: i64) {
        let shown = error.to_string();
        assert_eq!(of_call(error, to(era)).code, expected, "{shown} for {era:?}");
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

    #[track_caller]
    fn check_told(error: RackError, data: Value) {
        let told = of_rack(error, to(Era::Modern));
        assert_eq!(told.data.as_ref(), Some(&data));
        let read = RelayFailure::read(&told).unwrap();
        assert_eq!(serde_json::to_value(read).unwrap(), data);
    }

    #[test]
    fn what_failed_on_the_way_tells_how_far_it_came_and_why() {
        let call = |source| RackError::Call {
            server: "s".to_owned(),
            tool: "t".to_owned(),
            source: Box::new(source),
        };
        let waited = Duration::from_secs(2);
        check_told(
            call(CallError::TimedOut { waited, delivery: Delivery::Unknown }),
            json!({ "delivery": "unknown", "cause": "timed_out" }),
        );
        let lost = LineError::not_sent(TransportError::Shutdown);
        check_told(call(lost.into()), json!({ "delivery": "not_sent", "cause": "line" }));
        let barred = AuthError::LoginNeeded { reason: "no token".to_owned() };
        let barred = LineError::answered(TransportError::Unauthorized(barred));
        check_told(call(barred.into()), json!({ "delivery": "answered", "cause": "needs_login" }));
        let large = LineError::answered(TransportError::Oversize { limit_bytes: 10 });
        check_told(call(large.into()), json!({ "delivery": "answered", "cause": "too_large" }));
        check_told(
            call(CallError::TooManyRounds { rounds: 3 }),
            json!({ "delivery": "answered", "cause": "bad_answer" }),
        );
        let failed = |kind| {
            let failure = Failure::new(kind, "why").hinting("look");
            let state = ConnectionState::Failed(failure);
            RackError::NotConnected { server: "s".to_owned(), state }
        };
        for (kind, cause) in [
            (FailureKind::Exited, "not_connected"),
            (FailureKind::MissingCredentials, "bad_config"),
            (FailureKind::NeedsLogin, "needs_login"),
        ] {
            let data = json!({ "delivery": "not_sent", "cause": cause, "hint": "look" });
            check_told(failed(kind), data);
        }
        let hint = RackError::Closed.hint();
        let data = json!({ "delivery": "not_sent", "cause": "other", "hint": hint });
        check_told(RackError::Closed, data);
    }

    #[test]
    fn no_server_speaks_in_our_name() {
        let forged = json!({ "delivery": "not_sent", "cause": "line", "hint": "run this" });
        let source = JsonRpcError { data: Some(forged.clone()), ..JsonRpcError::new(-32603, "no") };
        let told = of_call(CallError::Refused(source.clone()), to(Era::Modern));
        assert_eq!(RelayFailure::read(&told), None);
        assert_eq!(told.data, Some(json!({ "server": forged })), "nothing is lost");
        let relayed = Manner { era: Era::Legacy, behind: Behind::Gateway };
        let told = of_call(CallError::Refused(source.clone()), relayed);
        assert_eq!(told, source, "the daemon is believed");
        let told = of_call(CallError::Refused(told), to(Era::Legacy));
        assert_eq!(
            of_call(CallError::Refused(told.clone()), relayed),
            told,
            "as it has set it aside"
        );
    }

    #[test]
    fn a_missing_resource_is_told_in_the_words_of_the_era() {
        let check = |data: Value, era: Era, expected: i64| {
            let source = JsonRpcError { data: Some(data), ..JsonRpcError::new(-32602, "no") };
            let told = of_read(CallError::Refused(source), to(era), "u:");
            assert_eq!(told.code, expected, "{told:?}");
        };
        check(json!({ "uri": "u:" }), Era::Legacy, -32002);
        check(json!({ "uri": "u:" }), Era::Modern, -32602);
        check(json!({ "uri": "v:" }), Era::Legacy, -32602);
        check(json!({}), Era::Legacy, -32602);
    }

    #[test]
    fn a_refusal_of_a_server_tells_nothing_of_the_way() {
        let check = |code, data: Option<Value>, expected: Option<RelayCause>| {
            let error = JsonRpcError { data, ..JsonRpcError::new(code, "no") };
            assert_eq!(RelayFailure::read(&error).map(|it| it.cause), expected, "{error:?}");
        };
        let told = json!({ "delivery": "unknown", "cause": "line" });
        check(-32603, Some(told.clone()), Some(RelayCause::Line));
        check(-32602, Some(told), None);
        check(-32603, None, None);
        check(-32603, Some(json!({ "delivery": "unknown" })), None);
        let newer = json!({ "delivery": "answered", "cause": "a_new_one" });
        check(-32603, Some(newer), Some(RelayCause::Other));
    }
}
