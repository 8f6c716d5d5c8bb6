//! One MCP tool as a tool of rig.
//!
//! What went wrong, in words that a model can act on.
//!
//! **Invariant:** a failure says "try again" only if the call cannot have reached its server.

use std::fmt;
use std::sync::Arc;

use rig_core::message::{EmptyToolName, ToolName};
use rig_core::tool::{
    DynamicTool, ErasedTool, ToolContext, ToolErrorKind, ToolExecutionError, ToolOutput, ToolResult,
};
use rig_core::wasm_compat::WasmBoxedFuture;
use serde_json::{Value, json};
use toolrack_client::{CallError, McpToolDef};
use toolrack_manager::{ConnectionState, McpManager, RackError, ToolWithServer, with_causes};
use toolrack_transport::{Delivery, TransportError, clean_text};

/// One tool of one server, as rig calls it. Cheap to clone.
///
/// It keeps the manager alive, and describes the tool as it was when the adapter was made. Calls go by the server
/// and the name that the server gives, so a server may be connected anew meanwhile.
#[derive(Clone)]
pub struct McpToolAdapter {
    manager: Arc<McpManager>,
    tool: ToolWithServer,
    definition: Arc<McpToolDef>,
}

/// All tools that the manager offers, as rig wants them: for `AgentBuilder::dynamic_tools`,
/// `ToolServer::dynamic_tools` or `ToolSet::from_dynamic_tools`.
///
/// Tools of servers that are started by their first call are among them.
pub fn dynamic_tools(manager: &Arc<McpManager>) -> Vec<DynamicTool> {
    let tools = manager.all_tools();
    let adapters = tools.iter().map(|tool| McpToolAdapter::new(manager, tool.clone()));
    adapters.flat_map(DynamicTool::try_from).collect()
}

impl McpToolAdapter {
    /// An adapter for a tool of this manager.
    pub fn new(manager: &Arc<McpManager>, tool: ToolWithServer) -> Self {
        let definition = tool.definition();
        let input_schema = input_schema(definition.input_schema);
        let definition = Arc::new(McpToolDef { input_schema, ..definition });
        Self { manager: Arc::clone(manager), tool, definition }
    }

    /// The public name, by which models call it: server and tool in one.
    pub fn name(&self) -> &str {
        &self.definition.name
    }

    /// The server that has it.
    pub fn server_name(&self) -> &str {
        self.tool.server()
    }

    /// The name that the server gives.
    pub fn tool_name(&self) -> &str {
        &self.tool.tool().name
    }

    /// What it does, as the server says.
    pub fn description(&self) -> &str {
        &self.definition.description
    }

    /// The JSON Schema of its arguments, as the server says.
    pub fn input_schema(&self) -> &Value {
        &self.definition.input_schema
    }

    /// Calls the tool and gives its text: joined, cleaned, and cut at the server's `max_output_bytes`.
    ///
    /// # Cancel safety
    /// Dropping the future abandons the call, and the server is told.
    pub async fn call(&self, arguments: Value) -> Result<String, ToolExecutionError> {
        if !matches!(arguments, Value::Object(_) | Value::Null) {
            return Err(arguments_error(&arguments));
        }
        let call = self.manager.call_tool(self.server_name(), self.tool_name(), &arguments);
        match call.await {
            Ok(answer) if answer.is_error => Err(tool_error(answer.content)),
            Ok(answer) => Ok(answer.content),
            Err(error) => Err(call_error(error)),
        }
    }
}

/// The schema as it is, if it is one. Some servers leave it out for tools without arguments, and models need one.
fn input_schema(schema: Value) -> Value {
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
            let arguments: Value = match serde_json::from_str(&args) {
                Ok(arguments) => arguments,
                Err(error) => {
                    let why = format!("the arguments are no JSON: {error}");
                    return ToolResult::failed(ToolExecutionError::invalid_args(why));
                }
            };
            match self.call(arguments).await {
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
        let definition = Arc::clone(&adapter.definition);
        let (description, schema) =
            (definition.description.clone(), definition.input_schema.clone());
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

/// The tool ran, and says that it failed.
pub(crate) fn tool_error(content: String) -> ToolExecutionError {
    let text =
        if content.trim().is_empty() { "the tool failed and did not say why" } else { &content };
    ToolExecutionError::new(ToolErrorKind::Other, text).with_retryable(false)
}

/// MCP has no arguments but objects.
pub(crate) fn arguments_error(arguments: &Value) -> ToolExecutionError {
    let given = match arguments {
        Value::Array(_) => "a list",
        Value::String(_) => "a text",
        Value::Number(_) => "a number",
        _ => "a single value",
    };
    ToolExecutionError::invalid_args(format!("the arguments have to be an object, not {given}"))
}

/// The call has no result.
pub(crate) fn call_error(error: RackError) -> ToolExecutionError {
    let message = match error.hint() {
        Some(hint) => format!("{} ({hint})", with_causes(&error)),
        None => with_causes(&error),
    };
    let (kind, retryable) = (error_kind(&error), is_retryable(&error));
    let failure = ToolExecutionError::new(kind, clean_text(&message)).with_retryable(retryable);
    match error_code(&error) {
        Some(code) => failure.with_code(code.to_string()).with_source(error),
        None => failure.with_source(error),
    }
}

fn error_kind(error: &RackError) -> ToolErrorKind {
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
        RackError::Call { source, .. } => call_error_kind(source),
        _ => ToolErrorKind::Other,
    }
}

fn call_error_kind(error: &CallError) -> ToolErrorKind {
    match error {
        // JSON-RPC 2.0: -32602 is for invalid parameters.
        CallError::Refused(refusal) if refusal.code == -32602 => ToolErrorKind::InvalidArgs,
        CallError::TimedOut { .. } => ToolErrorKind::Timeout,
        CallError::Transport(failure) => match &failure.error {
            TransportError::Unauthorized(_) => ToolErrorKind::PermissionDenied,
            TransportError::Status { code: 429, .. } => ToolErrorKind::RateLimited,
            TransportError::Timeout(_) => ToolErrorKind::Timeout,
            _ => ToolErrorKind::Network,
        },
        _ => ToolErrorKind::Provider,
    }
}

/// Whether the same call may succeed later and cannot have been carried out already.
fn is_retryable(error: &RackError) -> bool {
    let is_transient = matches!(
        error_kind(error),
        ToolErrorKind::Network | ToolErrorKind::Timeout | ToolErrorKind::RateLimited
    );
    is_transient && error.delivery() == Delivery::NotSent
}

/// The code that the server gave, if it refused.
fn error_code(error: &RackError) -> Option<i64> {
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
