//! MCP tools for rig agents.
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
//! With the facade `toolrack`, the manager is `rack.manager()`. The example `agent` runs a complete agent with a
//! stub model.
//!
//! | module | contents |
//! |---|---|
//! | `adapter` | [`McpToolAdapter`], [`dynamic_tools`], and the errors that a model reads |
//!
//! **Invariant:** an error never panics and never ends an agent: the model gets its text, marked as retryable only
//! if the call cannot run twice.

#![warn(missing_docs)]

mod adapter;

pub use adapter::{McpToolAdapter, dynamic_tools};
