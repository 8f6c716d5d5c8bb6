//! MCP client for one server: version detection, handshake, lists, calls, progress, cancellation, and server
//! requests. One [`McpClient`] covers both protocol eras.
//!
//! ```no_run
//! # async fn demo() -> Result<(), Box<dyn std::error::Error>> {
//! use toolrack_client::McpClient;
//!
//! let client = McpClient::connect("demo", "demo-server", &[]).await?;
//! let result = client.call_tool("echo", &serde_json::json!({"text": "hello"})).await?;
//! assert!(!result.is_error);
//! client.shutdown().await;
//! # Ok(())
//! # }
//! ```
//!
//! | module | contents |
//! |---|---|
//! | `client` | [`McpClient`]: all requests of a client; [`CallOptions`] |
//! | `tool` | plain tool types of founding document 000 |
//! | `builder`, `timeouts` | options, timeouts and limits of a connection |
//! | `connector` | stdio and HTTP connectors |
//! | `connect`, `handshake` | connecting: `server/discover`, `initialize`, first tool list |
//! | `version_detection` | protocol era and version, as a pure state machine |
//! | `session` | an open connection, its requests, and its background task |
//! | `session_restore` | log level and subscriptions in a new HTTP session |
//! | `request_meta` | `_meta` of requests, forwarded clients, `x-mcp-header` arguments |
//! | `multi_round_trip` | `input_required` results and repeated requests |
//! | `task_polling` | tool calls that run as tasks |
//! | `incoming` | router of notifications and server requests |
//! | `server_requests` | [`ClientHandler`]: elicitation, sampling, roots |
//! | `pagination` | paginated lists, list cache, debounce of list refreshes |
//! | `subscriptions` | `subscriptions/listen` of the modern era |
//! | `progress`, `event` | progress callbacks and client events |
//! | `error` | [`CallError`] and [`ConnectError`], with hints |
//!
//! Start reading with `client`, then `session` (one request) and `handshake` (connecting). The transcripts in
//! `tests/transcripts` show most behavior, message by message.
//!
//! # Invariants
//!
//! - Only `connector` knows which kind of transport a client uses.
//! - The version of a session never changes, and a modern server never gets `initialize`.
//! - Version detection terminates: one version retry, one second offer, one second probe.
//! - After a failed connection attempt nothing is left running.
//! - When `close` returns, every task of the connection has ended; dropping the client ends them too.
//! - The handler gets only requests whose capability it declared.
//! - Lists and input rounds terminate for any server responses.
//! - Every change of the tools is followed by a fetch that started after it.
//! - A task that is no longer polled has ended, or its server gets `tasks/cancel`.
//! - A progress callback runs in its caller's task.

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

pub use builder::ClientBuilder;
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
pub use version_detection::EraChoice;
