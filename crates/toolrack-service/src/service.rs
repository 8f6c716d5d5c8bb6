//! The contract of the service.

use serde_json::Value;
use toolrack_mcp::Tool;
use toolrack_transport::BoxFuture;
use uuid::Uuid;

use crate::error::ServiceError;
use crate::model::{Enabled, McpConfig, McpStatus};

/// What can be done with the configured servers.
///
/// **Invariant:** what a method has promised with `Ok` is on disk.
pub trait McpService: Send + Sync {
    /// Every configured server, in the order of the file.
    fn list(&self) -> Vec<McpConfig>;

    /// One of them.
    fn get(&self, id: Uuid) -> Option<McpConfig>;

    /// How it is now. A server that nobody knows is `Stopped`.
    fn status(&self, id: Uuid) -> McpStatus;

    /// Starts it, and waits until it can be called. One that runs already is left alone.
    fn start(&self, id: Uuid) -> BoxFuture<'_, Result<(), ServiceError>>;

    /// Stops it, and waits until nothing is left of it.
    fn stop(&self, id: Uuid) -> BoxFuture<'_, Result<(), ServiceError>>;

    /// Stops and starts it.
    fn restart(&self, id: Uuid) -> BoxFuture<'_, Result<(), ServiceError>>;

    /// Allows or forbids it, and starts or stops it accordingly. If it cannot be started, it is
    /// forbidden again and the error is returned.
    fn set_enabled(&self, id: Uuid, enabled: Enabled) -> BoxFuture<'_, Result<(), ServiceError>>;

    /// The tools of all servers that run, under their public names.
    fn available_tools(&self) -> Vec<Tool>;

    /// Whose tool it is.
    fn find_tool_provider(&self, tool_name: &str) -> Option<Uuid>;

    /// Calls a tool, and returns the text of its result.
    fn call_tool<'a>(
        &'a self,
        mcp_id: Uuid,
        tool_name: &'a str,
        arguments: &'a Value,
    ) -> BoxFuture<'a, Result<String, ServiceError>>;

    /// Remembers a server under an id of its own, which is returned.
    ///
    /// # Errors
    ///
    /// With every fault of the config, or if its name is taken or it cannot be saved.
    fn create(&self, config: McpConfig) -> Result<Uuid, ServiceError>;

    /// Replaces what is remembered of a server.
    ///
    /// # Errors
    ///
    /// Like [`create`](Self::create), or if nobody knows the id.
    fn update(&self, config: McpConfig) -> Result<(), ServiceError>;

    /// Forgets a server, and stops it.
    ///
    /// # Errors
    ///
    /// If nobody knows the id, or the file cannot be saved.
    fn delete(&self, id: Uuid) -> Result<(), ServiceError>;

    /// Stops every server, and waits until nothing is left of them.
    fn shutdown_all(&self) -> BoxFuture<'_, Result<(), ServiceError>>;
}
