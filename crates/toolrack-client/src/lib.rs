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
//! **Invariant:** only `launch.rs` and `remote.rs` know what kind of transport there is; everything else knows
//! [`Line`](toolrack_transport::Line).

#![warn(missing_docs)]

mod builder;
mod client;
mod connect;
mod connector;
mod error;
mod event;
mod handshake;
mod incoming;
mod multi_round_trip;
mod pagination;
mod progress;
mod request_meta;
mod server_requests;
mod session;
mod session_restore;
mod subscriptions;
mod task_polling;
mod timeouts;
mod tool;
mod version_detection;

pub use builder::{ClientBuilder, ListChanges};
pub use client::{CallOptions, McpClient};
pub use connect::{ConnectStep, OnConnectStep};
pub use connector::{Connector, HttpConnector, StdioConnector, launcher_name};
pub use error::{CallError, ConnectError, NotMcp};
pub use event::{Event, Events};
pub use pagination::{List, Truncated};
pub use progress::OnProgress;
pub use request_meta::ForwardedFor;
pub use server_requests::{ClientHandler, RawServerRequest, SamplingError};
pub use timeouts::{Limits, MCP_REQUEST_TIMEOUT_SECS, Timeouts};
pub use tool::{McpToolDef, McpToolResult, parse_tool_result, parse_tools_list};
pub use version_detection::{DetectedVersion, EraChoice};
