//! A line to a server over HTTP: stateless 2026-07-28, stateful 2025, two-endpoint SSE 2024.
//!
//! [`HttpLine`] is one line in three shapes. Which one it takes follows from what
//! [`Line::speak`](toolrack_transport::Line::speak) says and from how the server answers the first greeting.
//!
//! **Invariant:** one failing request never ends the line, nothing is sent to another origin, and whatever
//! the server does, what is tried again is tried at the pace of [`Backoff`](toolrack_transport::Backoff).

#![warn(missing_docs)]

mod endpoint_url;
mod request_headers;
mod response_headers;
mod request_sender;
mod options;
mod connect;
mod request;
mod legacy_sse;
mod scratch_buffer;
mod sse;
mod rpc_call;
mod sse_response;
mod handler_guard;
mod initialize;
mod gzip;
mod mcp_headers;
mod http1;
mod http1_connection;
mod transport;
mod notification_stream;
mod connection_pool;
mod proxy;
mod response;
mod session;
mod inner;
mod unix_client;
mod task_group;
mod tls;
mod status_mapping;
mod stream;

pub use options::{HttpOptions, HttpServerDef};
pub use transport::HttpLine;
pub use transport::HttpLine as HttpTransport;
pub use proxy::ProxySettings;
pub use unix_client::{SocketAnswer, SocketClient};
