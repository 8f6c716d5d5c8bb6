//! `McpToolAdapter`: an MCP tool as a rig tool, with errors as text for the model.
//!
//! **Invariant:** an error is retryable only if the call cannot have reached its server.

use std::fmt;
use std::sync::Arc;

use rig_core::message::{EmptyToolName, ToolName};
use rig_core::tool::{
    DynamicTool, ErasedTool, ToolContext, ToolErrorKind, ToolExecutionError, ToolOutput, ToolResult,
};
use rig_core::wasm_compat::WasmBoxedFuture;
use serde_json::{Value, json};
use toolrack_client::McpToolDef;
use toolrack_manager::{ErrorKind, ManagerError, McpManager, ToolWithServer, error_chain};
use toolrack_transport::{Delivery, sanitize_text};

/// One tool of one server as a rig tool. Cheap to clone.
///
/// It keeps the manager alive, and describes the tool as it was when the adapter was created. Calls use the server
/// name and the server's own tool name, so they survive a reconnect.
#[derive(Clone)]
pub struct McpToolAdapter {
    manager: Arc<McpManager>,
    tool: ToolWithServer,
    definition: Arc<McpToolDef>,
}

/// All tools of the manager, for `AgentBuilder::dynamic_tools`, `ToolServer::dynamic_tools` or
/// `ToolSet::from_dynamic_tools`.
///
/// Includes tools of servers that start with their first call.
pub fn dynamic_tools(manager: &Arc<McpManager>) -> Vec<DynamicTool> {
    let tools = manager.all_tools();
    let adapters = tools.iter().map(|tool| McpToolAdapter::new(manager, tool.clone()));
    adapters.flat_map(DynamicTool::try_from).collect()
}

impl McpToolAdapter {
    /// Creates an adapter for a tool of this manager.
    pub fn new(manager: &Arc<McpManager>, tool: ToolWithServer) -> Self {
        let definition = tool.definition();
        let input_schema = schema_or_empty(definition.input_schema);
        let definition = Arc::new(McpToolDef { input_schema, ..definition });
        Self { manager: Arc::clone(manager), tool, definition }
    }

    /// Public name for models: server and tool name.
    pub fn name(&self) -> &str {
        &self.definition.name
    }

    /// Server name.
    pub fn server_name(&self) -> &str {
        self.tool.server()
    }

    /// The server's own tool name.
    pub fn tool_name(&self) -> &str {
        &self.tool.tool().name
    }

    /// The server's description.
    pub fn description(&self) -> &str {
        &self.definition.description
    }

    /// JSON Schema of the arguments.
    pub fn input_schema(&self) -> &Value {
        &self.definition.input_schema
    }

    /// Calls the tool and returns its text: joined, sanitized, and truncated at the server's `max_output_bytes`.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the call and notifies the server.
    pub async fn call(&self, arguments: Value) -> Result<String, ToolExecutionError> {
        if !matches!(arguments, Value::Object(_) | Value::Null) {
            return Err(arguments_error(&arguments));
        }
        let call = self.manager.call_tool(self.server_name(), self.tool_name(), &arguments);
        match call.await {
            Ok(result) if result.is_error => Err(tool_error(result.content)),
            Ok(result) => Ok(result.content),
            Err(error) => Err(call_error(error)),
        }
    }
}

/// The schema, or an empty object schema: some servers omit it for tools without arguments, and models need one.
fn schema_or_empty(schema: Value) -> Value {
    if schema.is_object() { schema } else { json!({"type": "object", "properties": {}}) }
}

impl ErasedTool for McpToolAdapter {
    fn name(&self) -> String {
        self.definition.name.clone()
    }

    fn description(&self) -> String {
        self.definition.description.clone()
    }

    fn parameters(&self) -> Value {
        self.definition.input_schema.clone()
    }

    fn execute<'a>(
        &'a self,
        args: String,
        _context: &'a mut ToolContext,
    ) -> WasmBoxedFuture<'a, ToolResult> {
        Box::pin(async move {
            let outcome = match serde_json::from_str(&args) {
                Ok(arguments) => self.call(arguments).await,
                Err(error) => {
                    let message = format!("the arguments are not valid JSON: {error}");
                    Err(ToolExecutionError::invalid_args(message))
                }
            };
            match outcome {
                Ok(text) => ToolResult::success(ToolOutput::text(text)),
                Err(error) => ToolResult::failed(error),
            }
        })
    }
}

impl TryFrom<McpToolAdapter> for DynamicTool {
    type Error = EmptyToolName;

    fn try_from(adapter: McpToolAdapter) -> Result<Self, EmptyToolName> {
        let name = ToolName::new(adapter.name())?;
        let (description, schema) =
            (adapter.description().to_owned(), adapter.input_schema().clone());
        Ok(DynamicTool::new(name, description, schema, move |arguments| {
            let adapter = adapter.clone();
            Box::pin(async move { adapter.call(arguments).await.map(ToolOutput::text) })
        }))
    }
}

impl fmt::Debug for McpToolAdapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpToolAdapter").field("tool", &self.tool).finish_non_exhaustive()
    }
}

/// The tool ran and reported an error.
pub(crate) fn tool_error(content: String) -> ToolExecutionError {
    let text = if content.trim().is_empty() {
        "the tool failed without an error message"
    } else {
        &content
    };
    ToolExecutionError::new(ToolErrorKind::Other, text).with_retryable(false)
}

/// MCP arguments must be an object.
pub(crate) fn arguments_error(arguments: &Value) -> ToolExecutionError {
    let given = match arguments {
        Value::Array(_) => "an array",
        Value::String(_) => "a string",
        Value::Number(_) => "a number",
        _ => "a boolean",
    };
    ToolExecutionError::invalid_args(format!("the arguments must be an object, not {given}"))
}

/// The call has no result.
pub(crate) fn call_error(error: ManagerError) -> ToolExecutionError {
    let message = match error.hint() {
        Some(hint) => format!("{} ({hint})", error_chain(&error)),
        None => error_chain(&error),
    };
    let kind = error_kind(&error);
    let is_transient = matches!(
        kind,
        ToolErrorKind::Network | ToolErrorKind::Timeout | ToolErrorKind::RateLimited
    );
    // A call that may have run already must not run again.
    let retryable = is_transient && error.delivery() == Delivery::NotSent;
    let failure = ToolExecutionError::new(kind, sanitize_text(&message)).with_retryable(retryable);
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
