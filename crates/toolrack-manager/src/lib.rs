//! Many MCP servers behind one list of tools: started, supervised, filtered, and called by one name.
//!
//! ```no_run
//! # async fn demo() -> Result<(), Box<dyn std::error::Error>> {
//! use serde_json::json;
//! use toolrack_config::McpServerConfig;
//! use toolrack_manager::McpManager;
//!
//! let demo = McpServerConfig::stdio("demo", "demo-server", &[]);
//! let manager = McpManager::new(vec![demo]);
//! manager.connect_all().await?;
//! let answer = manager.call("demo_greet", &json!({"name": "World"})).await?;
//! assert!(!answer.is_error);
//! manager.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! One task owns all servers and publishes what it knows as a snapshot ([`McpManager::servers`],
//! [`McpManager::all_tools`]). Calls read the snapshot and go straight to their server; they wait for nobody
//! unless their server has to be started first.
//!
//! **Invariant:** a server has at most one process tree at a time, and none that nobody wants.

#![warn(missing_docs)]

mod atomic_file;
mod builder;
mod call;
mod call_events;
mod catch_panic;
mod client_guard;
mod config_watcher;
mod connection_state;
mod connection_task;
mod connector;
mod error;
mod events;
mod failure;
mod glob;
mod in_flight;
mod index_key;
mod lifecycle;
mod manager;
mod name_reservations;
mod package_installer;
mod rate_limit;
mod redacting_transport;
mod retry_policy;
mod server_record;
mod server_snapshot;
mod server_tools;
mod snapshot;
mod supervisor;
mod telemetry;
mod tool_cache;
mod tool_cache_writer;
mod tool_filter;
mod tool_names;
mod tool_output;
mod tool_refresh;
mod wait_ready;

pub use atomic_file::read_at_most;
pub use builder::RackBuilder;
pub use call::Called;
pub use client_guard::Borrowed;
pub use config_watcher::{FileWatch, ReadServers};
pub use connection_state::{ConnectPhase, ConnectionState};
pub use error::RackError;
pub use events::{CallOutcome, RackEvent, RackEvents};
pub use failure::{Failure, FailureKind, with_causes};
pub use manager::{CredentialsOf, McpManager};
pub use package_installer::{Installation, Packages, Prepared, WantedPackage};
pub use server_snapshot::McpConnection;
pub use server_tools::ToolWithServer;
pub use tool_filter::Rule;
pub use tool_output::read as read_result;
