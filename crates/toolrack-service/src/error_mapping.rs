//! What went wrong further down, as the contract of the service says it.
//!
//! Decided by kinds alone; no text is read.

use toolrack_client::CallError;
use toolrack_manager::{ConnectionState, Failure, FailureKind, RackError, with_causes};
use toolrack_transport::{TransportError, plain_text};

use crate::error::{ErrorCode, ServiceFault};
use crate::validate::CREDENTIALS_MISSING;

/// The longest message that is passed on.
const MESSAGE_CHARS: usize = 2000;

/// Why a server is not connected.
pub(crate) fn of_failure(failure: &Failure) -> ServiceFault {
    let (code, words) = verdict(failure.kind());
    let Some(words) = words else {
        let fault = ServiceFault::new(code, failure.reason());
        return match failure.hint() {
            Some(hint) => fault.hint(hint),
            None => fault,
        };
    };
    ServiceFault::in_words(code, words, failure.reason(), failure.hint())
}

/// The code of a failure, and its message where the contract gives one.
fn verdict(kind: FailureKind) -> (ErrorCode, Option<&'static str>) {
    match kind {
        FailureKind::PackageNotFound => (ErrorCode::NotFound, Some("Package not found")),
        FailureKind::DockerNotRunning => {
            (ErrorCode::ServiceUnavailable, Some("Docker not running"))
        }
        FailureKind::MissingCredentials => (ErrorCode::ValidationError, Some(CREDENTIALS_MISSING)),
        FailureKind::HandshakeTimedOut => (ErrorCode::NetworkError, Some("Handshake timed out")),
        FailureKind::BadConfig => (ErrorCode::ValidationError, None),
        FailureKind::NeedsLogin => (ErrorCode::Unauthorized, None),
        FailureKind::Lost | FailureKind::Unreachable | FailureKind::InstallTimedOut => {
            (ErrorCode::NetworkError, None)
        }
        FailureKind::Stopped => (ErrorCode::Conflict, None),
        FailureKind::Internal => (ErrorCode::Internal, None),
        _ => (ErrorCode::ServiceUnavailable, None),
    }
}

/// Why a server that was to run does not.
pub(crate) fn of_state(server: &str, state: &ConnectionState) -> ServiceFault {
    if let Some(failure) = state.failure() {
        return of_failure(failure);
    }
    match state {
        ConnectionState::Disabled => disabled(server),
        ConnectionState::Connecting => {
            let message = format!("`{server}` is still being started");
            ServiceFault::new(ErrorCode::NetworkError, message).hint("look again in a moment")
        }
        _ => ServiceFault::new(ErrorCode::ServiceUnavailable, format!("`{server}` does not run"))
            .hint("start it first"),
    }
}

/// MC-NT1: what is disabled is not started.
pub(crate) fn disabled(server: &str) -> ServiceFault {
    ServiceFault::new(ErrorCode::Conflict, format!("`{server}` is disabled"))
        .hint("enable it first")
        .at("enabled")
}

/// Why a call has no result, or an order was not obeyed.
pub(crate) fn of_rack(error: &RackError) -> ServiceFault {
    let code = match error {
        RackError::NotConnected { server, state } | RackError::NotReady { server, state, .. } => {
            return of_state(server, state);
        }
        RackError::NoSuchServer { .. } | RackError::NoSuchTool { .. } => ErrorCode::NotFound,
        RackError::Ambiguous { .. } => ErrorCode::ValidationError,
        RackError::Denied { .. } => ErrorCode::Denied,
        RackError::Call { source, .. } => of_call(source),
        _ => ErrorCode::ServiceUnavailable,
    };
    let fault = ServiceFault::new(code, plain_text(&with_causes(error), MESSAGE_CHARS));
    match error.hint() {
        Some(hint) => fault.hint(plain_text(&hint, MESSAGE_CHARS)),
        None => fault,
    }
}

fn of_call(error: &CallError) -> ErrorCode {
    match error {
        CallError::TimedOut { .. } => ErrorCode::NetworkError,
        CallError::Unsupported { .. } => ErrorCode::NotFound,
        CallError::Line(failure) => match &failure.error {
            TransportError::Unauthorized(_) => ErrorCode::Unauthorized,
            TransportError::ProcessExited(_)
            | TransportError::Spawn(_)
            | TransportError::Oversize { .. }
            | TransportError::Parse(_)
            | TransportError::Status { .. } => ErrorCode::ServiceUnavailable,
            TransportError::Serialize(_) => ErrorCode::ValidationError,
            _ => ErrorCode::NetworkError,
        },
        _ => ErrorCode::ServiceUnavailable,
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::time::Duration;

    use toolrack_transport::JsonRpcError;
    use toolrack_transport::{AuthError, Delivery, Exit, LineError, ServerExit};

    use super::*;

    #[track_caller]
    fn check_failure(kind: FailureKind, code: ErrorCode, message: &str) {
        let fault = of_failure(&Failure::new(kind, "why").hinting("what"));
        assert_eq!((fault.code, fault.message.as_str()), (code, message));
        let hint = if message == "why" { "what" } else { "why; what" };
        assert_eq!(fault.hint.as_deref(), Some(hint));
    }

    /// Spec 004, startup errors, word for word.
    #[test]
    fn startup_errors_are_those_of_the_contract() {
        use ErrorCode::{
            Conflict, NetworkError, NotFound, ServiceUnavailable, Unauthorized, ValidationError,
        };
        check_failure(FailureKind::PackageNotFound, NotFound, "Package not found");
        check_failure(FailureKind::DockerNotRunning, ServiceUnavailable, "Docker not running");
        check_failure(
            FailureKind::MissingCredentials,
            ValidationError,
            "Missing required credentials",
        );
        check_failure(FailureKind::HandshakeTimedOut, NetworkError, "Handshake timed out");
        check_failure(FailureKind::Exited, ServiceUnavailable, "why");
        check_failure(FailureKind::Lost, NetworkError, "why");
        check_failure(FailureKind::Unreachable, NetworkError, "why");
        check_failure(FailureKind::MissingTool, ServiceUnavailable, "why");
        check_failure(FailureKind::InstallFailed, ServiceUnavailable, "why");
        check_failure(FailureKind::BadConfig, ValidationError, "why");
        check_failure(FailureKind::NeedsLogin, Unauthorized, "why");
        check_failure(FailureKind::Stopped, Conflict, "why");
        check_failure(FailureKind::Internal, ErrorCode::Internal, "why");
    }

    #[track_caller]
    fn check_call(source: CallError, code: ErrorCode) {
        let error = RackError::Call {
            server: "demo".to_owned(),
            tool: "greet".to_owned(),
            source: Box::new(source),
        };
        assert_eq!(of_rack(&error).code, code);
    }

    /// Spec 004, runtime errors.
    #[test]
    fn runtime_errors_are_those_of_the_contract() {
        let waited = Duration::from_secs(1);
        check_call(
            CallError::TimedOut { waited, delivery: Delivery::Unknown },
            ErrorCode::NetworkError,
        );
        let exit = ServerExit { exit: Exit::Code(1), stderr: [].into() };
        let line = |error: TransportError| CallError::Line(LineError::unknown(error));
        check_call(line(TransportError::ProcessExited(exit)), ErrorCode::ServiceUnavailable);
        check_call(line(TransportError::Shutdown), ErrorCode::NetworkError);
        let broken = io::Error::from(io::ErrorKind::BrokenPipe);
        check_call(line(TransportError::Io(broken)), ErrorCode::NetworkError);
        let barred = AuthError::LoginNeeded { reason: "no token".to_owned() };
        check_call(line(TransportError::Unauthorized(barred)), ErrorCode::Unauthorized);
        let refused = CallError::Refused(JsonRpcError::new(-32603, "no\u{1b}[1m way"));
        check_call(refused, ErrorCode::ServiceUnavailable);
        check_call(CallError::Unsupported { feature: "tools" }, ErrorCode::NotFound);
    }

    #[test]
    fn what_does_not_run_says_what_to_do() {
        let fault = of_state("demo", &ConnectionState::Disabled);
        assert_eq!(
            (fault.code, fault.message.as_str()),
            (ErrorCode::Conflict, "`demo` is disabled")
        );
        let fault = of_state("demo", &ConnectionState::Disconnected);
        assert_eq!(fault.code, ErrorCode::ServiceUnavailable);
        assert_eq!(fault.hint.as_deref(), Some("start it first"));
        let nearest = vec!["demo_greet".to_owned()];
        let fault = of_rack(&RackError::NoSuchTool { tool: "demo_great".to_owned(), nearest });
        assert_eq!(
            (fault.code, fault.message.as_str()),
            (ErrorCode::NotFound, "there is no tool `demo_great`, but there is `demo_greet`")
        );
    }
}
