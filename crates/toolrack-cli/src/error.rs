//! CLI errors: exit code, error code, message and hint.
//!
//! Errors of the daemon's gateway are decoded here as well, so that they look as if the server had
//! been reached directly. Only the structured `data` of such an error is read, never its message.
//!
//! **Invariant:** at least one fault, always a hint, and no control characters in any text.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use toolrack_client::{CallError, ConnectError};
use toolrack_gateway::{RelayCause, RelayFailure};
use toolrack_manager::{ConnectionState, FailureKind, RackError, with_causes};
use toolrack_service::{ErrorCode, ServiceError, ServiceFault};
use toolrack_transport::{Delivery, TransportError, plain_text};

use crate::exit_code::ExitCode;
use crate::suggested_command::shell_quote;

/// Maximum length of one text; servers may send more than anyone reads.
const MAX_CHARS: usize = 2000;

/// An error of a command.
#[derive(Debug)]
pub(crate) struct CliError {
    exit_code: ExitCode,
    faults: Vec<ServiceFault>,
}

impl CliError {
    pub(crate) fn new(
        exit_code: ExitCode,
        code: ErrorCode,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self::from_faults(exit_code, vec![ServiceFault::new(code, message).hint(hint)])
    }

    /// Several faults. The first hint counts for all.
    pub(crate) fn from_faults(exit_code: ExitCode, faults: Vec<ServiceFault>) -> Self {
        let faults = faults.into_iter().map(sanitized).collect();
        Self { exit_code, faults }
    }

    /// Invalid arguments.
    pub(crate) fn usage(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(ExitCode::Usage, ErrorCode::ValidationError, message, hint)
    }

    /// An unknown name.
    pub(crate) fn unknown(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(ExitCode::Usage, ErrorCode::NotFound, message, hint)
    }

    /// An unusable config.
    pub(crate) fn config(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(ExitCode::Config, ErrorCode::ValidationError, message, hint)
    }

    pub(crate) fn interrupted() -> Self {
        let hint = "run the command again to start over";
        Self::new(ExitCode::Interrupted, ErrorCode::ServiceUnavailable, "interrupted", hint)
    }

    /// A tool ran and reported an error.
    pub(crate) fn tool_failed(tool: &str) -> Self {
        Self::new(
            ExitCode::ToolFailed,
            ErrorCode::ServiceUnavailable,
            format!("the tool `{tool}` returned an error"),
            "see its output for the reason",
        )
    }

    /// Replaces the message.
    #[must_use]
    pub(crate) fn with_message(mut self, message: String) -> Self {
        if let Some(first) = self.faults.first_mut() {
            first.message = plain_text(&message, MAX_CHARS);
        }
        self
    }

    /// Replaces the exit code.
    #[must_use]
    pub(crate) fn with_exit_code(self, exit_code: ExitCode) -> Self {
        Self { exit_code, ..self }
    }

    /// An error of the service, with `hint` unless it has its own.
    pub(crate) fn from_service(error: ServiceError, hint: &str) -> Self {
        let is_helpful = error.hint().is_some();
        let failure = Self::from(error);
        if is_helpful { failure } else { failure.with_hint(hint) }
    }

    /// Replaces the hint.
    #[must_use]
    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        if let Some(first) = self.faults.first_mut() {
            first.hint = Some(plain_text(&hint.into(), MAX_CHARS));
        }
        self
    }

    /// Sets the option or argument that the error is about.
    #[must_use]
    pub(crate) fn with_field(mut self, field: &str) -> Self {
        if let Some(first) = self.faults.first_mut() {
            first.field = Some(plain_text(field, MAX_CHARS));
        }
        self
    }

    pub(crate) fn faults(&self) -> &[ServiceFault] {
        &self.faults
    }

    pub(crate) fn hint(&self) -> Option<&str> {
        self.faults.iter().find_map(|fault| fault.hint.as_deref())
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        self.exit_code
    }

    /// All faults in one, as printed with `-o json`.
    pub(crate) fn summary(&self) -> ServiceFault {
        let messages: Vec<&str> = self.faults.iter().map(|fault| fault.message.as_str()).collect();
        let first = self.faults.first();
        ServiceFault {
            code: first.map_or(ErrorCode::Internal, |fault| fault.code),
            message: messages.join("; "),
            field: first.and_then(|fault| fault.field.clone()),
            hint: self.hint().map(str::to_owned),
            reason: None,
        }
    }
}

fn sanitized(fault: ServiceFault) -> ServiceFault {
    ServiceFault {
        message: plain_text(&fault.message, MAX_CHARS),
        hint: fault.hint.map(|hint| plain_text(&hint, MAX_CHARS)),
        field: fault.field.map(|field| plain_text(&field, MAX_CHARS)),
        ..fault
    }
}

impl From<io::Error> for CliError {
    fn from(error: io::Error) -> Self {
        let hint = "check permissions, free space and resource limits";
        Self::new(ExitCode::Unreachable, ErrorCode::Internal, error.to_string(), hint)
    }
}

impl From<ServiceError> for CliError {
    fn from(error: ServiceError) -> Self {
        let mut faults = error.faults().to_vec();
        if let (None, Some(first)) = (error.hint(), faults.first_mut()) {
            first.hint = Some("see `toolrack --help`".to_owned());
        }
        Self::from_faults(ExitCode::from_error_code(error.code()), faults)
    }
}

impl From<RackError> for CliError {
    fn from(error: RackError) -> Self {
        if let RackError::Call { source, .. } = &error
            && let Some(failure) = relayed(source)
        {
            let message = format!("{error}: {}", failure.summary().message);
            return failure.with_message(message);
        }
        let (exit_code, code) = classify(&error);
        let hint = match (&error, error.hint()) {
            (RackError::Call { source, .. }, _) => call_hint(source).to_owned(),
            (RackError::NotConnected { server, state: ConnectionState::Disabled }, _) => {
                format!("enable it with `toolrack enable {}`", shell_quote(server))
            }
            (_, Some(hint)) => hint,
            (RackError::NoSuchServer { .. }, None) => {
                "list servers with `toolrack list`".to_owned()
            }
            (RackError::NoSuchTool { .. }, None) => "list tools with `toolrack tools`".to_owned(),
            _ => "run the command again with `--verbose` to see the server's output".to_owned(),
        };
        Self::new(exit_code, code, with_causes(&error), hint)
    }
}

impl From<ConnectError> for CliError {
    fn from(error: ConnectError) -> Self {
        let (exit_code, code) = match error {
            ConnectError::NeedsAuth(_) => (ExitCode::Auth, ErrorCode::Unauthorized),
            _ => (ExitCode::Unreachable, ErrorCode::ServiceUnavailable),
        };
        let general = "run the server in a terminal to see why";
        let hint = error.hint().unwrap_or_else(|| general.to_owned());
        Self::new(exit_code, code, with_causes(&error), hint)
    }
}

impl From<CallError> for CliError {
    fn from(error: CallError) -> Self {
        if let Some(failure) = relayed(&error) {
            return failure;
        }
        let (exit_code, code) = classify_call(&error);
        Self::new(exit_code, code, with_causes(&error), call_hint(&error))
    }
}

fn classify(error: &RackError) -> (ExitCode, ErrorCode) {
    match error {
        RackError::NoSuchServer { .. } | RackError::NoSuchTool { .. } => {
            (ExitCode::Usage, ErrorCode::NotFound)
        }
        RackError::Ambiguous { .. } => (ExitCode::Usage, ErrorCode::ValidationError),
        RackError::Denied { .. } => (ExitCode::Denied, ErrorCode::Denied),
        RackError::NotConnected { state, .. } | RackError::NotReady { state, .. } => match state {
            ConnectionState::NeedsAuth(_) => (ExitCode::Auth, ErrorCode::Unauthorized),
            ConnectionState::Disabled => (ExitCode::Config, ErrorCode::Conflict),
            state => classify_start(state.failure().map(toolrack_manager::Failure::kind)),
        },
        RackError::Call { source, .. } => classify_call(source),
        RackError::Undecodable { .. } => (ExitCode::ToolFailed, ErrorCode::ServiceUnavailable),
        _ => (ExitCode::Unreachable, ErrorCode::Internal),
    }
}

fn classify_start(kind: Option<FailureKind>) -> (ExitCode, ErrorCode) {
    match kind {
        Some(FailureKind::BadConfig | FailureKind::MissingCredentials) => {
            (ExitCode::Config, ErrorCode::ValidationError)
        }
        Some(FailureKind::PackageNotFound) => (ExitCode::Unreachable, ErrorCode::NotFound),
        Some(FailureKind::NeedsLogin) => (ExitCode::Auth, ErrorCode::Unauthorized),
        Some(FailureKind::HandshakeTimedOut | FailureKind::Unreachable | FailureKind::Lost) => {
            (ExitCode::Unreachable, ErrorCode::NetworkError)
        }
        _ => (ExitCode::Unreachable, ErrorCode::ServiceUnavailable),
    }
}

fn classify_call(error: &CallError) -> (ExitCode, ErrorCode) {
    match error {
        CallError::TimedOut { .. } => (ExitCode::Unreachable, ErrorCode::NetworkError),
        CallError::Line(failure) => match failure.error {
            TransportError::Unauthorized(_) => (ExitCode::Auth, ErrorCode::Unauthorized),
            _ => (ExitCode::Unreachable, ErrorCode::NetworkError),
        },
        CallError::NoSuchResource { .. } => (ExitCode::Usage, ErrorCode::NotFound),
        _ => (ExitCode::ToolFailed, ErrorCode::ServiceUnavailable),
    }
}

fn call_hint(error: &CallError) -> &'static str {
    match error {
        CallError::TimedOut { delivery, .. } => timeout_hint(*delivery),
        CallError::Refused(error)
            if error.code == toolrack_mcp::ErrorCode::MISSING_CLIENT_CAPABILITY.0 =>
        {
            "the server requires a client feature that the command line lacks, such as sampling"
        }
        CallError::Line(failure) if matches!(failure.error, TransportError::Oversize { .. }) => {
            OVERSIZE_HINT
        }
        CallError::Line(failure) => transport_hint(failure.delivery),
        CallError::NoSuchResource { .. } => "list resources with `toolrack resources`",
        CallError::InputUnanswered { .. } | CallError::TooManyRounds { .. } => {
            "the server requires a client feature that the command line lacks, such as sampling"
        }
        CallError::Unsupported { .. } => "list what the server offers with `toolrack tools`",
        _ => "compare the arguments with the tool's schema: `toolrack tools --schema`",
    }
}

/// Hint for a response above the size limit.
pub(crate) const OVERSIZE_HINT: &str = "the server has responded; request less data, or raise \
     its `max_message_bytes` with `toolrack edit`";

/// Hint for a timeout.
pub(crate) fn timeout_hint(delivery: Delivery) -> &'static str {
    match delivery {
        Delivery::NotSent => "the server does not read its input; allow more time with `--timeout`",
        _ => {
            "the server may have acted; check before retrying, or allow more time with \
             `--timeout`"
        }
    }
}

/// Hint for a failed transport.
pub(crate) fn transport_hint(delivery: Delivery) -> &'static str {
    match delivery {
        Delivery::Unknown => "the server may have acted; check before retrying",
        _ => "run the command again with `--verbose` to see the server's output",
    }
}

/// Whether the servers of this run are behind the daemon, all of them or none. Servers that are
/// connected directly must not be able to forge gateway errors.
static IS_EXPECTED: AtomicBool = AtomicBool::new(false);

/// From now on, responses come from the daemon.
pub(crate) fn expect_relay() {
    IS_EXPECTED.store(true, Ordering::Relaxed);
}

/// The error of the daemon's gateway, or `None` if the server itself returned it.
pub(crate) fn relayed(error: &CallError) -> Option<CliError> {
    if IS_EXPECTED.load(Ordering::Relaxed) { from_relay(error) } else { None }
}

fn from_relay(error: &CallError) -> Option<CliError> {
    let CallError::Refused(refusal) = error else { return None };
    let RelayFailure { delivery, cause, hint } = RelayFailure::read(refusal)?;
    let (exit_code, code) = classify_relay(cause);
    let hint = hint.unwrap_or_else(|| relay_hint(cause, delivery).to_owned());
    Some(CliError::new(exit_code, code, refusal.message.as_str(), hint))
}

fn classify_relay(cause: RelayCause) -> (ExitCode, ErrorCode) {
    match cause {
        RelayCause::TimedOut | RelayCause::Line | RelayCause::TooLarge => {
            (ExitCode::Unreachable, ErrorCode::NetworkError)
        }
        RelayCause::NeedsLogin => (ExitCode::Auth, ErrorCode::Unauthorized),
        RelayCause::BadAnswer => (ExitCode::ToolFailed, ErrorCode::ServiceUnavailable),
        RelayCause::BadConfig => (ExitCode::Config, ErrorCode::ValidationError),
        RelayCause::Disabled => (ExitCode::Config, ErrorCode::Conflict),
        _ => (ExitCode::Unreachable, ErrorCode::ServiceUnavailable),
    }
}

fn relay_hint(cause: RelayCause, delivery: Delivery) -> &'static str {
    match cause {
        RelayCause::TimedOut => timeout_hint(delivery),
        RelayCause::BadAnswer => "see its output with `toolrack logs NAME`",
        RelayCause::Line => transport_hint(delivery),
        RelayCause::TooLarge => OVERSIZE_HINT,
        _ => "see `toolrack status`",
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};
    use toolrack_manager::Rule;
    use toolrack_transport::{JsonRpcError, LineError};

    use super::*;

    #[track_caller]
    fn check(failure: CliError, exit_code: ExitCode, json: &str) {
        assert_eq!(failure.exit_code(), exit_code);
        assert_eq!(serde_json::to_string(&failure.summary()).unwrap(), json);
    }

    #[test]
    fn errors_have_exit_code_code_and_hint() {
        check(
            CliError::usage("no such\u{1b}[31m thing", "look\u{7} again").with_field("k\u{202e}"),
            ExitCode::Usage,
            r#"{"code":"VALIDATION_ERROR","message":"no such thing","field":"k","hint":"look again"}"#,
        );
        let rule = Rule::Denied { pattern: "rm*".to_owned() };
        check(
            RackError::Denied { server: "fs".to_owned(), tool: "rm".to_owned(), rule }.into(),
            ExitCode::Denied,
            r#"{"code":"DENIED","message":"the tool `rm` of `fs` is denied: the rule `deny = \"rm*\"` matches it","hint":"change `allow` or `deny` of the server to use it"}"#,
        );
        let late =
            CallError::TimedOut { waited: Duration::from_secs(3), delivery: Delivery::Unknown };
        check(
            late.into(),
            ExitCode::Unreachable,
            r#"{"code":"NETWORK_ERROR","message":"no answer within 3s","hint":"the server may have acted; check before retrying, or allow more time with `--timeout`"}"#,
        );
        let large = LineError::answered(TransportError::Oversize { limit_bytes: 10 });
        let large = CliError::from(CallError::Line(large));
        assert!(large.hint().unwrap().contains("`max_message_bytes`"), "{large:?}");
    }

    #[test]
    fn several_faults_are_summarized() {
        let faults = vec![
            ServiceFault::new(ErrorCode::ValidationError, "missing argument `a`").at("a"),
            ServiceFault::new(ErrorCode::ValidationError, "`b` is unknown").hint("name it"),
        ];
        check(
            CliError::from_faults(ExitCode::Usage, faults),
            ExitCode::Usage,
            r#"{"code":"VALIDATION_ERROR","message":"missing argument `a`; `b` is unknown","field":"a","hint":"name it"}"#,
        );
    }

    fn refused(code: i64, data: Value) -> CallError {
        let error = JsonRpcError::new(code, "the line to the server failed");
        CallError::Refused(JsonRpcError { data: Some(data), ..error })
    }

    #[track_caller]
    fn check_gateway_error(data: Value, exit_code: ExitCode, hint: &str) {
        let failure = from_relay(&refused(-32603, data)).unwrap();
        assert_eq!((failure.exit_code(), failure.hint()), (exit_code, Some(hint)));
        assert_eq!(failure.summary().message, "the line to the server failed");
    }

    #[test]
    fn gateway_errors_are_classified_like_direct_ones() {
        let data = |delivery: &str, cause: &str| json!({ "delivery": delivery, "cause": cause });
        let look = "the server may have acted; check before retrying";
        check_gateway_error(data("unknown", "line"), ExitCode::Unreachable, look);
        let look =
            "the server may have acted; check before retrying, or allow more time with `--timeout`";
        check_gateway_error(data("unknown", "timed_out"), ExitCode::Unreachable, look);
        let write = "run the command again with `--verbose` to see the server's output";
        check_gateway_error(data("not_sent", "line"), ExitCode::Unreachable, write);
        let hinted = json!({ "delivery": "not_sent", "cause": "needs_login", "hint": "log in" });
        check_gateway_error(hinted, ExitCode::Auth, "log in");
        check_gateway_error(data("answered", "too_large"), ExitCode::Unreachable, OVERSIZE_HINT);
        let general = "see `toolrack status`";
        check_gateway_error(data("not_sent", "bad_config"), ExitCode::Config, general);
        check_gateway_error(data("not_sent", "not_connected"), ExitCode::Unreachable, general);
    }

    #[test]
    fn server_errors_are_not_gateway_errors() {
        assert!(from_relay(&refused(-32603, json!({ "delivery": "to the door" }))).is_none());
        assert!(
            from_relay(&refused(-32602, json!({ "delivery": "unknown", "cause": "line" })))
                .is_none()
        );
        assert!(from_relay(&CallError::TooManyRounds { rounds: 1 }).is_none());
        let forged = json!({ "delivery": "not_sent", "cause": "line", "hint": "run this" });
        assert!(relayed(&refused(-32603, forged)).is_none(), "only the daemon is trusted");
    }
}
