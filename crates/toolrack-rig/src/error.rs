//! What went wrong, in words that a model can act on.
//!
//! **Invariant:** a failure says "try again" only if the call cannot have reached its server.

use rig_core::tool::{ToolErrorKind, ToolExecutionError};
use serde_json::Value;
use toolrack_client::CallError;
use toolrack_manager::{ConnectionState, RackError, with_causes};
use toolrack_transport::clean_text;
use toolrack_transport::{Delivery, TransportError};

/// The tool ran, and says that it failed.
pub(crate) fn said_by_tool(content: String) -> ToolExecutionError {
    let text =
        if content.trim().is_empty() { "the tool failed and did not say why" } else { &content };
    ToolExecutionError::new(ToolErrorKind::Other, text).with_retryable(false)
}

/// MCP has no arguments but objects.
pub(crate) fn not_an_object(arguments: &Value) -> ToolExecutionError {
    let given = match arguments {
        Value::Array(_) => "a list",
        Value::String(_) => "a text",
        Value::Number(_) => "a number",
        _ => "a single value",
    };
    ToolExecutionError::invalid_args(format!("the arguments have to be an object, not {given}"))
}

/// The call has no result.
pub(crate) fn unreachable_tool(error: RackError) -> ToolExecutionError {
    let message = match error.hint() {
        Some(hint) => format!("{} ({hint})", with_causes(&error)),
        None => with_causes(&error),
    };
    let (kind, is_safe) = (kind(&error), is_worth_repeating(&error));
    let failure = ToolExecutionError::new(kind, clean_text(&message)).with_retryable(is_safe);
    match code(&error) {
        Some(code) => failure.with_code(code.to_string()).with_source(error),
        None => failure.with_source(error),
    }
}

fn kind(error: &RackError) -> ToolErrorKind {
    match error {
        RackError::NoSuchServer { .. } | RackError::NoSuchTool { .. } => ToolErrorKind::NotFound,
        RackError::Denied { .. } => ToolErrorKind::PermissionDenied,
        RackError::NotConnected { state: ConnectionState::NeedsAuth(_), .. } => {
            ToolErrorKind::PermissionDenied
        }
        // Somebody has switched it off, and trying again does not switch it on.
        RackError::NotConnected {
            state: ConnectionState::Disabled | ConnectionState::Disconnected,
            ..
        } => ToolErrorKind::Other,
        RackError::NotConnected { .. } => ToolErrorKind::Network,
        RackError::NotReady { .. } => ToolErrorKind::Timeout,
        RackError::Undecodable { .. } => ToolErrorKind::Provider,
        RackError::Closed => ToolErrorKind::Cancelled,
        RackError::Call { source, .. } => kind_of_call(source),
        _ => ToolErrorKind::Other,
    }
}

fn kind_of_call(error: &CallError) -> ToolErrorKind {
    match error {
        // JSON-RPC 2.0: -32602 is for invalid parameters.
        CallError::Refused(refusal) if refusal.code == -32602 => ToolErrorKind::InvalidArgs,
        CallError::TimedOut { .. } => ToolErrorKind::Timeout,
        CallError::Line(failure) => match &failure.error {
            TransportError::Unauthorized(_) => ToolErrorKind::PermissionDenied,
            TransportError::Status { code: 429, .. } => ToolErrorKind::RateLimited,
            TransportError::Timeout(_) => ToolErrorKind::Timeout,
            _ => ToolErrorKind::Network,
        },
        _ => ToolErrorKind::Provider,
    }
}

/// Whether the same call may succeed later and cannot have been carried out already.
fn is_worth_repeating(error: &RackError) -> bool {
    let may_pass = matches!(
        kind(error),
        ToolErrorKind::Network | ToolErrorKind::Timeout | ToolErrorKind::RateLimited
    );
    may_pass && error.delivery() == Delivery::NotSent
}

/// The code that the server gave, if it refused.
fn code(error: &RackError) -> Option<i64> {
    match error {
        RackError::Call { source, .. } => match &**source {
            CallError::Refused(refusal) => Some(refusal.code),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests;
