//! The daemon: the servers of one home behind an HTTP API, with a page, a history and counters.
//!
//! ```no_run
//! # async fn demo() -> Result<(), Box<dyn std::error::Error>> {
//! use toolrack_daemon::{Daemon, DaemonOptions};
//! use toolrack_service::Home;
//!
//! let daemon = Daemon::start(Home::at("/home/me/.toolrack"), DaemonOptions::default()).await?;
//! println!("listening on {:?} and {}", daemon.addr(), daemon.socket().display());
//! daemon.run().await?;
//! # Ok(())
//! # }
//! ```
//!
//! Programs of the same user come in over a Unix socket, browsers and other clients over TCP with a key; docs/api.md
//! says which checks a request passes. Everything that is done goes through
//! [`LocalService`](toolrack_service::LocalService).
//!
//! **Invariant:** there is one daemon per home, and nothing of it is left when it has ended.

#![warn(missing_docs)]

mod access_control;
mod assets;
mod daemon;
mod event_log;
mod event_recorder;
mod extract;
mod history;
mod http_server;
mod instance_lock;
mod mcp_endpoints;
mod metrics;
mod openapi;
mod problem;
mod process_memory;
mod routes;
mod state;
mod tokens;

pub use daemon::{DEFAULT_ADDR, Daemon, DaemonError, DaemonOptions, ShutdownKind};
pub use history::{CallRecord, HistoryOptions, HistoryQuery, read_call, read_history};
pub use instance_lock::{DaemonInfo, token_file};
pub use tokens::Token;

/// The description of the API (`OpenAPI`), as it is served at `/api/openapi.json`.
pub fn openapi() -> serde_json::Value {
    serde_json::to_value(routes::openapi_document()).unwrap_or_default()
}
