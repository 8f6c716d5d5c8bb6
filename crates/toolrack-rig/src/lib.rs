//! MCP tools for rig agents.
//!
//! ```no_run
//! # async fn demo(model: rig_core::DynModel<rig_core::operation::Completion>)
//! # -> Result<(), Box<dyn std::error::Error>> {
//! use rig_agent::AgentBuilder;
//! use rig_agent::tool::server::ToolServer;
//! use toolrack_config::McpServerConfig;
//! use toolrack_manager::McpManager;
//! use toolrack_rig::dynamic_tool;
//!
//! let files = McpServerConfig::stdio("files", "npx", &["-y", "some-server"]);
//! let manager = McpManager::new(vec![files]);
//! manager.connect_all().await?;
//! let mut tool_server = ToolServer::new();
//! for mcp_tool in manager.get_tools().await {
//!     tool_server = tool_server.dynamic_tool(dynamic_tool(mcp_tool)?);
//! }
//! let agent = AgentBuilder::new(model).tool_server_handle(tool_server.run()).build();
//! println!("{}", agent.prompt("Which files are there?").max_turns(5).await?);
//! manager.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! `AgentBuilder::new(model).dynamic_tools(dynamic_tools(&manager))` is the short form, with all tools that the manager
//! offers. With the facade `toolrack`, the manager is `rack.manager()`. The example `agent` runs a complete agent with
//! a stub model.
//!
//! # rig 0.33
//!
//! With the feature `rig-033`, [`McpToolAdapter`](toolrack_manager::McpToolAdapter) implements the `Tool` trait of rig
//! 0.33, as the founding document writes it: `tool_server = tool_server.tool(mcp_tool)`. A program that uses only this
//! rig enables the feature of the same name of `toolrack-manager` or `toolrack`, and needs no `toolrack-rig`. The
//! `ToolServer` of rig 0.33 runs each call in a task of its own: when an agent is dropped, its call ends at the
//! server's `timeout`.
//!
//! | module | contents |
//! |---|---|
//! | `dynamic_tool` | [`dynamic_tool`], [`dynamic_tools`], and the errors that a model reads |
//!
//! **Invariant:** an error never panics and never ends an agent: the model gets its text, marked as retryable only
//! if the call cannot run twice.

#![warn(missing_docs)]

mod dynamic_tool;

pub use dynamic_tool::{dynamic_tool, dynamic_tools};
