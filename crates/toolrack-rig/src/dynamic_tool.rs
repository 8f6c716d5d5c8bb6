//! MCP tools as dynamic tools of rig, with errors as text for the model.
//!
//! **Invariant:** an error is retryable only if the call cannot have reached its server.

use rig_core::message::{EmptyToolName, ToolName};
use rig_core::tool::{DynamicTool, ToolErrorKind, ToolExecutionError, ToolOutput};
use toolrack_manager::{
    ErrorKind, ManagerError, McpManager, McpToolAdapter, ToolAdapterError, adapters_of,
};
use toolrack_transport::Delivery;

/// All tools of the manager, for `AgentBuilder::dynamic_tools`, `ToolServer::dynamic_tools` or
/// `ToolSet::from_dynamic_tools`.
///
/// Includes tools of servers that start with their first call; [`McpManager::get_tools`] has only those of connected
/// servers.
pub fn dynamic_tools(manager: &McpManager) -> Vec<DynamicTool> {
    adapters_of(manager).into_iter().flat_map(dynamic_tool).collect()
}

/// One MCP tool for `AgentBuilder::dynamic_tool`, `ToolServer::dynamic_tool` or `ToolServerHandle::add_dynamic_tool`.
///
/// Not a `Tool`, because rig requires its name at compile time. Dropping a call cancels it, and the server is
/// notified.
pub fn dynamic_tool(adapter: McpToolAdapter) -> Result<DynamicTool, EmptyToolName> {
    let name = ToolName::new(adapter.name())?;
    let (description, schema) = (adapter.description().to_owned(), adapter.input_schema().clone());
    Ok(DynamicTool::new(name, description, schema, move |arguments| {
        let adapter = adapter.clone();
        Box::pin(async move {
            let text = adapter.call(arguments).await.map_err(execution_error)?;
            Ok(ToolOutput::text(text))
        })
    }))
}

fn execution_error(error: ToolAdapterError) -> ToolExecutionError {
    let text = error.to_string();
    match error {
        ToolAdapterError::Arguments(_) => ToolExecutionError::invalid_args(text),
        ToolAdapterError::Call(error) => call_error(error, text),
        _ => ToolExecutionError::new(ToolErrorKind::Other, text).with_retryable(false),
    }
}

/// The call has no result.
fn call_error(error: ManagerError, text: String) -> ToolExecutionError {
    let kind = error_kind(&error);
    let is_transient = matches!(
        kind,
        ToolErrorKind::Network | ToolErrorKind::Timeout | ToolErrorKind::RateLimited
    );
    // A call that may have run already must not run again.
    let retryable = is_transient && error.delivery() == Delivery::NotSent;
    let failure = ToolExecutionError::new(kind, text).with_retryable(retryable);
    match error_code(&error) {
        Some(code) => failure.with_code(code.to_string()).with_source(error),
        None => failure.with_source(error),
    }
}

fn error_kind(error: &ManagerError) -> ToolErrorKind {
    match error.kind() {
        ErrorKind::NoSuchServer | ErrorKind::NoSuchTool => ToolErrorKind::NotFound,
        ErrorKind::Denied | ErrorKind::NeedsLogin => ToolErrorKind::PermissionDenied,
        _ if matches!(error, ManagerError::NotReady { .. }) => ToolErrorKind::Timeout,
        // Disabled or stopped by the user: a retry does not start it.
        ErrorKind::Disabled | ErrorKind::NotRunning | ErrorKind::Ambiguous => ToolErrorKind::Other,
        ErrorKind::TimedOut => ToolErrorKind::Timeout,
        ErrorKind::RateLimited => ToolErrorKind::RateLimited,
        ErrorKind::Closed => ToolErrorKind::Cancelled,
        // JSON-RPC 2.0: -32602 means invalid parameters.
        ErrorKind::Rejected if error_code(error) == Some(-32602) => ToolErrorKind::InvalidArgs,
        ErrorKind::Rejected
        | ErrorKind::InvalidResponse
        | ErrorKind::MissingCapability
        | ErrorKind::Unsupported => ToolErrorKind::Provider,
        _ => ToolErrorKind::Network,
    }
}

/// The server's JSON-RPC error code.
fn error_code(error: &ManagerError) -> Option<i64> {
    error.json_rpc_error().map(|error| error.code)
}

#[cfg(test)]
mod tests;
