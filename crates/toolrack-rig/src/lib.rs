//! Tools of MCP servers as tools of rig agents.
//!
//! ```no_run
//! # async fn demo(model: rig_core::DynModel<rig_core::operation::Completion>)
//! # -> Result<(), Box<dyn std::error::Error>> {
//! use std::sync::Arc;
//!
//! use rig_agent::AgentBuilder;
//! use toolrack_config::McpServerConfig;
//! use toolrack_manager::McpManager;
//! use toolrack_rig::dynamic_tools;
//!
//! let files = McpServerConfig::stdio("files", "npx", &["-y", "some-server"]);
//! let manager = Arc::new(McpManager::new(vec![files]));
//! manager.connect_all().await?;
//! let agent = AgentBuilder::new(model).dynamic_tools(dynamic_tools(&manager)).build();
//! println!("{}", agent.prompt("Which files are there?").max_turns(5).await?);
//! manager.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! With the facade `toolrack`, the manager is `rack.manager()`. The example `agent` of this crate runs a whole
//! agent without a model of its own.
//!
//! **Invariant:** a failure is never a panic and never the end of an agent: the model reads what went wrong, and
//! is told to try again only if nothing can happen twice.

#![warn(missing_docs)]

mod adapter;

pub use adapter::{McpToolAdapter, dynamic_tools};
