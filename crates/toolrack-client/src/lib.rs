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

mod builder;
mod call;
mod client;
mod connect;
mod connect_error;
mod connect_progress;
mod connector;
mod error;
mod event;
mod forwarded;
mod handler;
mod handshake;
mod http_connector;
mod incoming;
mod list_debounce;
mod lock;
mod multi_round_trip;
mod pagination;
mod param_headers;
mod progress;
mod request_meta;
mod requests;
mod result_type;
mod server_request_handler;
mod server_requests;
mod session;
mod session_restore;
mod session_task;
mod stdio_connector;
mod subscriptions;
mod task_polling;
mod timeouts;
mod tool;
mod version_detection;

pub use builder::{Changes, ClientBuilder};
pub use call::CallOptions;
pub use client::McpClient;
pub use connect_error::{ConnectError, NotMcp};
pub use connect_progress::{ConnectStep, StepWatcher};
pub use connector::Connector;
pub use error::CallError;
pub use event::{Event, Events};
pub use forwarded::Behalf;
pub use handler::{ClientHandler, RawQuestion, Refusal};
pub use http_connector::HttpConnector;
pub use pagination::{Cut, Listing};
pub use progress::OnProgress;
pub use stdio_connector::{StdioConnector, launcher_of};
pub use timeouts::{Limits, MCP_REQUEST_TIMEOUT_SECS, Timeouts};
pub use tool::{McpToolDef, McpToolResult, parse_tool_result, parse_tools_list};
pub use version_detection::{EraChoice, Verdict};
