//! Every server of a manager behind one MCP endpoint: over stdio and Streamable HTTP, in both eras.
//!
//! ```no_run
//! # async fn demo() -> Result<(), Box<dyn std::error::Error>> {
//! use std::sync::Arc;
//! use toolrack_gateway::{Gateway, Scope, Switchboard};
//! use toolrack_manager::McpManager;
//!
//! let switchboard = Switchboard::new();
//! let builder = McpManager::builder().limits(Switchboard::limits());
//! let manager = builder.handler(switchboard.clone()).build(Vec::new());
//! let gateway = Gateway::new(Arc::new(manager), switchboard, Scope::All);
//! # let (reader, writer) = (&b""[..], Vec::new());
//! gateway.serve_stdio(reader, writer).await?;
//! # Ok(())
//! # }
//! ```
//!
//! A client of any revision sees the tools, prompts and resources of all servers, whatever era those are of.
//! Arguments and results pass byte for byte; progress, log messages, cancellation and the questions of servers
//! pass too. [`Gateway`] knows no transport; [`Gateway::serve_stdio`] and [`HttpGateway`] are the two there are.
//!
//! **Invariant:** a slow client slows down nobody else.

#![warn(missing_docs)]

mod active_request;
mod change_notifier;
mod client_info;
mod client_session;
mod ear;
mod encode;
mod errand;
mod error_mapping;
mod forward;
mod gateway;
mod http;
mod level;
mod list;
mod list_cache;
mod listen;
mod lock;
mod message_queue;
mod open;
mod pages;
mod params;
mod request;
mod resource_subscriptions;
mod result_compat;
mod scope;
mod server_queue;
mod server_request_router;
mod standard;
mod stdio;
mod subscriptions;
mod suspended;

pub use error_mapping::{RelayCause, RelayFailure};
pub use gateway::{Behind, Gateway, GatewayOptions};
pub use http::body::GatewayBody;
pub use http::origin_check::{Access, Check};
pub use http::request_headers::TIMEOUT_HEADER;
pub use http::{HttpGateway, HttpGatewayOptions};
pub use scope::Scope;
pub use server_request_router::Switchboard;
pub use standard::{Input, Output, standard_streams};
