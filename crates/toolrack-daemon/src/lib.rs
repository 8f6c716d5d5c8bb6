//! The daemon: runs the servers of one home and serves the control API, MCP endpoints, dashboard, call history and
//! metrics.
//!
//! ```no_run
//! # async fn demo() -> Result<(), Box<dyn std::error::Error>> {
//! use toolrack_daemon::{Daemon, DaemonOptions};
//! use toolrack_service::Home;
//!
//! let daemon = Daemon::start(Home::in_dir("/home/me/.toolrack"), DaemonOptions::default()).await?;
//! println!("listening on {:?} and {}", daemon.addr(), daemon.socket().display());
//! daemon.run().await?;
//! # Ok(())
//! # }
//! ```
//!
//! Programs of the same user connect over a Unix socket, browsers and MCP clients over TCP with a token or key. All work goes
//! through [`LocalService`](toolrack_service::LocalService).
//!
//! | module | content |
//! |---|---|
//! | `daemon` | [`Daemon`]: startup, signals, shutdown order; [`DaemonOptions`], [`DaemonError`] |
//! | `instance_lock` | one daemon per home; [`DaemonInfo`], by which clients find it |
//! | `http_server` | accept loop, connection limits, write timeout, graceful shutdown |
//! | `access_control` | `Host`, `Origin`, token and key checks |
//! | `tokens` | browser tokens, login codes, the login file for browsers |
//! | `keys` | keys of clients over TCP: [`KeyFile`], [`KeyScope`], proofs |
//! | `active_keys` | the keys of the running daemon; reload and revocation |
//! | `routes` | routes of the API, their shared state (`AppState`), middleware; one module per group of routes |
//! | `extract` | JSON bodies and query parameters with limits |
//! | `problem` | error responses |
//! | `openapi` | `OpenAPI` schemas and error responses |
//! | `mcp_endpoints` | MCP endpoints: all servers, one server, the servers of an agent |
//! | `assets` | static files of the dashboard (`assets/`) |
//! | `event_recorder` | consumer of manager events; running calls, stderr lines |
//! | `event_log` | events of the API and their ring buffer |
//! | `history` | call history in `SQLite` |
//! | `metrics` | Prometheus metrics |
//!
//! **Invariant:** there is one daemon per home, and nothing of it is left when it has ended or was killed.
//!
//! **Invariant:** a request that is not known to be harmless is refused before anything else reads it.
//!
//! **Invariant:** every request ends: bodies are bounded in size and time, and connections that are idle or do not read
//! are closed.
//!
//! **Invariant:** connections without a token never keep out those with one, and keep no memory after their end.
//!
//! **Invariant:** the history never fails or slows a call.
//!
//! **Invariant:** an event reader gets each event once and in order, or learns how many it missed.
//!
//! **Invariant:** the published `OpenAPI` document is the served one, and responses match it.
//!
//! Start reading at `Daemon::start` and `routes::router`. docs/api.md describes the API and its access control.

#![warn(missing_docs)]

mod access_control;
mod active_keys;
mod assets;
mod daemon;
mod event_log;
mod event_recorder;
mod extract;
mod history;
mod http_server;
mod instance_lock;
mod keys;
mod mcp_endpoints;
mod metrics;
mod openapi;
mod problem;
mod routes;
mod tokens;

pub use daemon::{DEFAULT_ADDR, Daemon, DaemonError, DaemonOptions, ShutdownKind};
pub use history::{CallRecord, HistoryOptions, HistoryQuery, read_call, read_history};
pub use http_server::ConnectionOptions;
pub use instance_lock::DaemonInfo;
pub use keys::{ApiKey, KeyEntry, KeyError, KeyFile, KeyHash, KeyScope, MAX_KEYS};

/// The `OpenAPI` document, as served at `/api/openapi.json`.
pub fn openapi() -> serde_json::Value {
    serde_json::to_value(routes::openapi_document()).unwrap_or_default()
}
