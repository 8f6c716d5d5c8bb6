//! Kind, text and retryability of every error.

use std::time::Duration;

use toolrack_client::CallError;
use toolrack_manager::ConnectionState;
use toolrack_transport::{JsonRpcError, RequestError, TransportError};

use super::*;

#[track_caller]
fn check(error: ManagerError, kind: ToolErrorKind, retryable: Option<bool>, text: &str) {
    let failure = failed(error);
    assert_eq!((failure.kind(), failure.retryable()), (kind, retryable), "{text}");
    assert_eq!(failure.model_feedback(), Some(text));
}

fn failed(error: ManagerError) -> ToolExecutionError {
    execution_error(ToolAdapterError::Call(error))
}

fn call(source: CallError) -> ManagerError {
    ManagerError::Call { server: "s".to_owned(), tool: "t".to_owned(), source: Box::new(source) }
}

fn transport(error: TransportError, delivery: Delivery) -> ManagerError {
    call(CallError::Transport(RequestError { error, delivery }))
}

#[test]
fn call_errors_map_to_kind_and_text() {
    check(
        ManagerError::NoSuchTool { tool: "s_x".to_owned(), suggestions: vec!["s_y".to_owned()] },
        ToolErrorKind::NotFound,
        Some(false),
        "no tool named `s_x`; did you mean `s_y`?",
    );
    check(
        ManagerError::NotConnected { server: "s".to_owned(), state: ConnectionState::Disabled },
        ToolErrorKind::Other,
        Some(false),
        "server `s` is not connected (disabled) (set `enabled = true` in the config to use it)",
    );
    let rejected = |code: i64, message: &str| {
        let message = message.to_owned();
        call(CallError::Refused(JsonRpcError { code, message, data: None }))
    };
    check(
        rejected(-32602, "no \u{1b}[1mpath"),
        ToolErrorKind::InvalidArgs,
        Some(false),
        "call to tool `t` on server `s` failed: the server returned an error: \
         JSON-RPC error -32602: no path",
    );
    assert_eq!(failed(rejected(-32000, "no")).code(), Some("-32000"));
    check(
        ManagerError::Closed,
        ToolErrorKind::Cancelled,
        Some(false),
        "the manager is closed (it was shut down, or the Tokio runtime that it was built on has ended)",
    );
}

#[test]
fn only_unsent_calls_are_retryable() {
    let late = |delivery| {
        let error = call(CallError::TimedOut { waited: Duration::from_secs(1), delivery });
        failed(error).retryable()
    };
    assert_eq!(late(Delivery::NotSent), Some(true));
    assert_eq!(late(Delivery::Unknown), Some(false));
    let lost = |delivery| failed(transport(TransportError::Shutdown, delivery)).retryable();
    assert_eq!(lost(Delivery::NotSent), Some(true));
    assert_eq!(lost(Delivery::Unknown), Some(false));
    let busy = TransportError::Status { code: 429, text: String::new() };
    let failure = failed(transport(busy, Delivery::Unknown));
    assert_eq!((failure.kind(), failure.retryable()), (ToolErrorKind::RateLimited, Some(false)));
}

#[test]
fn tool_error_text_is_passed_to_the_model() {
    let failure = execution_error(ToolAdapterError::Tool("no such file".to_owned()));
    assert_eq!(failure.model_feedback(), Some("no such file"));
    assert_eq!((failure.kind(), failure.retryable()), (ToolErrorKind::Other, Some(false)));
    let failure = execution_error(ToolAdapterError::Arguments("an array"));
    assert_eq!(failure.model_feedback(), Some("the arguments must be an object, not an array"));
    assert_eq!(failure.kind(), ToolErrorKind::InvalidArgs);
}
