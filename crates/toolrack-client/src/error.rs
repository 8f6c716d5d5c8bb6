//! Errors: `CallError` for a call without a result, `ConnectError` for a failed connection, with hints.

use std::io;
use std::time::Duration;

use toolrack_mcp::{DecodeError, ErrorCode, Method, Revision};
use toolrack_transport::{
    AuthError, Delivery, JsonRpcError, ProcessExit, RequestError, SpawnError, TransportError,
    TransportStats, exit_cause,
};

/// Why a call has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The server returned a JSON-RPC error. Code, message and data are the server's.
    #[error("the server returned an error")]
    Refused(#[source] JsonRpcError),
    /// No response arrived in time.
    #[error("no response within {waited:?}")]
    TimedOut {
        /// Elapsed time.
        waited: Duration,
        /// Whether the request had been sent.
        delivery: Delivery,
    },
    /// The transport failed or closed.
    #[error("the connection to the server failed")]
    Transport(#[source] RequestError),
    /// The response is malformed.
    #[error("invalid response to `{method}`")]
    Undecodable {
        /// Requested method.
        method: Method,
        /// Decoding error.
        source: DecodeError,
    },
    /// The resource does not exist.
    #[error("resource `{uri}` not found")]
    NoSuchResource {
        /// Requested URI.
        uri: String,
        /// The server's error.
        source: JsonRpcError,
    },
    /// The server did not grant a subscription to this resource.
    #[error("the server does not send updates for `{uri}`")]
    NotGranted {
        /// Requested URI.
        uri: String,
    },
    /// The server requested input that the client did not provide.
    #[error("the server requested `{method}` before responding, but {reason}")]
    InputUnanswered {
        /// Method of the server's request.
        method: String,
        /// Why there is no input.
        reason: String,
    },
    /// The server kept requesting input.
    #[error("the server requested input {rounds} times in a row")]
    TooManyRounds {
        /// Number of answered rounds.
        rounds: u32,
    },
    /// The server ran the call as a task and cancelled it.
    #[error("the server cancelled the task of this call: {reason}")]
    TaskCancelled {
        /// The server's reason.
        reason: String,
    },
    /// Each resource subscription is an open request, and this many are open.
    #[error("{limit} resource subscriptions are open, and no more are allowed")]
    TooManySubscriptions {
        /// Maximum number of subscriptions.
        limit: usize,
    },
    /// The server does not declare this capability.
    #[error("the server does not support {feature}")]
    Unsupported {
        /// Missing feature.
        feature: &'static str,
    },
}

impl CallError {
    /// How far the request got. A call may be retried only if it was not sent.
    pub fn delivery(&self) -> Delivery {
        match self {
            CallError::TimedOut { delivery, .. } => *delivery,
            CallError::Transport(failure) => failure.delivery,
            CallError::TooManySubscriptions { .. } | CallError::Unsupported { .. } => {
                Delivery::NotSent
            }
            CallError::Refused(_)
            | CallError::Undecodable { .. }
            | CallError::NoSuchResource { .. }
            | CallError::NotGranted { .. }
            | CallError::InputUnanswered { .. }
            | CallError::TooManyRounds { .. }
            | CallError::TaskCancelled { .. } => Delivery::Answered,
        }
    }

    pub(crate) fn undecodable(method: Method, source: impl Into<DecodeError>) -> Self {
        CallError::Undecodable { method, source: source.into() }
    }

    /// A well-formed response that is not allowed in its place.
    pub(crate) fn unexpected(method: Method, what: String) -> Self {
        let source: serde_json::Error = serde::de::Error::custom(what);
        Self::undecodable(method, source)
    }
}

impl From<RequestError> for CallError {
    fn from(failure: RequestError) -> Self {
        match failure.error {
            TransportError::JsonRpc(error) => CallError::Refused(error),
            TransportError::Timeout(milliseconds) => CallError::TimedOut {
                waited: Duration::from_millis(milliseconds),
                delivery: failure.delivery,
            },
            error => CallError::Transport(RequestError { error, delivery: failure.delivery }),
        }
    }
}

/// Why a connection attempt failed. Everything started for it has ended when this error is returned.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The transport could not be opened, or broke. For stdio: the process could not be started.
    #[error("connection failed")]
    Transport(#[source] TransportError),
    /// The server requires authentication, and there are no valid credentials.
    #[error("authentication failed")]
    NeedsAuth(#[source] AuthError),
    /// A program runs, but it does not speak MCP.
    #[error("{0}")]
    NotMcp(NotMcp),
    /// The server process exited before the connection was established.
    #[error("the server {} before it responded", .exit.status)]
    Exited {
        /// Exit status and last lines of stderr.
        exit: ProcessExit,
        /// First line of stdout, if it was not a message.
        sample: Option<String>,
    },
    /// The server did not respond.
    #[error("no response to `{method}` within {waited:?}")]
    TimedOut {
        /// Method of the last request.
        method: Method,
        /// Duration of the whole attempt.
        waited: Duration,
        /// The launcher that may still be installing the server.
        still_installing: Option<String>,
        /// Counters and samples of the transport.
        stats: Box<TransportStats>,
    },
    /// Client and server have no common protocol version.
    #[error("no common protocol version: the client supports {}, the server supports {}", ours(), list(.theirs))]
    UnsupportedVersion {
        /// Versions the server supports.
        theirs: Vec<String>,
    },
    /// The server returned a JSON-RPC error.
    #[error("the server rejected `{method}`")]
    Refused {
        /// Requested method.
        method: Method,
        /// The server's error.
        source: JsonRpcError,
    },
    /// The response is malformed.
    #[error("invalid response to `{method}`")]
    Undecodable {
        /// Requested method.
        method: Method,
        /// Decoding error.
        source: DecodeError,
    },
}

/// Why a program is not an MCP server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotMcp {
    /// It echoes its input, as `cat` does.
    #[error("the program echoes its input and is not an MCP server")]
    Echo,
    /// It writes only lines that are not messages.
    #[error("the program writes text instead of MCP messages, starting with `{sample}`")]
    Noise {
        /// First such line, sanitized and truncated.
        sample: String,
    },
}

impl ConnectError {
    /// Suggested next step for the user.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            ConnectError::Transport(TransportError::Spawn(fault)) => return spawn_hint(fault),
            ConnectError::Transport(error) => remote_hint(error)?,
            ConnectError::NeedsAuth(AuthError::LoginRequired { .. }) => {
                "log in to the server, or configure a token"
            }
            ConnectError::NeedsAuth(AuthError::Unregistered { .. }) => {
                "create a token at the server and send it in the `Authorization` header"
            }
            ConnectError::NeedsAuth(_) => "check the account, the token and the server URL",
            ConnectError::NotMcp(NotMcp::Echo) => {
                "check the command: this program only echoes its input"
            }
            ConnectError::NotMcp(NotMcp::Noise { .. }) => {
                "check the command and its arguments: many servers need a flag such as `--stdio`"
            }
            ConnectError::Exited { exit, sample } => {
                let silent = "no output; run the command in a terminal to see why";
                let cause = exit_cause(&exit.stderr).or_else(|| exit_cause(sample.as_slice()));
                return Some(cause.unwrap_or_else(|| silent.to_owned()));
            }
            ConnectError::TimedOut { still_installing: Some(launcher), .. } => {
                return Some(format!(
                    "`{launcher}` may still be installing the server; run it once in a terminal, or \
                     increase `--startup-timeout` or `startup_timeout`"
                ));
            }
            ConnectError::TimedOut { stats, .. } => match exit_cause(&stats.stderr) {
                Some(cause) => return Some(cause),
                None => "check the command, or increase the startup timeout",
            },
            ConnectError::UnsupportedVersion { .. } => "try another release of the server",
            ConnectError::Refused { method: Method::Discover, source } => {
                match missing_capabilities(source) {
                    Some(missing) => return Some(missing),
                    None if ErrorCode(source.code).is_modern_only() => return None,
                    None => "the server may support only the legacy era; allow both eras",
                }
            }
            ConnectError::Refused { .. } => return None,
            ConnectError::Undecodable { .. } => {
                "check the URL or the command: the response is not from an MCP server, it may be a web page"
            }
        };
        Some(hint.to_owned())
    }
}

fn spawn_hint(fault: &SpawnError) -> Option<String> {
    let hint = match fault {
        SpawnError::NotFound { program, .. } => match program.as_str() {
            "npx" | "npm" | "node" => "install Node.js, which includes it",
            "uvx" | "uv" => "install uv, which includes it",
            "bunx" | "bun" => "install Bun, which includes it",
            "docker" => "install Docker, or start it",
            _ => return Some(format!("install `{program}`, or use its full path")),
        },
        SpawnError::NoSuchFile(_) => "check the path of the command",
        SpawnError::NotExecutable(path) if path.is_dir() => {
            "this is a directory; use the path of the program in it"
        }
        SpawnError::NotExecutable(path) => {
            return Some(format!("make it executable with `chmod +x {}`", path.display()));
        }
        SpawnError::InvalidWorkingDir(_) => "check the working directory",
        // The file itself was found earlier, so its interpreter is missing.
        SpawnError::ExecFailed { error, .. } if error.kind() == io::ErrorKind::NotFound => {
            "its interpreter is missing: check the first line, which starts with `#!`"
        }
        SpawnError::ExecFailed { program, .. } => {
            let program = program.display();
            return Some(format!(
                "run `{program}` in a terminal to check that it is executable and built for this machine"
            ));
        }
        _ => return None,
    };
    Some(hint.to_owned())
}

fn remote_hint(error: &TransportError) -> Option<&'static str> {
    Some(match error {
        TransportError::Unreachable { .. } => {
            "check the URL, and that the server is running and reachable"
        }
        TransportError::Status { code: 404 | 405, .. } => {
            "check the path of the URL: many servers listen at `/mcp` or `/sse`"
        }
        TransportError::Status { code: 400..500, .. } => {
            "check the URL and the headers: this may not be an MCP server"
        }
        TransportError::Status { .. } => "the server is out of service; try again later",
        _ => return None,
    })
}

/// Spec 2026-07-28, basic §Error Codes: -32021 lists the client capabilities the server requires.
fn missing_capabilities(error: &JsonRpcError) -> Option<String> {
    let needed = error.data.as_ref()?.get("requiredCapabilities")?.as_object()?;
    let names: Vec<&str> = needed.keys().map(String::as_str).collect();
    Some(format!("the server requires a client with {}", names.join(", ")))
}

fn ours() -> String {
    let versions: Vec<String> = Revision::ALL.iter().map(ToString::to_string).collect();
    list(&versions)
}

fn list(versions: &[String]) -> String {
    if versions.is_empty() { "none".to_owned() } else { versions.join(", ") }
}

#[cfg(test)]
mod call_error_tests {
    use super::*;

    #[track_caller]
    fn check(failure: RequestError, shown: &str, delivery: Delivery) {
        let error = CallError::from(failure);
        assert_eq!((error.to_string().as_str(), error.delivery()), (shown, delivery));
    }

    #[test]
    fn transport_errors_keep_their_delivery() {
        check(
            RequestError::answered(JsonRpcError::new(-32601, "no such method")),
            "the server returned an error",
            Delivery::Answered,
        );
        check(
            RequestError::unknown(TransportError::Timeout(1500)),
            "no response within 1.5s",
            Delivery::Unknown,
        );
        check(
            RequestError::not_sent(TransportError::Timeout(20)),
            "no response within 20ms",
            Delivery::NotSent,
        );
        check(
            RequestError::not_sent(TransportError::Shutdown),
            "the connection to the server failed",
            Delivery::NotSent,
        );
        check(
            RequestError::answered(TransportError::Oversize { limit_bytes: 10 }),
            "the connection to the server failed",
            Delivery::Answered,
        );
    }
}

#[cfg(test)]
mod connect_error_tests {
    use serde_json::json;
    use toolrack_transport::ExitStatus;

    use super::*;

    #[track_caller]
    fn check(error: ConnectError, shown: &str, hint: Option<&str>) {
        assert_eq!((error.to_string().as_str(), error.hint().as_deref()), (shown, hint));
    }

    fn exited(stderr: &[&str], sample: Option<&str>) -> ConnectError {
        let stderr = stderr.iter().map(|line| (*line).to_owned()).collect();
        let exit = ProcessExit { status: ExitStatus::Code(1), stderr };
        ConnectError::Exited { exit, sample: sample.map(str::to_owned) }
    }

    fn timed_out(launcher: Option<&str>) -> ConnectError {
        ConnectError::TimedOut {
            method: Method::Initialize,
            waited: Duration::from_secs(30),
            still_installing: launcher.map(str::to_owned),
            stats: Box::default(),
        }
    }

    #[test]
    fn every_connect_error_has_a_hint() {
        let missing = SpawnError::NotFound { program: "npx".to_owned(), path: "/bin".to_owned() };
        check(
            ConnectError::Transport(TransportError::Spawn(missing)),
            "connection failed",
            Some("install Node.js, which includes it"),
        );
        let spawn = |fault| ConnectError::Transport(TransportError::Spawn(fault));
        let nothing = "connection failed";
        let folder = "this is a directory; use the path of the program in it";
        check(spawn(SpawnError::NotExecutable("/".into())), nothing, Some(folder));
        let chmod = "make it executable with `chmod +x /no/x`";
        check(spawn(SpawnError::NotExecutable("/no/x".into())), nothing, Some(chmod));
        let refused = |kind: io::ErrorKind| {
            spawn(SpawnError::ExecFailed { program: "/x".into(), error: kind.into() })
        };
        let script = "its interpreter is missing: check the first line, which starts with `#!`";
        check(refused(io::ErrorKind::NotFound), nothing, Some(script));
        let strange =
            "run `/x` in a terminal to check that it is executable and built for this machine";
        check(refused(io::ErrorKind::PermissionDenied), nothing, Some(strange));
        check(
            ConnectError::NotMcp(NotMcp::Echo),
            "the program echoes its input and is not an MCP server",
            Some("check the command: this program only echoes its input"),
        );
        check(
            timed_out(Some("npx")),
            "no response to `initialize` within 30s",
            Some(
                "`npx` may still be installing the server; run it once in a terminal, or \
                 increase `--startup-timeout` or `startup_timeout`",
            ),
        );
        check(
            timed_out(None),
            "no response to `initialize` within 30s",
            Some("check the command, or increase the startup timeout"),
        );
        check(
            ConnectError::UnsupportedVersion { theirs: vec!["1999-01-01".to_owned()] },
            "no common protocol version: the client supports 2024-11-05, 2025-03-26, \
             2025-06-18, 2025-11-25, 2026-07-28, the server supports 1999-01-01",
            Some("try another release of the server"),
        );
        check(
            ConnectError::NeedsAuth(AuthError::LoginRequired { reason: String::new() }),
            "authentication failed",
            Some("log in to the server, or configure a token"),
        );
        let status = |code| TransportError::Status { code, text: String::new() };
        check(
            ConnectError::Transport(status(404)),
            "connection failed",
            Some("check the path of the URL: many servers listen at `/mcp` or `/sse`"),
        );
        check(
            ConnectError::Transport(status(503)),
            "connection failed",
            Some("the server is out of service; try again later"),
        );
        let data = Some(json!({"requiredCapabilities": {"sampling": {}}}));
        check(
            ConnectError::Refused {
                method: Method::Discover,
                source: JsonRpcError { data, ..JsonRpcError::new(-32021, "no") },
            },
            "the server rejected `server/discover`",
            Some("the server requires a client with sampling"),
        );
    }

    #[test]
    fn exit_hint_quotes_the_last_output() {
        let exited_text = "the server exited with code 1 before it responded";
        check(
            exited(&["a", "npm error", " "], Some("s")),
            exited_text,
            Some("last output: npm error"),
        );
        check(
            exited(&["npm error 404 no 'a@*' here", "npm error A complete log"], None),
            exited_text,
            Some("error output: npm error 404 no 'a@*' here"),
        );
        check(exited(&[], Some("usage: x")), exited_text, Some("last output: usage: x"));
        check(
            exited(&[], None),
            exited_text,
            Some("no output; run the command in a terminal to see why"),
        );
    }
}
