//! CLI errors: exit code, error code, message and hint.
//!
//! Errors of the daemon's gateway are decoded here as well, so that they look as if the server had
//! been reached directly. Only the structured `data` of such an error is read, never its message.
//!
//! **Invariant:** at least one fault, always a hint, and no control characters in any text.

use std::io;

use toolrack_client::{CallError, ConnectError};
use toolrack_gateway::GatewayErrorData;
use toolrack_manager::{ConnectionState, ErrorKind, ManagerError, error_chain};
use toolrack_service::{ErrorCode, ErrorDetail, ServiceError};
use toolrack_transport::{Delivery, JsonRpcError, sanitize_line};

use crate::exit_code::ExitCode;
use crate::suggested_command::{command, server_command};

/// Maximum length of one text; servers may send more than anyone reads.
const MAX_CHARS: usize = 2000;

/// An error of a command.
#[derive(Debug)]
pub(crate) struct CliError {
    exit_code: ExitCode,
    error_details: Vec<ErrorDetail>,
    /// The JSON-RPC error behind it, if a server or the daemon's gateway sent one.
    json_rpc: Option<Box<JsonRpcCause>>,
}

#[derive(Debug)]
struct JsonRpcCause {
    /// Goes before the message of the error.
    prefix: String,
    error: JsonRpcError,
}

impl CliError {
    pub(crate) fn new(
        exit_code: ExitCode,
        code: ErrorCode,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self::from_details(exit_code, vec![ErrorDetail::new(code, message).with_hint(hint)])
    }

    /// A failed request or connection.
    fn from_kind(kind: ErrorKind, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(ExitCode::from(kind), ErrorCode::from(kind), message, hint)
    }

    /// The error as the daemon's gateway classified it, for servers behind the daemon. Servers that
    /// are connected directly must not be able to forge gateway errors.
    pub(crate) fn into_gateway_error(self) -> Self {
        let Some(JsonRpcCause { prefix, error }) = self.json_rpc.as_deref() else { return self };
        let Some(data) = GatewayErrorData::from_error(error) else { return self };
        let GatewayErrorData { delivery, cause, hint } = data;
        let hint = hint.unwrap_or_else(|| relay_hint(cause, delivery));
        Self::from_kind(cause, format!("{prefix}{}", error.message), hint)
    }

    /// Several faults. The first hint counts for all.
    pub(crate) fn from_details(exit_code: ExitCode, error_details: Vec<ErrorDetail>) -> Self {
        let error_details = error_details.into_iter().map(sanitized).collect();
        Self { exit_code, error_details, json_rpc: None }
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
        if let Some(first) = self.error_details.first_mut() {
            first.message = sanitize_line(&message, MAX_CHARS);
        }
        // The new message is about more than the response.
        self.json_rpc = None;
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
        if let Some(first) = self.error_details.first_mut() {
            first.hint = Some(sanitize_line(&hint.into(), MAX_CHARS));
        }
        self
    }

    /// Sets the option or argument that the error is about.
    #[must_use]
    pub(crate) fn with_field(mut self, field: &str) -> Self {
        if let Some(first) = self.error_details.first_mut() {
            first.field = Some(sanitize_line(field, MAX_CHARS));
        }
        self
    }

    pub(crate) fn error_details(&self) -> &[ErrorDetail] {
        &self.error_details
    }

    pub(crate) fn hint(&self) -> Option<&str> {
        self.error_details.iter().find_map(|error_detail| error_detail.hint.as_deref())
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        self.exit_code
    }

    /// All faults in one, as printed with `-o json`.
    pub(crate) fn summary(&self) -> ErrorDetail {
        let messages: Vec<&str> =
            self.error_details.iter().map(|error_detail| error_detail.message.as_str()).collect();
        let first = self.error_details.first();
        ErrorDetail {
            code: first.map_or(ErrorCode::Internal, |error_detail| error_detail.code),
            // One line, because scripts read a single JSON document from stderr.
            message: messages.join("; "),
            field: first.and_then(|error_detail| error_detail.field.clone()),
            hint: self.hint().map(str::to_owned),
            reason: None,
        }
    }
}

fn sanitized(error_detail: ErrorDetail) -> ErrorDetail {
    ErrorDetail {
        message: sanitize_line(&error_detail.message, MAX_CHARS),
        hint: error_detail.hint.map(|hint| sanitize_line(&hint, MAX_CHARS)),
        field: error_detail.field.map(|field| sanitize_line(&field, MAX_CHARS)),
        ..error_detail
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
        let mut error_details = error.details().to_vec();
        if let (None, Some(first)) = (error.hint(), error_details.first_mut()) {
            first.hint = Some("see `toolrack --help`".to_owned());
        }
        Self::from_details(ExitCode::from_error_code(error.code()), error_details)
    }
}

impl From<ManagerError> for CliError {
    fn from(error: ManagerError) -> Self {
        let (kind, delivery) = (error.kind(), error.delivery());
        let hint = match (&error, error.hint()) {
            (ManagerError::NotConnected { server, state: ConnectionState::Disabled }, _) => {
                format!("enable it with {}", server_command("enable", server))
            }
            (ManagerError::Call { .. }, _) | (_, None) => hint(kind, delivery),
            (_, Some(hint)) => hint,
        };
        let json_rpc = error.json_rpc_error().cloned();
        let json_rpc =
            json_rpc.map(|json_rpc| JsonRpcCause { prefix: format!("{error}: "), error: json_rpc });
        let cli_error = Self::from_kind(kind, error_chain(&error), hint);
        Self { json_rpc: json_rpc.map(Box::new), ..cli_error }
    }
}

impl From<ConnectError> for CliError {
    fn from(error: ConnectError) -> Self {
        let kind = ErrorKind::from_connect_error(&error);
        let general = "run the server in a terminal to see why";
        let hint = error.hint().unwrap_or_else(|| general.to_owned());
        Self::from_kind(kind, error_chain(&error), hint)
    }
}

impl From<CallError> for CliError {
    fn from(error: CallError) -> Self {
        let kind = ErrorKind::from_call_error(&error);
        let cli_error = Self::from_kind(kind, error_chain(&error), hint(kind, error.delivery()));
        let json_rpc = match error {
            CallError::Refused(error) => {
                Some(Box::new(JsonRpcCause { prefix: String::new(), error }))
            }
            _ => None,
        };
        Self { json_rpc, ..cli_error }
    }
}

/// What to do about a failed request, where the error itself has no hint.
fn hint(kind: ErrorKind, delivery: Delivery) -> String {
    let text = match (kind, delivery) {
        (ErrorKind::NoSuchServer, _) => return format!("list servers with {}", command("list")),
        (ErrorKind::NoSuchTool, _) => return format!("list tools with {}", command("tools")),
        (ErrorKind::NoSuchResource, _) => {
            return format!("list resources with {}", command("resources"));
        }
        (ErrorKind::TooLarge, _) => {
            let about = "the server has responded; request less data, or raise its";
            return format!("{about} `max_message_bytes` with {}", command("edit"));
        }
        (ErrorKind::Unsupported, _) => {
            return format!("list what the server offers with {}", command("tools"));
        }
        (ErrorKind::Rejected | ErrorKind::InvalidResponse, _) => {
            let schema = command("tools --schema");
            return format!("compare the arguments with the tool's schema: {schema}");
        }
        (ErrorKind::MissingCapability, _) => {
            "the server requires a client feature that the command line lacks, such as sampling"
        }
        (ErrorKind::TimedOut, Delivery::NotSent) => {
            "the server does not read its input; allow more time with `--timeout`"
        }
        (ErrorKind::TimedOut, _) => {
            "the server may have acted; check before retrying, or allow more time with \
             `--timeout`"
        }
        (_, Delivery::Unknown) => "the server may have acted; check before retrying",
        _ => "run the command again with `--verbose` to see the server's output",
    };
    text.to_owned()
}

fn relay_hint(cause: ErrorKind, delivery: Delivery) -> String {
    match cause {
        ErrorKind::TimedOut | ErrorKind::Lost | ErrorKind::TooLarge => hint(cause, delivery),
        ErrorKind::InvalidResponse => format!("see its output with {}", command("logs NAME")),
        _ => format!("see {}", command("status")),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};
    use toolrack_manager::FilterRule;
    use toolrack_transport::{JsonRpcError, RequestError, TransportError};

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
        let rule = FilterRule::Denied { pattern: "rm*".to_owned() };
        check(
            ManagerError::Denied { server: "fs".to_owned(), tool: "rm".to_owned(), rule }.into(),
            ExitCode::Denied,
            r#"{"code":"DENIED","message":"tool `rm` of server `fs` is denied: it matches `deny = \"rm*\"`","hint":"change `allow` or `deny` of the server to use it"}"#,
        );
        let late =
            CallError::TimedOut { waited: Duration::from_secs(3), delivery: Delivery::Unknown };
        check(
            late.into(),
            ExitCode::Unreachable,
            r#"{"code":"NETWORK_ERROR","message":"no response within 3s","hint":"the server may have acted; check before retrying, or allow more time with `--timeout`"}"#,
        );
        let large = RequestError::answered(TransportError::Oversize { limit_bytes: 10 });
        let large = CliError::from(CallError::Transport(large));
        assert!(large.hint().unwrap().contains("`max_message_bytes`"), "{large:?}");
    }

    #[test]
    fn several_faults_are_summarized() {
        let error_details = vec![
            ErrorDetail::new(ErrorCode::ValidationError, "missing argument `a`").with_field("a"),
            ErrorDetail::new(ErrorCode::ValidationError, "`b` is unknown").with_hint("name it"),
        ];
        check(
            CliError::from_details(ExitCode::Usage, error_details),
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
        let failure = CliError::from(refused(-32603, data)).into_gateway_error();
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
        check_gateway_error(
            data("answered", "too_large"),
            ExitCode::Unreachable,
            &hint(ErrorKind::TooLarge, Delivery::Answered),
        );
        let general = "see `toolrack status`";
        check_gateway_error(data("not_sent", "bad_config"), ExitCode::Config, general);
        check_gateway_error(data("not_sent", "not_connected"), ExitCode::Unreachable, general);
    }

    #[test]
    fn server_errors_are_not_gateway_errors() {
        let check_unchanged = |error: CallError| {
            let before = CliError::from(error).summary();
            (before.message, before.hint)
        };
        for (code, data) in [
            (-32603, json!({ "delivery": "to the door" })),
            (-32602, json!({ "delivery": "unknown", "cause": "line" })),
        ] {
            let after = CliError::from(refused(code, data.clone())).into_gateway_error().summary();
            assert_eq!(check_unchanged(refused(code, data)), (after.message, after.hint));
        }
        // Without `into_gateway_error`, which only sessions with the daemon call, the data has no effect.
        let forged = json!({ "delivery": "not_sent", "cause": "line", "hint": "run this" });
        let direct = CliError::from(refused(-32603, forged));
        assert_eq!(direct.exit_code(), ExitCode::ToolFailed);
        assert!(!direct.hint().unwrap().contains("run this"));
    }
}
