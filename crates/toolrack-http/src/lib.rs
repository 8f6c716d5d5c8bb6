//! A line to a server over HTTP: stateless 2026-07-28, stateful 2025, two-endpoint SSE 2024.
//!
//! [`HttpTransport`] is one line in three shapes. Which one it takes follows from what
//! [`Line::speak`](toolrack_transport::Line::speak) says and from how the server answers the first greeting.
//!
//! **Invariant:** one failing request never ends the line, nothing is sent to another origin, and whatever
//! the server does, what is tried again is tried at the pace of [`Backoff`](toolrack_transport::Backoff).

#![warn(missing_docs)]

mod connect;
mod connection_pool;
mod endpoint_url;
mod http1;
mod legacy_sse;
mod notification_stream;
mod options;
mod proxy;
mod request_headers;
mod request_sender;
mod response;
mod response_headers;
mod rpc_call;
mod session;
mod sse;
mod status_mapping;
mod transport;
mod unix_client;

pub use options::{HttpOptions, HttpServerDef};
pub use proxy::ProxySettings;
pub use transport::HttpTransport;
pub use unix_client::{UnixClient, UnixResponse};
