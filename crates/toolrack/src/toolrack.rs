//! `Toolrack`: the facade's handle of all servers and tools.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use toolrack_config::Diagnostic;
use toolrack_manager::{
    CallTarget, FileWatch, ManagerError, ManagerEvents, McpConnection, McpManager, ToolCall,
    ToolWithServer,
};

use crate::builder::{OpenError, ToolrackBuilder};

/// Many servers, one list of tools, one way to call them. Cheap to clone; all clones share the same servers.
///
/// Dropping the last clone stops all servers without waiting; [`shutdown`](Self::shutdown) waits.
///
/// The Tokio runtime that opened it must outlive it. Other runtimes may call it; when its own is dropped, the
/// servers stop and calls fail.
#[derive(Debug, Clone)]
pub struct Toolrack {
    pub(crate) manager: Arc<McpManager>,
    /// `None` after shutdown, or if the file cannot be watched.
    pub(crate) watch: Arc<Mutex<Option<FileWatch>>>,
    pub(crate) warnings: Arc<[Diagnostic]>,
}

impl Toolrack {
    /// Reads a config file, starts its default servers, and watches the file.
    ///
    /// A failed server is not an error and does not delay the others: see [`servers`](Self::servers). An invalid
    /// file is an error with all diagnostics. For the servers of one agent, use [`builder`](Self::builder).
    ///
    /// # Cancel safety
    /// Dropping the future stops all servers.
    pub async fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::builder().file(path.as_ref()).open().await
    }

    /// Starts building with other options, or without a file.
    ///
    /// ```no_run
    /// # async fn demo() -> Result<(), toolrack::OpenError> {
    /// use toolrack::{McpServerConfig, Toolrack};
    ///
    /// let rack = Toolrack::builder()
    ///     .server(McpServerConfig::stdio("git", "uvx", &["mcp-server-git"]))
    ///     .server(McpServerConfig::http("docs", "https://example.com/mcp"))
    ///     .deny("git_push")
    ///     .open()
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn builder() -> ToolrackBuilder {
        ToolrackBuilder::default()
    }

    /// Waits until no server is connecting, for at most `within`, and returns the servers that take no calls: still
    /// connecting or failed. The state of each says why.
    ///
    /// A server that `npx` or `uvx` has to install may need a minute or two for its first start. Disabled servers and
    /// servers started by their first call are not waited for.
    ///
    /// ```no_run
    /// # async fn demo(rack: &toolrack::Toolrack) {
    /// use std::time::Duration;
    ///
    /// for server in rack.ready(Duration::from_mins(2)).await {
    ///     eprintln!("{}: {}", server.name(), server.state());
    /// }
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn ready(&self, within: Duration) -> Vec<Arc<McpConnection>> {
        self.manager.ready(within).await
    }

    /// All known tools, including those of servers that are not running. A server that never connected has none yet,
    /// so call [`ready`](Self::ready) first. [`events`](Self::events) reports later changes.
    pub fn tools(&self) -> Arc<[ToolWithServer]> {
        self.manager.all_tools()
    }

    /// Finds a tool by its public name, as `server.tool` or `server/tool`, or by its server's own name for it.
    pub fn find_tool(&self, name: &str) -> Option<ToolWithServer> {
        self.manager.find_tool(name)
    }

    /// A call of a tool, by its public name, as `server.tool` or `server/tool`, or by a pair of a server and the
    /// server's own name for the tool. [`send`](ToolCall::send) runs it.
    ///
    /// ```no_run
    /// # async fn demo(rack: &toolrack::Toolrack) -> Result<(), toolrack::ManagerError> {
    /// use std::time::Duration;
    ///
    /// use serde_json::json;
    ///
    /// let result = rack
    ///     .call("github_search_issues")
    ///     .args(json!({"query": "is:open"}))
    ///     .timeout(Duration::from_secs(30))
    ///     .on_progress(|progress| eprintln!("{}", progress.progress))
    ///     .send()
    ///     .await?;
    /// println!("{}", result.text());
    /// # Ok(())
    /// # }
    /// ```
    pub fn call<'a>(&'a self, tool: impl Into<CallTarget<'a>>) -> ToolCall<'a> {
        self.manager.call(tool)
    }

    /// Subscribes to events: server states, tools, calls, config changes. Ends on shutdown.
    pub fn events(&self) -> ManagerEvents {
        self.manager.subscribe()
    }

    /// All servers with their current state. A failed one says why.
    pub fn servers(&self) -> Vec<Arc<McpConnection>> {
        self.manager.servers()
    }

    /// Restarts a server and waits for the outcome. `Ok` holds the server's new [state](McpConnection::state), which
    /// may be a failure.
    pub async fn reconnect(&self, server: &str) -> Result<Arc<McpConnection>, ManagerError> {
        self.manager.reconnect(server).await
    }

    /// Denies these tools of a server, by name or pattern, in addition to its config. Replaces those of the last call.
    pub async fn set_denied_tools(&self, server: &str, tools: &[&str]) -> Result<(), ManagerError> {
        self.manager.set_denied_tools(server, tools).await
    }

    /// Warnings from the first read of the config file, such as unknown keys.
    pub fn warnings(&self) -> &[Diagnostic] {
        &self.warnings
    }

    /// The manager of all servers, for everything else and for `toolrack-rig`.
    pub fn manager(&self) -> &Arc<McpManager> {
        &self.manager
    }

    /// Stops all servers. When it returns, no server process is left. Later calls fail with `ManagerError::Closed`,
    /// and [`events`](Self::events) end.
    pub async fn shutdown(&self) {
        // First, so that no file change starts a server after the manager has closed.
        drop(self.watch.lock().take());
        self.manager.close().await;
    }
}
