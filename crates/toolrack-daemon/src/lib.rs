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

mod answer;
mod app;
mod body;
mod chronicle;
mod daemon;
mod doorway;
mod endpoint;
mod error;
mod feed;
mod gate;
mod happening;
mod history;
mod key;
mod listen;
mod logbook;
mod memory;
mod merge;
mod options;
mod page;
mod problem;
mod query;
mod routes;
mod schema;
mod seat;
mod status;
mod tally;

pub use daemon::{Daemon, Ending};
pub use error::DaemonError;
pub use history::{CallRecord, Question as HistoryQuestion, read_call, read_history};
pub use key::Token;
pub use options::{DEFAULT_ADDR, DaemonOptions, HistoryOptions};
pub use seat::{Running, token_file};

/// The description of the API (`OpenAPI`), as it is served at `/api/openapi.json`.
pub fn openapi() -> serde_json::Value {
    serde_json::to_value(routes::description()).unwrap_or_default()
}
