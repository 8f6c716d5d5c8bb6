//! What is told to a caller when something cannot be done: a code, a message and the field it is about.

use std::fmt;

use serde::{Deserialize, Serialize};
use toolrack_client::CallError;
use toolrack_manager::{ConnectionState, Failure, FailureKind, RackError, with_causes};
use toolrack_transport::{TransportError, plain_text};

use crate::validate::CREDENTIALS_MISSING;

/// Why something could not be done, with every fault that was found.
///
/// **Invariant:** there is at least one fault, and no text of one holds a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", summary(faults))]
pub struct ServiceError {
    faults: Vec<ServiceFault>,
}

/// One fault, in the shape in which it leaves the program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceFault {
    /// What kind of fault it is.
    pub code: ErrorCode,
    /// One clause for a person.
    pub message: String,
    /// Where it is in the document that the caller gave, such as `package.identifier`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// What to do next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// What happened in detail, where the contract gives `message` its words. `hint` begins with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The kinds of fault. Each asks for its own reaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[non_exhaustive]
pub enum ErrorCode {
    /// The input has to be changed.
    ValidationError,
    /// There is no such thing.
    NotFound,
    /// It does not fit to how things are now.
    Conflict,
    /// Something that is needed does not run.
    ServiceUnavailable,
    /// Somebody did not answer, or not in time.
    NetworkError,
    /// A login is needed.
    Unauthorized,
    /// A rule forbids it.
    Denied,
    /// A fault of our own.
    Internal,
}

impl ErrorCode {
    /// As it is written outside of this program.
    pub fn word(self) -> &'static str {
        match self {
            Self::ValidationError => "VALIDATION_ERROR",
            Self::NotFound => "NOT_FOUND",
            Self::Conflict => "CONFLICT",
            Self::ServiceUnavailable => "SERVICE_UNAVAILABLE",
            Self::NetworkError => "NETWORK_ERROR",
            Self::Unauthorized => "UNAUTHORIZED",
            Self::Denied => "DENIED",
            Self::Internal => "INTERNAL",
        }
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl ServiceFault {
    /// A fault of no particular field.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), field: None, hint: None, reason: None }
    }

    /// Says which field it is about.
    #[must_use]
    pub fn at(self, field: impl Into<String>) -> Self {
        Self { field: Some(field.into()), ..self }
    }

    /// Says what to do next.
    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// In words of the contract, with what happened in detail and what to do next.
    pub(crate) fn in_words(code: ErrorCode, words: &str, reason: &str, hint: Option<&str>) -> Self {
        // Whoever knows the contract alone finds the reason in the hint.
        let whole = hint.map_or_else(|| reason.to_owned(), |hint| format!("{reason}; {hint}"));
        Self { reason: Some(reason.to_owned()), ..Self::new(code, words).hint(whole) }
    }

    /// The same in its own words: the reason is the message, and the hint says what to do and nothing else.
    #[must_use]
    pub fn in_detail(self) -> Self {
        let Some(reason) = self.reason else { return self };
        let rest = self.hint.as_deref().and_then(|it| it.strip_prefix(reason.as_str()));
        let hint = rest.and_then(|it| it.strip_prefix("; ")).map(str::to_owned);
        Self { message: reason, hint, reason: None, ..self }
    }
}

impl ServiceError {
    /// An error with one fault and no field.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        ServiceFault::new(code, message).into()
    }

    /// All faults at once, or `Ok` if there are none.
    ///
    /// # Errors
    ///
    /// When there is a fault.
    pub fn unless_empty(faults: Vec<ServiceFault>) -> Result<(), Self> {
        if faults.is_empty() { Ok(()) } else { Err(Self { faults }) }
    }

    /// The same faults, all of one field.
    #[must_use]
    pub fn at(self, field: &str) -> Self {
        Self { faults: self.faults.into_iter().map(|it| it.at(field)).collect() }
    }

    /// Everything that was found.
    pub fn faults(&self) -> &[ServiceFault] {
        &self.faults
    }

    /// The code of the first fault.
    pub fn code(&self) -> ErrorCode {
        self.faults.first().map_or(ErrorCode::Internal, |fault| fault.code)
    }

    /// What to do next, if it is known.
    pub fn hint(&self) -> Option<&str> {
        self.faults.iter().find_map(|fault| fault.hint.as_deref())
    }
}

impl From<ServiceFault> for ServiceError {
    fn from(fault: ServiceFault) -> Self {
        Self { faults: vec![fault] }
    }
}

impl fmt::Display for ServiceFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        self.field.as_ref().map_or(Ok(()), |field| write!(f, " (`{field}`)"))
    }
}

fn summary(faults: &[ServiceFault]) -> String {
    let texts: Vec<String> = faults.iter().map(ToString::to_string).collect();
    texts.join("; ")
}

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
    use super::*;

    #[test]
    fn every_fault_is_told_in_the_shape_of_the_contract() {
        let faults = vec![
            ServiceFault::new(ErrorCode::ValidationError, "Name is required").at("name"),
            ServiceFault::new(ErrorCode::NotFound, "Package not found").hint("look it up"),
        ];
        let error = ServiceError::unless_empty(faults).unwrap_err();
        assert_eq!(error.to_string(), "Name is required (`name`); Package not found");
        assert_eq!(error.code(), ErrorCode::ValidationError);
        assert_eq!(error.hint(), Some("look it up"));
        assert_eq!(
            serde_json::to_string(&error.faults()[0]).unwrap(),
            r#"{"code":"VALIDATION_ERROR","message":"Name is required","field":"name"}"#
        );
        assert_eq!(ServiceError::unless_empty(Vec::new()), Ok(()));
    }

    #[track_caller]
    fn check_detail(fault: ServiceFault, expected: (&str, Option<&str>)) {
        let told = fault.in_detail();
        assert_eq!((told.message.as_str(), told.hint.as_deref()), expected);
        assert_eq!(told.reason, None);
    }

    #[test]
    fn what_the_contract_words_can_be_told_in_detail() {
        let fault = |hint| ServiceFault::in_words(ErrorCode::NotFound, "Gone", "no `x`", hint);
        assert_eq!(fault(Some("look")).hint.as_deref(), Some("no `x`; look"));
        check_detail(fault(Some("look")), ("no `x`", Some("look")));
        check_detail(fault(None), ("no `x`", None));
        let plain = ServiceFault::new(ErrorCode::NotFound, "gone").hint("look");
        check_detail(plain, ("gone", Some("look")));
    }
}

#[cfg(test)]
mod mapping_tests {
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
