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

mod actor;
mod borrow;
mod builder;
mod call;
mod catalog;
mod caught;
mod connection;
mod entry;
mod error;
mod event;
mod failure;
mod filter;
mod fresh;
mod given;
mod glob;
mod indexed;
mod launch;
mod ledger;
mod life;
mod masked;
mod name;
mod opening;
mod output;
mod pace;
mod package;
mod rack;
mod readiness;
mod route;
mod scribe;
mod snapshot;
mod state;
mod store;
mod telemetry;
mod toolset;
mod usage;
mod watch;

pub use borrow::Borrowed;
pub use builder::RackBuilder;
pub use call::Called;
pub use connection::McpConnection;
pub use error::RackError;
pub use event::{CallOutcome, RackEvent, RackEvents};
pub use failure::{Failure, FailureKind, with_causes};
pub use filter::Rule;
pub use output::read as read_result;
pub use package::{Installation, Packages, Prepared, WantedPackage};
pub use rack::{CredentialsOf, McpManager};
pub use state::{ConnectPhase, ConnectionState};
pub use store::read_at_most;
pub use toolset::ToolWithServer;
pub use watch::{FileWatch, ReadServers};
