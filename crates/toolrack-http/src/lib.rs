//! MCP over HTTP: Streamable HTTP (stateless 2026-07-28 and with sessions, 2025) and HTTP+SSE (2024-11-05).
//!
//! [`HttpTransport`] speaks all three. Which one it uses follows from the protocol mode that the client sets, and
//! from the server's response to the first `initialize`.
//!
//! | module | what it holds |
//! |---|---|
//! | `transport` | [`HttpTransport`], the state and tasks behind it, the guard in front of the handler |
//! | `options` | [`HttpServerDef`], [`HttpOptions`] |
//! | `rpc_call` | one JSON-RPC request over one HTTP request; SSE responses and their resumption |
//! | `session` | session state, `initialize`, renewal of a lost session |
//! | `server_streams` | the standing GET stream of a session; the HTTP+SSE transport of 2024-11-05 |
//! | `sse` | SSE parser |
//! | `request_sender` | sends a request through challenges, redirects and `Retry-After` |
//! | `request_headers` | MCP request headers and their encoding |
//! | `response` | HTTP response, its body, gzip, the headers that are kept |
//! | `status_mapping` | HTTP status to error; idempotent methods |
//! | `connection_pool` | connection pool, and when a request may be sent again |
//! | `http1` | HTTP/1.1 connection and response parser (HTTP/2 is hyper's) |
//! | `connect`, `proxy` | DNS, TCP, Unix sockets, TLS, proxies |
//! | `endpoint_url` | server URL and origin |
//! | `event_budget` | how fast the events of one stream are read while none of them answers a request |
//! | `unix_client` | [`UnixClient`], a plain HTTP client for a daemon's socket |
//!
//! Start with `transport`, then `rpc_call` and `session`.
//!
//! # Invariants
//!
//! - A failed request never closes the transport. If the server cannot be reached, the handler is told.
//! - Nothing is sent to another origin, whether by redirect or by the `endpoint` event.
//! - Every retry keeps to [`Backoff`](toolrack_transport::Backoff).
//! - A request is sent twice only if the server cannot have processed it, or if its method is idempotent.
//! - Many requests that find the session expired start one new session.
//! - No byte after the end of a response is taken for another response.
//! - A request whose caller stops waiting is cancelled as its protocol version requires: by closing the response
//!   stream, or by `notifications/cancelled`.
//! - An HTTP/1.1 exchange runs in the caller's task; an idle connection holds no buffer.

#![warn(missing_docs)]

mod connect;
mod connection_pool;
mod endpoint_url;
mod event_budget;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod http1;
mod options;
mod proxy;
mod request_headers;
mod request_sender;
mod response;
mod rpc_call;
mod server_streams;
mod session;
mod sse;
mod status_mapping;
mod transport;
mod unix_client;

pub use options::{HttpOptions, HttpServerDef};
pub use proxy::ProxySettings;
pub use transport::HttpTransport;
pub use unix_client::{UnixClient, UnixResponse};
