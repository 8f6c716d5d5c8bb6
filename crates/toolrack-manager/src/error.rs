//! Error types: [`ManagerError`] for requests to the manager, [`Failure`] for servers that are not connected.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use toolrack_client::{CallError, ConnectError};
use toolrack_config::{did_you_mean, similar_names};
use toolrack_mcp::{DecodeError, ErrorCode};
use toolrack_transport::{
    AuthError, CloseReason, Delivery, JsonRpcError, Redactor, SpawnError, TransportError,
    exit_cause, sanitize_line,
};

use crate::lifecycle::ConnectionState;
use crate::tool_filter::FilterRule;

/// Maximum length of an unknown name in an error.
const MAX_NAME_CHARS: usize = 200;
/// Maximum length of a failure's reason and hint.
const MAX_REASON_CHARS: usize = 1000;

/// Error of a request to the manager.
///
/// `Display` describes this level only. The cause of a failed call is its source; [`error_chain`] prints both.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManagerError {
    /// No server has this name.
    #[error("no server named `{server}`{}", did_you_mean(.suggestions))]
    NoSuchServer {
        /// The requested name.
        server: String,
        /// Similar names that exist.
        suggestions: Vec<String>,
    },
    /// No tool has this name.
    #[error("no tool named `{tool}`{}", did_you_mean(.suggestions))]
    NoSuchTool {
        /// The requested name.
        tool: String,
        /// Similar names that exist.
        suggestions: Vec<String>,
    },
    /// The name matches tools of several servers.
    #[error("tool name `{tool}` is ambiguous: it matches `{}`", .candidates.join("` and `"))]
    Ambiguous {
        /// The requested name.
        tool: String,
        /// Names that each match one tool only.
        candidates: Vec<String>,
    },
    /// A filter rule denies the tool.
    #[error("tool `{tool}` of server `{server}` is denied: {rule}")]
    Denied {
        /// Name of the server.
        server: String,
        /// Name of the tool on its server.
        tool: String,
        /// The rule that denies it.
        rule: FilterRule,
    },
    /// The server does not accept calls, and waiting does not help.
    #[error("server `{server}` is not connected ({state})")]
    NotConnected {
        /// Name of the server.
        server: String,
        /// State of the server.
        state: ConnectionState,
    },
    /// The server is starting, and the call's wait has ended.
    #[error("server `{server}` was not ready within {waited:?} ({state})")]
    NotReady {
        /// Name of the server.
        server: String,
        /// State of the server.
        state: ConnectionState,
        /// How long the call waited.
        waited: Duration,
    },
    /// The call failed without a result.
    #[error("call to tool `{tool}` on server `{server}` failed")]
    Call {
        /// Name of the server.
        server: String,
        /// Name of the tool on its server.
        tool: String,
        /// The cause.
        source: Box<CallError>,
    },
    /// The response is not a tool result.
    #[error("server `{server}` returned an invalid result for tool `{tool}`")]
    Undecodable {
        /// Name of the server.
        server: String,
        /// Name of the tool on its server.
        tool: String,
        /// The cause.
        source: DecodeError,
    },
    /// The manager was closed, or the runtime on which it was built has ended.
    #[error("the manager is closed")]
    Closed,
}

/// An unknown name as errors show it: callers can send any.
pub(crate) fn shorten_name(name: &str) -> String {
    sanitize_line(name, MAX_NAME_CHARS)
}

/// Names that are similar to an unknown one.
pub(crate) fn suggestions<'a>(
    name: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Vec<String> {
    similar_names(name, candidates).into_iter().map(str::to_owned).collect()
}

impl ManagerError {
    pub(crate) fn no_such_server<'a>(
        server: &str,
        candidates: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let suggestions = suggestions(server, candidates);
        Self::NoSuchServer { server: shorten_name(server), suggestions }
    }

    /// What went wrong. Codes, statuses and exit codes of the layers above follow from it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            ManagerError::NoSuchServer { .. } => ErrorKind::NoSuchServer,
            ManagerError::NoSuchTool { .. } => ErrorKind::NoSuchTool,
            ManagerError::Ambiguous { .. } => ErrorKind::Ambiguous,
            ManagerError::Denied { .. } => ErrorKind::Denied,
            ManagerError::NotConnected { state, .. } | ManagerError::NotReady { state, .. } => {
                ErrorKind::from_state(state)
            }
            ManagerError::Call { source, .. } => ErrorKind::from_call_error(source),
            ManagerError::Undecodable { .. } => ErrorKind::InvalidResponse,
            ManagerError::Closed => ErrorKind::Closed,
        }
    }

    /// The JSON-RPC error of the server, if that is the cause.
    pub fn json_rpc_error(&self) -> Option<&JsonRpcError> {
        let ManagerError::Call { source, .. } = self else { return None };
        match &**source {
            CallError::Refused(error) => Some(error),
            _ => None,
        }
    }

    /// Whether the server may have received the request.
    pub fn delivery(&self) -> Delivery {
        match self {
            ManagerError::Call { source, .. } => source.delivery(),
            ManagerError::Undecodable { .. } => Delivery::Answered,
            _ => Delivery::NotSent,
        }
    }

    /// What the user can try next.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            ManagerError::NotConnected { state, .. } | ManagerError::NotReady { state, .. } => {
                let specific = state.failure().and_then(|failure| failure.hint());
                specific.unwrap_or(match state {
                    ConnectionState::Disabled => "set `enabled = true` in the config to use it",
                    ConnectionState::Disconnected => "start the server first",
                    ConnectionState::NeedsAuth(_) => "log in to the server first",
                    _ => "try again in a moment",
                })
            }
            ManagerError::Ambiguous { .. } => "use one of these names",
            ManagerError::Denied { .. } => "change `allow` or `deny` of the server to use it",
            ManagerError::Call { .. } if self.kind() == ErrorKind::NeedsLogin => {
                "log in to the server again"
            }
            ManagerError::Call { source, .. } if source.delivery() == Delivery::Unknown => {
                "the server may have run it; check before you retry"
            }
            ManagerError::Closed => {
                "it was shut down, or the Tokio runtime that it was built on has ended"
            }
            _ => return None,
        };
        Some(hint.to_owned())
    }
}

/// Why a server is not connected. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    text: Arc<Text>,
    kind: ErrorKind,
}

#[derive(Debug, PartialEq, Eq)]
struct Text {
    reason: String,
    hint: Option<String>,
}

impl Failure {
    /// A failure without a hint.
    pub fn new(kind: ErrorKind, reason: impl Into<String>) -> Self {
        // A reason may quote output of the server, which is shown in terminals and logs.
        let reason = sanitize_line(&reason.into(), MAX_REASON_CHARS);
        Self { text: Arc::new(Text { reason, hint: None }), kind }
    }

    /// The same failure, with a hint on what to try next.
    #[must_use]
    pub fn with_hint(self, hint: impl Into<String>) -> Self {
        self.with_hint_if_any(Some(hint))
    }

    pub(crate) fn with_hint_if_any(self, hint: Option<impl Into<String>>) -> Self {
        let hint = hint.map(|hint| sanitize_line(&hint.into(), MAX_REASON_CHARS));
        Self { text: Arc::new(Text { reason: self.text.reason.clone(), hint }), ..self }
    }

    /// Connecting failed.
    pub(crate) fn from_connect_error(error: &ConnectError) -> Self {
        Self::new(ErrorKind::from_connect_error(error), error_chain(error))
            .with_hint_if_any(error.hint())
    }

    /// An established connection was closed.
    pub(crate) fn from_close_reason(close_reason: &CloseReason) -> Self {
        let (kind, last_output) = match close_reason {
            CloseReason::Exited(exit) => (ErrorKind::Exited, exit_cause(&exit.stderr)),
            _ => (ErrorKind::Lost, None),
        };
        Self::new(kind, format!("connection lost: {close_reason}")).with_hint_if_any(last_output)
    }

    /// An established connection is unusable because the server is unreachable.
    pub(crate) fn from_unreachable(error: &TransportError) -> Self {
        Self::new(ErrorKind::Lost, format!("connection lost: {}", error_chain(error)))
    }

    /// The same failure without secrets.
    pub(crate) fn redacted(&self, redactor: &Redactor) -> Self {
        let Text { reason, hint } = &*self.text;
        let reason = redactor.redact(reason).into_owned();
        let hint = hint.as_ref().map(|hint| redactor.redact(hint).into_owned());
        Self { text: Arc::new(Text { reason, hint }), kind: self.kind }
    }

    /// Kind of the failure.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// What went wrong, in one line.
    pub fn reason(&self) -> &str {
        &self.text.reason
    }

    /// What the user can try next.
    pub fn hint(&self) -> Option<&str> {
        self.text.hint.as_deref()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text.reason)
    }
}

impl Error for Failure {}

/// What went wrong with a server ([`Failure`]) or a request ([`ManagerError`]). Each kind calls for a different
/// reaction.
///
/// Errors are classified here and nowhere else: the layers above have one table each, from kinds to their codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// No server has this name.
    NoSuchServer,
    /// No tool has this name.
    NoSuchTool,
    /// The server has no such resource.
    NoSuchResource,
    /// The name matches tools of several servers.
    Ambiguous,
    /// A filter rule denies the tool.
    Denied,
    /// The server is disabled in the config.
    Disabled,
    /// The server is not running, and has not failed.
    NotRunning,
    /// The server is starting.
    Starting,
    /// The config is invalid or asks for something unsupported.
    BadConfig,
    /// A variable or header of the config refers to a value that does not exist.
    MissingCredentials,
    /// The package, its version or the program does not exist.
    PackageNotFound,
    /// A program that installs or runs the server is not installed.
    MissingTool,
    /// Docker is installed, and its daemon does not respond.
    DockerNotRunning,
    /// Installing the package failed.
    InstallFailed,
    /// Installing the package timed out.
    InstallTimedOut,
    /// The server's process could not be started.
    CannotStart,
    /// The server's process exited.
    Exited,
    /// The server did not respond in time.
    HandshakeTimedOut,
    /// The server, or the registry of its package, is unreachable.
    Unreachable,
    /// The server requires a login.
    NeedsLogin,
    /// The server responded with an error, or not as an MCP server.
    Refused,
    /// The connection was lost.
    Lost,
    /// The attempt was cancelled.
    Stopped,
    /// The server did not respond to a request in time.
    TimedOut,
    /// The server limits the rate of requests.
    RateLimited,
    /// The client has too many requests in flight.
    Busy,
    /// The response exceeds the configured size limit.
    TooLarge,
    /// The arguments cannot be sent.
    InvalidArguments,
    /// The server responded to a request with a JSON-RPC error.
    Rejected,
    /// The response is malformed, or not allowed in its place.
    InvalidResponse,
    /// The server needs a capability that the client lacks, such as sampling.
    MissingCapability,
    /// The server does not offer the feature.
    Unsupported,
    /// The manager is closed.
    Closed,
    /// A bug in this program.
    Internal,
}

impl ErrorKind {
    /// Kind of a failed call.
    pub fn from_call_error(error: &CallError) -> Self {
        match error {
            CallError::Refused(error) if error.code == ErrorCode::MISSING_CLIENT_CAPABILITY.0 => {
                Self::MissingCapability
            }
            CallError::Refused(_) | CallError::NotGranted { .. } => Self::Rejected,
            CallError::TimedOut { .. } => Self::TimedOut,
            CallError::Transport(failure) => match &failure.error {
                TransportError::Unauthorized(_) => Self::NeedsLogin,
                TransportError::Oversize { .. } => Self::TooLarge,
                TransportError::ProcessExited(_) => Self::Exited,
                TransportError::Spawn(_) => Self::CannotStart,
                TransportError::Status { code: 429, .. } => Self::RateLimited,
                // An HTTP status or body that is not from an MCP server.
                TransportError::Status { .. } | TransportError::Parse(_) => Self::Refused,
                TransportError::Serialize(_) => Self::InvalidArguments,
                _ => Self::Lost,
            },
            CallError::NoSuchResource { .. } => Self::NoSuchResource,
            CallError::Unsupported { .. } => Self::Unsupported,
            CallError::InputUnanswered { .. } | CallError::TooManyRounds { .. } => {
                Self::MissingCapability
            }
            _ => Self::InvalidResponse,
        }
    }

    /// Kind of a failed connection attempt.
    pub fn from_connect_error(error: &ConnectError) -> Self {
        match error {
            // An authorization server that is down may recover by itself, so the server is retried.
            ConnectError::NeedsAuth(AuthError::Unreachable { .. })
            | ConnectError::Transport(TransportError::Unauthorized(AuthError::Unreachable {
                ..
            })) => Self::Unreachable,
            ConnectError::NeedsAuth(_)
            | ConnectError::Transport(TransportError::Unauthorized(_)) => Self::NeedsLogin,
            ConnectError::Exited { .. } => Self::Exited,
            ConnectError::TimedOut { .. } => Self::HandshakeTimedOut,
            ConnectError::Transport(error) => match error {
                TransportError::Spawn(SpawnError::NotFound { .. } | SpawnError::NoSuchFile(_)) => {
                    Self::PackageNotFound
                }
                TransportError::Spawn(
                    SpawnError::NotExecutable(_)
                    | SpawnError::ExecFailed { .. }
                    | SpawnError::Guardian(_),
                ) => Self::CannotStart,
                TransportError::Spawn(_) => Self::BadConfig,
                TransportError::Unreachable { .. }
                | TransportError::Io(_)
                | TransportError::Status { code: 500.., .. } => Self::Unreachable,
                TransportError::Timeout(_) | TransportError::QueueFull { .. } => {
                    Self::HandshakeTimedOut
                }
                TransportError::ProcessExited(_) => Self::Exited,
                TransportError::Shutdown => Self::Stopped,
                TransportError::StdinNotAvailable
                | TransportError::StdoutNotAvailable
                | TransportError::SessionLost => Self::Lost,
                _ => Self::Refused,
            },
            _ => Self::Refused,
        }
    }

    /// Why a server in this state does not accept calls.
    fn from_state(state: &ConnectionState) -> Self {
        match (state.failure(), state) {
            (Some(failure), _) => failure.kind(),
            (None, ConnectionState::Disabled) => Self::Disabled,
            (None, ConnectionState::Connecting) => Self::Starting,
            (None, _) => Self::NotRunning,
        }
    }
}

/// An error with its sources in one line. A source whose text the line already ends with is left out.
pub fn error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let message = error.to_string();
        // Some errors of libraries repeat their source in their own text.
        if !text.ends_with(&message) {
            text = format!("{text}: {message}");
        }
        source = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::io;

    use toolrack_mcp::Method;
    use toolrack_transport::{ExitStatus, ProcessExit, TransportStats};

    use super::*;

    #[track_caller]
    fn check_error(error: ManagerError, message: &str, hint: Option<&str>) {
        assert_eq!((error.to_string().as_str(), error.hint().as_deref()), (message, hint));
    }

    #[test]
    fn unknown_names_are_shortened() {
        let error = ManagerError::no_such_server(&"x".repeat(4000), []);
        assert!(error.to_string().len() < 300, "{error}");
    }

    #[test]
    fn errors_have_a_message_and_a_hint() {
        let suggestions = vec!["git_log".to_owned(), "git_show".to_owned()];
        check_error(
            ManagerError::NoSuchTool { tool: "git_lgo".to_owned(), suggestions },
            "no tool named `git_lgo`; did you mean `git_log` or `git_show`?",
            None,
        );
        let candidates = vec!["db.prod_query".to_owned(), "db_prod.query".to_owned()];
        check_error(
            ManagerError::Ambiguous { tool: "db_prod_query".to_owned(), candidates },
            "tool name `db_prod_query` is ambiguous: it matches `db.prod_query` and `db_prod.query`",
            Some("use one of these names"),
        );
        let rule = FilterRule::Denied { pattern: "write_*".to_owned() };
        check_error(
            ManagerError::Denied { server: "fs".to_owned(), tool: "write_file".to_owned(), rule },
            "tool `write_file` of server `fs` is denied: it matches `deny = \"write_*\"`",
            Some("change `allow` or `deny` of the server to use it"),
        );
        let failure = Failure::new(ErrorKind::MissingTool, "no program").with_hint("install it");
        let state = ConnectionState::Failed(failure);
        check_error(
            ManagerError::NotConnected { server: "fs".to_owned(), state },
            "server `fs` is not connected (failed: no program)",
            Some("install it"),
        );
        let (server, state) = ("fs".to_owned(), ConnectionState::Disabled);
        check_error(
            ManagerError::NotConnected { server, state },
            "server `fs` is not connected (disabled)",
            Some("set `enabled = true` in the config to use it"),
        );
    }

    #[track_caller]
    fn check_failure(failure: &Failure, reason: &str, hint: Option<&str>, kind: ErrorKind) {
        assert_eq!((failure.reason(), failure.hint(), failure.kind()), (reason, hint, kind));
    }

    #[test]
    fn failure_has_a_reason_and_a_hint() {
        let missing = SpawnError::NotFound { program: "npx".to_owned(), path: "/bin".to_owned() };
        let error = ConnectError::Transport(TransportError::Spawn(missing));
        check_failure(
            &Failure::from_connect_error(&error),
            &error_chain(&error),
            error.hint().as_deref(),
            ErrorKind::PackageNotFound,
        );
        let login_needed = AuthError::LoginRequired { reason: "no token".to_owned() };
        let error = ConnectError::Transport(TransportError::Unauthorized(login_needed));
        assert_eq!(Failure::from_connect_error(&error).kind(), ErrorKind::NeedsLogin);
        let stderr = ["panic: \u{1b}[1mno\u{1b}[0m".to_owned(), " ".to_owned()].into();
        let close_reason = CloseReason::Exited(ProcessExit { status: ExitStatus::Code(3), stderr });
        let failure = Failure::from_close_reason(&close_reason);
        check_failure(
            &failure,
            &format!("connection lost: {}", sanitize_line(&close_reason.to_string(), 900)),
            failure.hint(),
            ErrorKind::Exited,
        );
        assert!(failure.hint().is_some_and(|hint| hint.ends_with("panic: no")));
        let (address, error) = ("http://[::1]/".to_owned(), io::Error::other("refused"));
        let error = TransportError::Unreachable { address, error };
        check_failure(
            &Failure::from_unreachable(&error),
            &format!("connection lost: {}", error_chain(&error)),
            None,
            ErrorKind::Lost,
        );
    }

    #[track_caller]
    fn check_kind(error: ConnectError, expected: ErrorKind) {
        assert_eq!(ErrorKind::from_connect_error(&error), expected);
    }

    #[test]
    fn every_connect_error_has_a_kind() {
        let over = |error| ConnectError::Transport(error);
        let exit = || ProcessExit { status: ExitStatus::Code(1), stderr: [].into() };
        let (program, path) = ("npx".to_owned(), "/bin".to_owned());
        let missing = SpawnError::NotFound { program, path };
        check_kind(over(TransportError::Spawn(missing)), ErrorKind::PackageNotFound);
        let no_file = SpawnError::NoSuchFile("/x".into());
        check_kind(over(TransportError::Spawn(no_file)), ErrorKind::PackageNotFound);
        let directory = SpawnError::NotExecutable("/".into());
        check_kind(over(TransportError::Spawn(directory)), ErrorKind::CannotStart);
        let bad_cwd = SpawnError::InvalidWorkingDir("/x".into());
        check_kind(over(TransportError::Spawn(bad_cwd)), ErrorKind::BadConfig);
        let guardian = SpawnError::Guardian(io::ErrorKind::TimedOut.into());
        check_kind(over(TransportError::Spawn(guardian)), ErrorKind::CannotStart);
        check_kind(over(TransportError::ProcessExited(exit())), ErrorKind::Exited);
        check_kind(ConnectError::Exited { exit: exit(), sample: None }, ErrorKind::Exited);
        let text = String::new;
        let status = |code| over(TransportError::Status { code, text: text() });
        check_kind(status(503), ErrorKind::Unreachable);
        check_kind(status(404), ErrorKind::Refused);
        let timed_out = ConnectError::TimedOut {
            method: Method::Initialize,
            waited: Duration::from_secs(1),
            still_installing: None,
            stats: Box::new(TransportStats::default()),
        };
        check_kind(timed_out, ErrorKind::HandshakeTimedOut);
        let login = || AuthError::LoginRequired { reason: text() };
        check_kind(ConnectError::NeedsAuth(login()), ErrorKind::NeedsLogin);
        check_kind(over(TransportError::Unauthorized(login())), ErrorKind::NeedsLogin);
        let auth_server_down = AuthError::Unreachable { reason: text() };
        check_kind(ConnectError::NeedsAuth(auth_server_down), ErrorKind::Unreachable);
        let closed = Failure::from_close_reason(&CloseReason::Exited(exit()));
        assert_eq!(closed.kind(), ErrorKind::Exited);
        let closed = Failure::from_close_reason(&CloseReason::OutputClosed);
        assert_eq!(closed.kind(), ErrorKind::Lost);
    }
}
