//! CLI errors: exit code, error code, message and hint; the commands in hints.
//!
//! Suggested commands repeat the `--config` and `--agent` that the user typed; without them they
//! would use other servers. Settings from the environment need no repetition. Commands that do not
//! depend on the servers, such as `toolrack daemon stop`, `toolrack secret list` and `--help`, are
//! plain text.
//!
//! Errors of the daemon's gateway are decoded here as well, so that they look as if the server had
//! been reached directly. Only the structured `data` of such an error is read, never its message.
//!
//! **Invariant:** at least one fault, always a hint, and no control characters in any text.

use std::path::Path;
use std::sync::OnceLock;
use std::{fmt, io, process};

use clap::ValueEnum;
use toolrack_client::{CallError, ConnectError};
use toolrack_config::Diagnostic;
use toolrack_gateway::GatewayErrorData;
use toolrack_manager::{ConnectionState, ErrorKind, ManagerError, error_chain};
use toolrack_service::{ErrorCode, ErrorDetail, ServiceError};
use toolrack_transport::{Delivery, JsonRpcError, sanitize_line};

use crate::args::GlobalOptions;

/// Maximum length of one text; servers may send more than anyone reads.
const MAX_CHARS: usize = 2000;

/// Exit code of the program. The comments of the variants are the descriptions in the help.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExitCode {
    /// success
    Success = 0,
    /// usage error: invalid option, name or tool argument
    Usage = 1,
    /// invalid or incomplete configuration
    Config = 2,
    /// authentication required or failed
    Auth = 3,
    /// server cannot be started or reached, or timed out
    Unreachable = 4,
    /// the tool returned an error, or the server rejected the request
    ToolFailed = 5,
    /// denied by an allow or deny rule
    Denied = 6,
    // As shells report a program ended by Ctrl-C.
    /// interrupted by Ctrl-C
    Interrupted = 130,
}

impl ExitCode {
    /// Exit code of a service error.
    pub(crate) fn from_error_code(code: ErrorCode) -> Self {
        match code {
            ErrorCode::NotFound => Self::Usage,
            ErrorCode::ValidationError | ErrorCode::Conflict => Self::Config,
            ErrorCode::Unauthorized => Self::Auth,
            ErrorCode::Denied => Self::Denied,
            _ => Self::Unreachable,
        }
    }
}

impl From<ErrorKind> for ExitCode {
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::NoSuchServer
            | ErrorKind::NoSuchTool
            | ErrorKind::NoSuchResource
            | ErrorKind::Ambiguous
            | ErrorKind::InvalidArguments => Self::Usage,
            ErrorKind::Disabled | ErrorKind::BadConfig | ErrorKind::MissingCredentials => {
                Self::Config
            }
            ErrorKind::NeedsLogin => Self::Auth,
            ErrorKind::Rejected
            | ErrorKind::InvalidResponse
            | ErrorKind::MissingCapability
            | ErrorKind::Unsupported => Self::ToolFailed,
            ErrorKind::Denied => Self::Denied,
            _ => Self::Unreachable,
        }
    }
}

impl From<ExitCode> for process::ExitCode {
    fn from(exit_code: ExitCode) -> Self {
        process::ExitCode::from(exit_code as u8)
    }
}

/// An error of a command.
#[derive(Debug)]
pub(crate) struct CliError {
    pub(crate) exit_code: ExitCode,
    /// Boxed, because every `Result` of the program has room for an error.
    first: Box<ErrorDetail>,
    /// More faults.
    others: Vec<ErrorDetail>,
    /// The JSON-RPC error behind it, if a server or the daemon's gateway sent one, and the text
    /// before its message.
    json_rpc: Option<Box<(String, JsonRpcError)>>,
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
        let Some((prefix, error)) = self.json_rpc.as_deref() else { return self };
        let Some(data) = GatewayErrorData::from_error(error) else { return self };
        let GatewayErrorData { delivery, cause, hint } = data;
        let hint = hint.unwrap_or_else(|| relay_hint(cause, delivery));
        Self::from_kind(cause, format!("{prefix}{}", error.message), hint)
    }

    /// Several faults. The first hint counts for all.
    pub(crate) fn from_details(exit_code: ExitCode, error_details: Vec<ErrorDetail>) -> Self {
        let mut error_details = error_details.into_iter().map(|detail| ErrorDetail {
            message: sanitize_line(&detail.message, MAX_CHARS),
            hint: detail.hint.map(|hint| sanitize_line(&hint, MAX_CHARS)),
            field: detail.field.map(|field| sanitize_line(&field, MAX_CHARS)),
            ..detail
        });
        let first = error_details.next();
        let first = first.unwrap_or_else(|| ErrorDetail::new(ErrorCode::Internal, "unknown error"));
        let (first, others) = (Box::new(first), error_details.collect());
        Self { exit_code, first, others, json_rpc: None }
    }

    /// The errors of a config.
    pub(crate) fn from_diagnostics<'a>(
        exit_code: ExitCode,
        errors: impl IntoIterator<Item = &'a Diagnostic>,
        hint: &str,
    ) -> Self {
        let error_detail = |error: &Diagnostic| ErrorDetail {
            field: Some(error.field.clone()).filter(|field| !field.is_empty()),
            ..ErrorDetail::new(ErrorCode::ValidationError, error.to_string()).with_hint(hint)
        };
        Self::from_details(exit_code, errors.into_iter().map(error_detail).collect())
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
        let message = format!("the tool `{tool}` returned an error");
        let hint = "see its output for the reason";
        Self::new(ExitCode::ToolFailed, ErrorCode::ServiceUnavailable, message, hint)
    }

    /// An error of the service, with `hint` unless it has its own.
    pub(crate) fn from_service(error: ServiceError, hint: &str) -> Self {
        let exit_code = ExitCode::from_error_code(error.code());
        let failure = Self::from_details(exit_code, error.details().to_vec());
        if error.hint().is_some() { failure } else { failure.with_hint(hint) }
    }

    /// Replaces the message.
    #[must_use]
    pub(crate) fn with_message(mut self, message: String) -> Self {
        self.first.message = sanitize_line(&message, MAX_CHARS);
        // The new message is about more than the response.
        self.json_rpc = None;
        self
    }

    /// If the server requires a login, says how.
    pub(crate) fn with_login_hint(self, server: &str) -> Self {
        if self.exit_code != ExitCode::Auth {
            return self;
        }
        self.with_hint(format!("log in with {}", server_command("login", server)))
    }

    /// Replaces the hint.
    #[must_use]
    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.first.hint = Some(sanitize_line(&hint.into(), MAX_CHARS));
        self
    }

    /// Sets the option or argument that the error is about.
    #[must_use]
    pub(crate) fn with_field(mut self, field: &str) -> Self {
        self.first.field = Some(sanitize_line(field, MAX_CHARS));
        self
    }

    /// All faults.
    pub(crate) fn error_details(&self) -> impl Iterator<Item = &ErrorDetail> {
        std::iter::once(&*self.first).chain(&self.others)
    }

    pub(crate) fn hint(&self) -> Option<&str> {
        self.error_details().find_map(|error_detail| error_detail.hint.as_deref())
    }

    /// All faults in one, as printed with `-o json`.
    pub(crate) fn summary(&self) -> ErrorDetail {
        let messages: Vec<&str> =
            self.error_details().map(|error_detail| error_detail.message.as_str()).collect();
        ErrorDetail {
            // One line, because scripts read a single JSON document from stderr.
            message: messages.join("; "),
            hint: self.hint().map(str::to_owned),
            reason: None,
            ..ErrorDetail::clone(&self.first)
        }
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
        Self::from_service(error, "see `toolrack --help`")
    }
}

impl From<ManagerError> for CliError {
    fn from(error: ManagerError) -> Self {
        let (kind, delivery) = (error.kind(), error.delivery());
        let hint = match (&error, error.hint()) {
            (ManagerError::NotConnected { server, state: ConnectionState::Disabled }, _) => {
                format!("enable it with {}", server_command("enable", server))
            }
            (ManagerError::Call { server, .. }, _) if kind == ErrorKind::NeedsLogin => {
                format!("log in with {}", server_command("login", server))
            }
            (ManagerError::Call { .. }, _) | (_, None) => hint(kind, delivery),
            (_, Some(hint)) => hint,
        };
        let json_rpc = error.json_rpc_error().cloned();
        let json_rpc = json_rpc.map(|json_rpc| Box::new((format!("{error}: "), json_rpc)));
        Self { json_rpc, ..Self::from_kind(kind, error_chain(&error), hint) }
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
            CallError::Refused(error) => Some(Box::new((String::new(), error))),
            _ => None,
        };
        Self { json_rpc, ..cli_error }
    }
}

/// What to do about a failed request, where the error itself has no hint.
fn hint(kind: ErrorKind, delivery: Delivery) -> String {
    let (text, words) = match (kind, delivery) {
        (ErrorKind::NoSuchServer, _) => ("list servers with ", "list"),
        (ErrorKind::NoSuchTool, _) => ("list tools with ", "tools"),
        (ErrorKind::NoSuchResource, _) => ("list resources with ", "resources"),
        (ErrorKind::TooLarge, _) => (
            "the server has responded; request less data, or raise its `max_message_bytes` with ",
            "edit",
        ),
        (ErrorKind::NeedsLogin, _) => ("log in with ", "login NAME"),
        (ErrorKind::Unsupported, _) => ("list what the server offers with ", "tools"),
        (ErrorKind::Rejected | ErrorKind::InvalidResponse, _) => {
            ("compare the arguments with the tool's schema: ", "tools --schema")
        }
        (ErrorKind::MissingCapability, _) => (
            "the server requires a client feature that the command line lacks, such as sampling",
            "",
        ),
        (ErrorKind::TimedOut, Delivery::NotSent) => {
            ("the server does not read its input; allow more time with `--timeout`", "")
        }
        (ErrorKind::TimedOut, _) => (
            "the server may have acted; check before retrying, or allow more time with `--timeout`",
            "",
        ),
        (_, Delivery::Unknown) => ("the server may have acted; check before retrying", ""),
        _ => ("run the command again with `--verbose` to see the server's output", ""),
    };
    if words.is_empty() { text.to_owned() } else { format!("{text}{}", command(words)) }
}

fn relay_hint(cause: ErrorKind, delivery: Delivery) -> String {
    match cause {
        ErrorKind::TimedOut | ErrorKind::Lost | ErrorKind::TooLarge | ErrorKind::NeedsLogin => {
            hint(cause, delivery)
        }
        ErrorKind::InvalidResponse => format!("see its output with {}", command("logs NAME")),
        _ => format!("see {}", command("status")),
    }
}

/// The options of this process that select servers.
static TYPED_FLAGS: OnceLock<String> = OnceLock::new();

/// Remembers the options of this process. `main` calls it, before anything else can fail.
pub(crate) fn remember_flags(options: &GlobalOptions) {
    TYPED_FLAGS.get_or_init(|| flags(options.config.as_deref(), options.agent.as_deref()));
}

/// The options that select servers, quoted for the shell and each followed by a space.
pub(crate) fn flags(config: Option<&Path>, agent: Option<&str>) -> String {
    let config = config.map(|path| format!("--config {} ", shell_quote(&path.to_string_lossy())));
    let agent = agent.map(|agent| format!("--agent {} ", shell_quote(agent)));
    config.into_iter().chain(agent).collect()
}

/// The command `toolrack WORDS` for the servers of this process.
pub(crate) fn command_line(words: impl fmt::Display) -> String {
    format!("toolrack {}{words}", TYPED_FLAGS.get().map_or("", String::as_str))
}

/// The same in backquotes, for a sentence.
pub(crate) fn command(words: impl fmt::Display) -> String {
    format!("`{}`", command_line(words))
}

/// A command on one server, in backquotes.
pub(crate) fn server_command(verb: &str, server: &str) -> String {
    command(format_args!("{verb} {}", shell_quote(server)))
}

/// Quotes a word for the shell, without control and invisible characters.
pub(crate) fn shell_quote(text: &str) -> String {
    // A name of a server may contain escape sequences, and users copy the command
    // from the terminal.
    let text = sanitize_line(text, usize::MAX);
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+=,".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        text
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
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
        assert_eq!(failure.exit_code, exit_code);
        assert_eq!(serde_json::to_string(&failure.summary()).unwrap(), json);
    }

    #[test]
    fn exit_codes_are_stable() {
        let codes: Vec<u8> = ExitCode::value_variants().iter().map(|code| *code as u8).collect();
        assert_eq!(codes, [0, 1, 2, 3, 4, 5, 6, 130]);
    }

    #[test]
    fn service_errors_map_to_exit_codes() {
        for (code, expected) in [
            (ErrorCode::NotFound, ExitCode::Usage),
            (ErrorCode::ValidationError, ExitCode::Config),
            (ErrorCode::Unauthorized, ExitCode::Auth),
            (ErrorCode::NetworkError, ExitCode::Unreachable),
            (ErrorCode::Denied, ExitCode::Denied),
        ] {
            assert_eq!(ExitCode::from_error_code(code), expected, "{code}");
        }
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
        assert_eq!((failure.exit_code, failure.hint()), (exit_code, Some(hint)));
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
        assert_eq!(direct.exit_code, ExitCode::ToolFailed);
        assert!(!direct.hint().unwrap().contains("run this"));
    }

    #[test]
    fn suggested_commands_repeat_flags() {
        let check = |config: Option<&str>, agent, expected: &str| {
            assert_eq!(flags(config.map(Path::new), agent), expected);
        };
        check(None, None, "");
        check(Some("new.toml"), None, "--config new.toml ");
        check(None, Some("main"), "--agent main ");
        check(Some("my file.toml"), Some("it's"), r"--config 'my file.toml' --agent 'it'\''s' ");
        // Tests run without the flags of a command line.
        assert_eq!(command("edit"), "`toolrack edit`");
        assert_eq!(server_command("logs -f", "my it"), "`toolrack logs -f 'my it'`");
    }
}
