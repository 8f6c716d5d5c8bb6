//! One MCP server, typed: era detection, handshake, lists, calls, progress, cancellation, and the
//! server's own questions. Both eras stand behind one [`McpClient`].
//!
//! ```no_run
//! # async fn demo() -> Result<(), Box<dyn std::error::Error>> {
//! use toolrack_client::McpClient;
//!
//! let client = McpClient::connect("demo", "demo-server", &[]).await?;
//! let answer = client.call_tool("echo", &serde_json::json!({"text": "hello"})).await?;
//! assert!(!answer.is_error);
//! client.shutdown().await;
//! # Ok(())
//! # }
//! ```
//!
//! **Invariant:** only `launch.rs` and `remote.rs` know what kind of line there is; everything else knows
//! [`Line`](toolrack_transport::Line).

#![warn(missing_docs)]

mod answer;
mod attendant;
mod behalf;
mod builder;
mod call;
mod client;
mod connect;
mod connector;
mod era;
mod error;
mod event;
mod failure;
mod feature;
mod handler;
mod handshake;
mod inbox;
mod launch;
mod listen;
mod lock;
mod meta;
mod mirrors;
mod outcome;
mod page;
mod questions;
mod refresh;
mod remote;
mod restore;
mod rounds;
mod session;
mod settings;
mod step;
mod task;
mod tool;
mod watcher;

pub use behalf::Behalf;
pub use builder::{Changes, ClientBuilder};
pub use call::CallOptions;
pub use client::McpClient;
pub use connector::Connector;
pub use era::{EraChoice, Verdict};
pub use error::CallError;
pub use event::{Event, Events};
pub use failure::{ConnectError, NotMcp};
pub use handler::{ClientHandler, RawQuestion, Refusal};
pub use launch::{StdioConnector, launcher_of};
pub use page::{Cut, Listing};
pub use remote::HttpConnector;
pub use settings::{Limits, MCP_REQUEST_TIMEOUT_SECS, Timeouts};
pub use step::{ConnectStep, StepWatcher};
pub use tool::{McpToolDef, McpToolResult, parse_tool_result, parse_tools_list};
pub use watcher::OnProgress;
