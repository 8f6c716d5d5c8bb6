//! Tool adapter: one tool of one server as an object, for the tool traits of agent frameworks.
//!
//! Needs no framework. A tool trait asks for a name, a description, a schema and an asynchronous call from JSON to
//! text, and its implementation forwards to [`McpToolAdapter`]. The crate `toolrack-rig` does that for the newest rig;
//! the feature `rig-033` does it here for rig 0.33, because only the crate of a type may implement a foreign trait
//! for it.
//!
//! **Invariant:** an error never panics, and its text is complete: a model reads it instead of a result.

use std::fmt;
use std::sync::Arc;

use serde_json::{Value, json};
use toolrack_client::McpToolDef;
use toolrack_transport::sanitize_text;

use crate::error::{ManagerError, error_chain};
use crate::manager::McpManager;
use crate::server_tools::ToolWithServer;

/// One tool of one server, for the tool trait of an agent framework. Cheap to clone.
///
/// It keeps the manager alive, and describes the tool as it was when the adapter was created. Calls use the server
/// name and the server's own tool name, so they survive a reconnect.
///
/// docs/guide.md shows the lines that adapt it to the tool trait of a framework.
#[derive(Clone)]
pub struct McpToolAdapter {
    manager: McpManager,
    tool: ToolWithServer,
    definition: Arc<McpToolDef>,
}

/// Why a call of an [`McpToolAdapter`] returned no text.
///
/// `Display` is the complete text for a model, with cause and hint, because most frameworks pass on nothing else.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ToolAdapterError {
    /// The tool ran and reported an error, which is this text.
    #[error("{0}")]
    Tool(String),
    /// The arguments are not a JSON object, but this. They were not sent.
    #[error("the arguments must be an object, not {0}")]
    Arguments(&'static str),
    /// The call has no result. Not a source, because the text has it already.
    #[error("{}", text_with_hint(.0))]
    Call(ManagerError),
}

/// Adapters of all offered tools, including those of servers that start with their first call.
/// [`McpManager::get_tools`] has only those of connected servers.
pub fn adapters_of(manager: &McpManager) -> Vec<McpToolAdapter> {
    let tools = manager.all_tools();
    tools.iter().map(|tool| McpToolAdapter::new(manager, tool.clone())).collect()
}

impl McpToolAdapter {
    /// Creates an adapter for a tool of this manager.
    pub fn new(manager: &McpManager, tool: ToolWithServer) -> Self {
        let definition = tool.definition();
        let input_schema = schema_or_empty(definition.input_schema);
        let definition = Arc::new(McpToolDef { input_schema, ..definition });
        Self { manager: manager.clone(), tool, definition }
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

    /// The server's description, sanitized.
    pub fn description(&self) -> &str {
        &self.definition.description
    }

    /// JSON Schema of the arguments. An object schema without properties if the server gave none.
    pub fn input_schema(&self) -> &Value {
        &self.definition.input_schema
    }

    /// Calls the tool and returns its text: joined, sanitized, and truncated at the server's `max_output_bytes`.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the call, and the server is notified.
    pub async fn call(&self, arguments: Value) -> Result<String, ToolAdapterError> {
        match arguments {
            Value::Object(_) | Value::Null => {}
            Value::Array(_) => return Err(ToolAdapterError::Arguments("an array")),
            Value::String(_) => return Err(ToolAdapterError::Arguments("a string")),
            Value::Number(_) => return Err(ToolAdapterError::Arguments("a number")),
            Value::Bool(_) => return Err(ToolAdapterError::Arguments("a boolean")),
        }
        let call = self.manager.call_tool(self.server_name(), self.tool_name(), &arguments);
        let result = call.await.map_err(ToolAdapterError::Call)?;
        if result.is_error { Err(tool_error(result.content)) } else { Ok(result.content) }
    }
}

impl McpManager {
    /// Adapters of the tools of all servers that are connected now.
    ///
    /// Lists that may be out of date are [refreshed](Self::refresh_tools) first, for at most a second. Adapters keep
    /// what they describe; call it again for the tools of a later moment.
    pub async fn get_tools(&self) -> Vec<McpToolAdapter> {
        self.refresh_tools().await;
        self.connected_tools().into_iter().map(|tool| McpToolAdapter::new(self, tool)).collect()
    }
}

/// The schema, or an empty object schema: some servers omit it for tools without arguments, and models need one.
fn schema_or_empty(schema: Value) -> Value {
    if schema.is_object() { schema } else { json!({"type": "object", "properties": {}}) }
}

fn tool_error(content: String) -> ToolAdapterError {
    if content.trim().is_empty() {
        return ToolAdapterError::Tool("the tool failed without an error message".to_owned());
    }
    ToolAdapterError::Tool(content)
}

fn text_with_hint(error: &ManagerError) -> String {
    let chain = error_chain(error);
    let text = match error.hint() {
        Some(hint) => format!("{chain} ({hint})"),
        None => chain,
    };
    sanitize_text(&text).into_owned()
}

impl fmt::Debug for McpToolAdapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpToolAdapter").field("tool", &self.tool).finish_non_exhaustive()
    }
}

/// Founding document 002: `tool_server = tool_server.tool(mcp_tool)`.
#[cfg(feature = "rig-033")]
impl rig_core_033::tool::Tool for McpToolAdapter {
    /// Not used: [`name`](Self::name) knows the tool.
    const NAME: &'static str = "mcp_tool";

    type Error = ToolAdapterError;
    type Args = Value;
    type Output = String;

    fn name(&self) -> String {
        self.definition.name.clone()
    }

    async fn definition(&self, _prompt: String) -> rig_core_033::completion::ToolDefinition {
        let McpToolDef { name, description, input_schema, .. } = (*self.definition).clone();
        rig_core_033::completion::ToolDefinition { name, description, parameters: input_schema }
    }

    async fn call(&self, arguments: Value) -> Result<String, ToolAdapterError> {
        McpToolAdapter::call(self, arguments).await
    }
}

#[cfg(test)]
mod tests {
    use toolrack_client::CallError;
    use toolrack_transport::JsonRpcError;

    use super::*;
    use crate::lifecycle::ConnectionState;

    #[track_caller]
    fn check(error: ManagerError, text: &str) {
        assert_eq!(ToolAdapterError::Call(error).to_string(), text);
    }

    #[test]
    fn adapter_error_text_has_cause_and_hint() {
        let suggestions = vec!["s_y".to_owned()];
        check(
            ManagerError::NoSuchTool { tool: "s_x".to_owned(), suggestions },
            "no tool named `s_x`; did you mean `s_y`?",
        );
        check(
            ManagerError::NotConnected { server: "s".to_owned(), state: ConnectionState::Disabled },
            "server `s` is not connected (disabled) (set `enabled = true` in the config to use it)",
        );
        let message = "no \u{1b}[1mpath".to_owned();
        let source = CallError::Refused(JsonRpcError { code: -32602, message, data: None });
        let (server, tool) = ("s".to_owned(), "t".to_owned());
        check(
            ManagerError::Call { server, tool, source: Box::new(source) },
            "call to tool `t` on server `s` failed: the server returned an error: \
             JSON-RPC error -32602: no path",
        );
        check(
            ManagerError::Closed,
            "the manager is closed (it was shut down, or the Tokio runtime that it was built on has ended)",
        );
        assert_eq!(tool_error("no such file".to_owned()).to_string(), "no such file");
        let silent = tool_error(" ".to_owned());
        assert_eq!(silent.to_string(), "the tool failed without an error message");
    }

    #[track_caller]
    fn check_schema(schema: Value, expected: &Value) {
        assert_eq!(schema_or_empty(schema), *expected);
    }

    #[test]
    fn input_schema_is_passed_through() {
        let schema = json!({"type": "object", "properties": {"b": {}, "a": {}}, "x-more": 1});
        check_schema(schema.clone(), &schema);
        check_schema(json!({}), &json!({}));
        check_schema(Value::Null, &json!({"type": "object", "properties": {}}));
        check_schema(json!("?"), &json!({"type": "object", "properties": {}}));
    }
}
