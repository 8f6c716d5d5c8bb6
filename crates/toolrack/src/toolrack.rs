//! The handle that a program holds: all servers, all tools, calls.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use serde_json::value::RawValue;
use toolrack_client::{CallOptions, McpToolResult};
use toolrack_config::Fault;
use toolrack_manager::{
    FileWatch, McpConnection, McpManager, RackError, RackEvents, ToolWithServer,
};
use toolrack_mcp::ToolCallResult;
use toolrack_transport::RawJson;

use crate::builder::{OpenError, ToolrackBuilder};

/// Many servers, one list of tools, one way to call them. Cheap to clone; all clones are the same rack.
///
/// Dropping the last one ends all servers without waiting; [`shutdown`](Self::shutdown) ends them and waits.
///
/// The runtime in which a rack is opened has to run for as long as the rack is used. Other runtimes may call it; when
/// its own is dropped, its servers end and calls fail.
#[derive(Debug, Clone)]
pub struct Toolrack {
    manager: Arc<McpManager>,
    /// Gone once the rack is shut down, or if the file cannot be followed.
    watch: Arc<Mutex<Option<FileWatch>>>,
    warnings: Arc<[Fault]>,
}

impl Toolrack {
    /// Reads a config file, starts the servers that every agent has, and follows the file from then on.
    ///
    /// One broken server is no error, and does not hold up the others: see [`servers`](Self::servers). A file that
    /// cannot be used is one, and the error names every fault in it. For the servers of one agent, take
    /// [`builder`](Self::builder).
    ///
    /// # Cancel safety
    /// Dropping the future ends whatever was started.
    pub async fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::builder().file(path.as_ref()).open().await
    }

    /// Begins a rack with other settings, or without a file.
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

    pub(crate) fn new(
        manager: Arc<McpManager>,
        watch: Option<FileWatch>,
        warnings: Vec<Fault>,
    ) -> Self {
        Self { manager, watch: Arc::new(Mutex::new(watch)), warnings: warnings.into() }
    }

    /// Waits until no server is being connected any more, for so long at most, and gives those that take no calls:
    /// what is still being connected, and what has failed. Each says why with its state.
    ///
    /// A server that is fetched first, as by `npx` or `uvx`, may take a minute or two when it is started for the first
    /// time. A server that is disabled, or started by its first call, is not waited for.
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

    /// All tools that are known now, also those of servers that are not running at the moment. A server that has never
    /// been connected has none yet, so [`ready`](Self::ready) comes first. Later changes are told by
    /// [`events`](Self::events).
    pub fn tools(&self) -> Arc<[ToolWithServer]> {
        self.manager.all_tools()
    }

    /// Finds a tool by its public name, as `server.tool` or `server/tool`, or by the name that its server gives.
    pub fn find_tool(&self, name: &str) -> Option<ToolWithServer> {
        self.manager.find_tool(name)
    }

    /// Calls a tool by its public name, or as `server.tool` or `server/tool`, and gives its text: joined, cleaned,
    /// and cut at the server's `max_output_bytes`.
    ///
    /// Texts that are embedded as resources are text. Images and other blocks are one line each, such as
    /// `[image: image/png, 300 bytes]`; [`call_full`](Self::call_full) has them. A tool that answers with nothing but
    /// structured content gives that as JSON.
    ///
    /// # Cancel safety
    /// Dropping the future abandons the call, and the server is told.
    pub async fn call(&self, name: &str, arguments: &Value) -> Result<McpToolResult, RackError> {
        self.manager.call(name, arguments).await
    }

    /// Calls a tool of a server under the name that the server gives. Otherwise as [`call`](Self::call).
    ///
    /// # Cancel safety
    /// Dropping the future abandons the call, and the server is told.
    pub async fn call_tool(
        &self,
        server: &str,
        tool: &str,
        arguments: &Value,
    ) -> Result<McpToolResult, RackError> {
        self.manager.call_tool(server, tool, arguments).await
    }

    /// Calls a tool with options of its own, and gives everything that it answered: images, resources, structured
    /// content. Nothing is cleaned or cut.
    ///
    /// # Cancel safety
    /// Dropping the future abandons the call, and the server is told.
    pub async fn call_full(
        &self,
        name: &str,
        arguments: &Value,
        options: &CallOptions,
    ) -> Result<ToolCallResult<'static>, RackError> {
        self.manager.call_full(name, arguments, options).await
    }

    /// Calls a tool with a limit of its own, or with somebody who hears of its progress, and gives the result as
    /// the server wrote it.
    ///
    /// # Cancel safety
    /// Dropping the future abandons the call, and the server is told.
    pub async fn call_raw(
        &self,
        name: &str,
        arguments: &RawValue,
        options: &CallOptions,
    ) -> Result<RawJson, RackError> {
        self.manager.call_raw(name, arguments, options).await
    }

    /// Everything that happens from now on: states, tools, calls, changes of the file. Ends with the rack.
    pub fn events(&self) -> RackEvents {
        self.manager.subscribe()
    }

    /// All servers as they stand. One that failed says why.
    pub fn servers(&self) -> Vec<Arc<McpConnection>> {
        self.manager.servers()
    }

    /// Ends a server if it runs, connects it again at once, and waits for the outcome, which may be a failure: `Ok` is
    /// the server as it then stands, and its [state](McpConnection::state) says whether it takes calls.
    pub async fn reconnect(&self, server: &str) -> Result<Arc<McpConnection>, RackError> {
        self.manager.reconnect(server).await
    }

    /// Keeps these tools of a server from everybody, besides those that its config denies. Names or patterns; those
    /// of the last call are replaced.
    pub async fn set_denied_tools(&self, server: &str, tools: &[&str]) -> Result<(), RackError> {
        self.manager.set_denied_tools(server, tools).await
    }

    /// What was odd about the config file when it was read first, such as a key that nobody knows.
    pub fn warnings(&self) -> &[Fault] {
        &self.warnings
    }

    /// The manager behind it, for everything else and for `toolrack-rig`.
    pub fn manager(&self) -> &Arc<McpManager> {
        &self.manager
    }

    /// Ends all servers. When it returns, nothing of them is left. Calls fail with [`RackError::Closed`] from then on,
    /// and [`events`](Self::events) come to their end.
    pub async fn shutdown(&self) {
        // First, so that no change of the file starts a server that nobody would end.
        drop(self.watch.lock().unwrap_or_else(PoisonError::into_inner).take());
        self.manager.close().await;
    }
}
