//! Errors of the service (`{code, message, field}` of spec 004), and how manager errors map to them.
//!
//! The mapping reads error kinds only, never text.

use std::path::Path;
use std::{fmt, io};

use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use toolrack_manager::{ConnectionState, ErrorKind, Failure, ManagerError, error_chain};
use toolrack_transport::sanitize_line;

use crate::validate::CREDENTIALS_MISSING;

/// An error with one or more details; validation reports all of them.
///
/// **Invariant:** there is at least one detail, and no text contains a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", summary(details))]
pub struct ServiceError {
    details: Vec<ErrorDetail>,
}

/// One problem, as callers outside of the program get it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorDetail {
    /// Its code.
    pub code: ErrorCode,
    /// One clause for people.
    pub message: String,
    /// Path in the caller's document, such as `package.identifier`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// What to do next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The cause, if spec 004 dictates `message`. `hint` starts with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Error codes. Each calls for a different reaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[non_exhaustive]
pub enum ErrorCode {
    /// The input is invalid.
    ValidationError,
    /// The server, tool or package does not exist.
    NotFound,
    /// The request conflicts with the current state.
    Conflict,
    /// Something that the request needs is not running.
    ServiceUnavailable,
    /// No response, or not in time.
    NetworkError,
    /// A login is required.
    Unauthorized,
    /// A rule denies it.
    Denied,
    /// A bug of Toolrack.
    Internal,
}

impl ErrorCode {
    /// The code on the wire.
    pub fn as_str(self) -> &'static str {
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

impl From<ErrorKind> for ErrorCode {
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::Ambiguous
            | ErrorKind::BadConfig
            | ErrorKind::MissingCredentials
            | ErrorKind::InvalidArguments => Self::ValidationError,
            ErrorKind::NoSuchServer
            | ErrorKind::NoSuchTool
            | ErrorKind::NoSuchResource
            | ErrorKind::PackageNotFound
            | ErrorKind::Unsupported => Self::NotFound,
            ErrorKind::Disabled | ErrorKind::Stopped => Self::Conflict,
            ErrorKind::NeedsLogin => Self::Unauthorized,
            ErrorKind::Denied => Self::Denied,
            ErrorKind::Starting
            | ErrorKind::HandshakeTimedOut
            | ErrorKind::InstallTimedOut
            | ErrorKind::Unreachable
            | ErrorKind::Lost
            | ErrorKind::TimedOut => Self::NetworkError,
            ErrorKind::Internal => Self::Internal,
            _ => Self::ServiceUnavailable,
        }
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl ErrorDetail {
    /// A detail without a field.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), field: None, hint: None, reason: None }
    }

    /// Sets the field.
    #[must_use]
    pub fn with_field(self, field: impl Into<String>) -> Self {
        Self { field: Some(field.into()), ..self }
    }

    /// Sets the hint: what to do next.
    #[must_use]
    pub fn with_hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// A detail whose message spec 004 dictates, with its cause and hint.
    pub(crate) fn with_contract_message(
        code: ErrorCode,
        message: &str,
        reason: &str,
        hint: Option<&str>,
    ) -> Self {
        // A caller that knows only the fields of spec 004 finds the cause in the hint.
        let full_hint = hint.map_or_else(|| reason.to_owned(), |hint| format!("{reason}; {hint}"));
        Self { reason: Some(reason.to_owned()), ..Self::new(code, message).with_hint(full_hint) }
    }

    /// Uses the cause as the message, and takes it out of the hint.
    #[must_use]
    pub fn with_reason_as_message(self) -> Self {
        let Some(reason) = self.reason else { return self };
        // `with_contract_message` has put the reason in front of the hint.
        let rest = self.hint.as_deref().and_then(|hint| hint.strip_prefix(reason.as_str()));
        let hint = rest.and_then(|hint| hint.strip_prefix("; ")).map(str::to_owned);
        Self { message: reason, hint, reason: None, ..self }
    }
}

impl ServiceError {
    /// An error with one detail and no field.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        ErrorDetail::new(code, message).into()
    }

    /// `Ok` if there are no details, else an error with all of them.
    ///
    /// # Errors
    ///
    /// There is a detail.
    pub fn if_any(details: Vec<ErrorDetail>) -> Result<(), Self> {
        if details.is_empty() { Ok(()) } else { Err(Self { details }) }
    }

    /// Sets the field of all details.
    #[must_use]
    pub fn with_field(self, field: &str) -> Self {
        Self { details: self.details.into_iter().map(|detail| detail.with_field(field)).collect() }
    }

    /// All details.
    pub fn details(&self) -> &[ErrorDetail] {
        &self.details
    }

    /// The code of the first detail.
    pub fn code(&self) -> ErrorCode {
        self.details.first().map_or(ErrorCode::Internal, |detail| detail.code)
    }

    /// The first hint.
    pub fn hint(&self) -> Option<&str> {
        self.details.iter().find_map(|detail| detail.hint.as_deref())
    }
}

impl From<ErrorDetail> for ServiceError {
    fn from(detail: ErrorDetail) -> Self {
        Self { details: vec![detail] }
    }
}

impl fmt::Display for ErrorDetail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        self.field.as_ref().map_or(Ok(()), |field| write!(f, " (`{field}`)"))
    }
}

fn summary(details: &[ErrorDetail]) -> String {
    let texts: Vec<String> = details.iter().map(ToString::to_string).collect();
    texts.join("; ")
}

/// Longest message that is passed on.
const MESSAGE_CHARS: usize = 2000;

impl ErrorDetail {
    /// Why a server is not connected.
    pub(crate) fn from_failure(failure: &Failure) -> Self {
        let code = ErrorCode::from(failure.kind());
        let message = match failure.kind() {
            // The messages of spec 004, word for word.
            ErrorKind::PackageNotFound => "Package not found",
            ErrorKind::DockerNotRunning => "Docker not running",
            ErrorKind::MissingCredentials => CREDENTIALS_MISSING,
            ErrorKind::HandshakeTimedOut => "Handshake timed out",
            _ => {
                let hint = failure.hint().map(str::to_owned);
                return Self { hint, ..Self::new(code, failure.reason()) };
            }
        };
        Self::with_contract_message(code, message, failure.reason(), failure.hint())
    }

    /// Why a server that should run does not.
    pub(crate) fn from_state(server: &str, state: &ConnectionState) -> Self {
        if let Some(failure) = state.failure() {
            return Self::from_failure(failure);
        }
        match state {
            ConnectionState::Disabled => Self::disabled(server),
            ConnectionState::Connecting => {
                let message = format!("`{server}` is still starting");
                Self::new(ErrorCode::NetworkError, message).with_hint("try again in a moment")
            }
            _ => Self::new(ErrorCode::ServiceUnavailable, format!("`{server}` is not running"))
                .with_hint("start it first"),
        }
    }

    /// MC-NT1: a disabled server is not started.
    pub(crate) fn disabled(server: &str) -> Self {
        Self::new(ErrorCode::Conflict, format!("`{server}` is disabled"))
            .with_hint("enable it first")
            .with_field("enabled")
    }

    /// Why a call has no result, or a request to the manager failed.
    pub(crate) fn from_manager_error(error: &ManagerError) -> Self {
        if let ManagerError::NotConnected { server, state }
        | ManagerError::NotReady { server, state, .. } = error
        {
            return Self::from_state(server, state);
        }
        let code = ErrorCode::from(error.kind());
        let hint = error.hint().map(|hint| sanitize_line(&hint, MESSAGE_CHARS));
        Self { hint, ..Self::new(code, sanitize_line(&error_chain(error), MESSAGE_CHARS)) }
    }
}

/// Describes a failed file operation (`read`, `save`, `remove`), with a hint where one is known.
pub(crate) fn io_error(action: &str, path: &Path, error: io::Error) -> ServiceError {
    use ErrorCode::{ServiceUnavailable, ValidationError};
    use io::ErrorKind as Kind;
    let (code, reason, hint) = match error.kind() {
        _ if Errno::from_io_error(&error) == Some(Errno::LOOP) => (
            ValidationError,
            "too many levels of symbolic links",
            "remove the link, or point it to a file",
        ),
        Kind::TimedOut => (
            ServiceUnavailable,
            "another program holds its lock",
            "check for a hanging `toolrack` process and stop it",
        ),
        Kind::StorageFull | Kind::QuotaExceeded => (
            ServiceUnavailable,
            "the disk is full",
            "free some space and try again; nothing was changed",
        ),
        Kind::PermissionDenied => (
            ServiceUnavailable,
            "permission denied",
            "check the owner and mode of the file and its directory",
        ),
        Kind::ReadOnlyFilesystem => (
            ServiceUnavailable,
            "the file system is read-only",
            "remount it read-write, or set `TOOLRACK_HOME` to another directory",
        ),
        Kind::FileTooLarge => (ValidationError, "the file is too large", "check its content"),
        Kind::IsADirectory => (ValidationError, "it is a directory", "move it away"),
        Kind::InvalidInput => (ValidationError, "not a regular file", "move it away"),
        _ => {
            let message = format!("cannot {action} `{}`: {error}", path.display());
            return ServiceError::new(ServiceUnavailable, message);
        }
    };
    let message = format!("cannot {action} `{}`: {reason}", path.display());
    ErrorDetail::new(code, message).with_hint(hint).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn details_have_the_shape_of_spec_004() {
        let details = vec![
            ErrorDetail::new(ErrorCode::ValidationError, "Name is required").with_field("name"),
            ErrorDetail::new(ErrorCode::NotFound, "Package not found").with_hint("look it up"),
        ];
        let error = ServiceError::if_any(details).unwrap_err();
        assert_eq!(error.to_string(), "Name is required (`name`); Package not found");
        assert_eq!(error.code(), ErrorCode::ValidationError);
        assert_eq!(error.hint(), Some("look it up"));
        assert_eq!(
            serde_json::to_string(&error.details()[0]).unwrap(),
            r#"{"code":"VALIDATION_ERROR","message":"Name is required","field":"name"}"#
        );
        assert_eq!(ServiceError::if_any(Vec::new()), Ok(()));
    }

    #[track_caller]
    fn check_detail(detail: ErrorDetail, expected: (&str, Option<&str>)) {
        let detail = detail.with_reason_as_message();
        assert_eq!((detail.message.as_str(), detail.hint.as_deref()), expected);
        assert_eq!(detail.reason, None);
    }

    #[test]
    fn reason_can_replace_a_contract_message() {
        let detail =
            |hint| ErrorDetail::with_contract_message(ErrorCode::NotFound, "Gone", "no `x`", hint);
        assert_eq!(detail(Some("look")).hint.as_deref(), Some("no `x`; look"));
        check_detail(detail(Some("look")), ("no `x`", Some("look")));
        check_detail(detail(None), ("no `x`", None));
        let plain = ErrorDetail::new(ErrorCode::NotFound, "gone").with_hint("look");
        check_detail(plain, ("gone", Some("look")));
    }
}

#[cfg(test)]
mod mapping_tests {
    use std::io;
    use std::time::Duration;

    use toolrack_client::CallError;
    use toolrack_transport::{AuthError, Delivery, ExitStatus, ProcessExit, RequestError};
    use toolrack_transport::{JsonRpcError, TransportError};

    use super::*;

    #[track_caller]
    fn check_failure(kind: ErrorKind, code: ErrorCode, message: &str) {
        let detail = ErrorDetail::from_failure(&Failure::new(kind, "why").with_hint("what"));
        assert_eq!((detail.code, detail.message.as_str()), (code, message));
        let hint = if message == "why" { "what" } else { "why; what" };
        assert_eq!(detail.hint.as_deref(), Some(hint));
    }

    /// Spec 004, startup errors, word for word.
    #[test]
    fn startup_errors_match_spec_004() {
        use ErrorCode::{
            Conflict, NetworkError, NotFound, ServiceUnavailable, Unauthorized, ValidationError,
        };
        check_failure(ErrorKind::PackageNotFound, NotFound, "Package not found");
        check_failure(ErrorKind::DockerNotRunning, ServiceUnavailable, "Docker not running");
        check_failure(
            ErrorKind::MissingCredentials,
            ValidationError,
            "Missing required credentials",
        );
        check_failure(ErrorKind::HandshakeTimedOut, NetworkError, "Handshake timed out");
        check_failure(ErrorKind::Exited, ServiceUnavailable, "why");
        check_failure(ErrorKind::Lost, NetworkError, "why");
        check_failure(ErrorKind::Unreachable, NetworkError, "why");
        check_failure(ErrorKind::MissingTool, ServiceUnavailable, "why");
        check_failure(ErrorKind::InstallFailed, ServiceUnavailable, "why");
        check_failure(ErrorKind::BadConfig, ValidationError, "why");
        check_failure(ErrorKind::NeedsLogin, Unauthorized, "why");
        check_failure(ErrorKind::Stopped, Conflict, "why");
        check_failure(ErrorKind::Internal, ErrorCode::Internal, "why");
    }

    #[track_caller]
    fn check_call(source: CallError, code: ErrorCode) {
        let error = ManagerError::Call {
            server: "demo".to_owned(),
            tool: "greet".to_owned(),
            source: Box::new(source),
        };
        assert_eq!(ErrorDetail::from_manager_error(&error).code, code);
    }

    /// Spec 004, runtime errors.
    #[test]
    fn runtime_errors_match_spec_004() {
        let waited = Duration::from_secs(1);
        check_call(
            CallError::TimedOut { waited, delivery: Delivery::Unknown },
            ErrorCode::NetworkError,
        );
        let exit = ProcessExit { status: ExitStatus::Code(1), stderr: [].into() };
        let transport = |error: TransportError| CallError::Transport(RequestError::unknown(error));
        check_call(transport(TransportError::ProcessExited(exit)), ErrorCode::ServiceUnavailable);
        check_call(transport(TransportError::Shutdown), ErrorCode::NetworkError);
        let broken = io::Error::from(io::ErrorKind::BrokenPipe);
        check_call(transport(TransportError::Io(broken)), ErrorCode::NetworkError);
        let unauthorized = AuthError::LoginRequired { reason: "no token".to_owned() };
        check_call(transport(TransportError::Unauthorized(unauthorized)), ErrorCode::Unauthorized);
        let refused = CallError::Refused(JsonRpcError::new(-32603, "no\u{1b}[1m way"));
        check_call(refused, ErrorCode::ServiceUnavailable);
        check_call(CallError::Unsupported { feature: "tools" }, ErrorCode::NotFound);
    }

    #[test]
    fn unavailable_server_has_a_hint() {
        let detail = ErrorDetail::from_state("demo", &ConnectionState::Disabled);
        assert_eq!(
            (detail.code, detail.message.as_str()),
            (ErrorCode::Conflict, "`demo` is disabled")
        );
        let detail = ErrorDetail::from_state("demo", &ConnectionState::Disconnected);
        assert_eq!(detail.code, ErrorCode::ServiceUnavailable);
        assert_eq!(detail.hint.as_deref(), Some("start it first"));
        let nearest = vec!["demo_greet".to_owned()];
        let detail = ErrorDetail::from_manager_error(&ManagerError::NoSuchTool {
            tool: "demo_great".to_owned(),
            suggestions: nearest,
        });
        assert_eq!(
            (detail.code, detail.message.as_str()),
            (ErrorCode::NotFound, "no tool named `demo_great`; did you mean `demo_greet`?")
        );
    }
}

#[cfg(test)]
mod io_error_tests {
    use super::*;

    #[track_caller]
    fn check(errno: Errno, expected: &str) {
        let error = io_error("save", Path::new("/a/b.toml"), errno.into());
        let hint = error.hint().unwrap_or_default();
        assert_eq!(format!("{} {error} | {hint}", error.code()), expected);
    }

    #[test]
    fn io_errors_have_messages_and_hints() {
        check(
            Errno::NOSPC,
            "SERVICE_UNAVAILABLE cannot save `/a/b.toml`: the disk is full | free some space and try again; nothing was changed",
        );
        check(
            Errno::ACCESS,
            "SERVICE_UNAVAILABLE cannot save `/a/b.toml`: permission denied | check the owner and mode of the file and its directory",
        );
        check(
            Errno::ROFS,
            "SERVICE_UNAVAILABLE cannot save `/a/b.toml`: the file system is read-only | remount it read-write, or set `TOOLRACK_HOME` to another directory",
        );
        check(
            Errno::LOOP,
            "VALIDATION_ERROR cannot save `/a/b.toml`: too many levels of symbolic links | remove the link, or point it to a file",
        );
        check(
            Errno::IO,
            "SERVICE_UNAVAILABLE cannot save `/a/b.toml`: Input/output error (os error 5) | ",
        );
    }
}
