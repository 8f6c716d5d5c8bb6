//! MCP gateway: all servers of a manager behind one MCP endpoint, over stdio and Streamable HTTP, in both eras.
//!
//! ```no_run
//! # async fn demo() -> Result<(), Box<dyn std::error::Error>> {
//! use std::sync::Arc;
//! use toolrack_gateway::{Gateway, Scope, ServerRequestRouter};
//! use toolrack_manager::McpManager;
//!
//! let router = ServerRequestRouter::new();
//! let builder = McpManager::builder().limits(ServerRequestRouter::limits());
//! let manager = builder.handler(router.clone()).build(Vec::new());
//! let gateway = Gateway::new(Arc::new(manager), router, Scope::All);
//! # let (reader, writer) = (&b""[..], Vec::new());
//! gateway.serve_stdio(reader, writer).await?;
//! # Ok(())
//! # }
//! ```
//!
//! A client of any protocol revision sees the tools, prompts and resources of all servers, of either era. Progress, log
//! messages, cancellation and server requests (sampling, elicitation, roots) pass too.
//!
//! # Modules
//!
//! | module | what it holds |
//! |---|---|
//! | `gateway` | [`Gateway`], [`GatewayOptions`], [`Scope`]; shared state; which server a tool, prompt or resource belongs to; log level |
//! | `stdio` | stdio transport ([`Gateway::serve_stdio`]), [`stdio_streams`] |
//! | `http` | HTTP transport ([`HttpGateway`]), stateless requests; `stateful`: legacy sessions; `request_headers`: `Host`, `Origin` and MCP headers; `response`: JSON or SSE |
//! | `client_session` | one client: its requests in flight, and server requests that wait for its response |
//! | `request_context` | `RequestContext`: one parsed request; method dispatch, lists and pagination, subscriptions |
//! | `forward` | forwards `tools/call`, `prompts/get`, `resources/read` and completions, with server requests across eras; suspended requests of modern clients |
//! | `server_requests` | [`ServerRequestRouter`]: which client gets a server request or log message, and whose turn it is at a server |
//! | `question` | questions of servers to people and models: refused addresses, the server's name, the budget |
//! | `subscriptions` | subscribers to list changes, resource updates and log messages |
//! | `change_notifier` | follows the manager's events and notifies subscribers, debounced |
//! | `message_queue` | outgoing messages of one stream, with replay and bounded loss |
//! | `list_cache` | cached prompt, resource and template lists |
//! | `resource_owner` | which servers are asked for a resource |
//! | `params` | messages of a client, each parsed once; client info |
//! | `result_compat` | adapts results between eras |
//! | `error_mapping` | errors as JSON-RPC errors, [`GatewayErrorData`] |
//! | `encode` | JSON-RPC messages as bytes |
//!
//! # Invariants
//!
//! - Arguments pass byte for byte, apart from redacted secrets. So do results without hidden text; only their top-level
//!   members change, and only between eras.
//! - No client gets hidden text (bidi, tag, escape and invisible characters) of a server, unless its request asks for it.
//! - No client sees a secret of a server's configuration: every outgoing message is redacted.
//! - Clients of either era work with servers of either era, also through a second gateway.
//! - A request of a legacy server reaches only a client whose own request can have caused it. No client decides on the
//!   roots of a server that others use.
//! - A client gets only server requests whose capability it declared, and a server request without a response ends.
//! - A slow client delays no other client. It loses notifications, never responses, and is told how many.
//! - Every accepted request gets one response, unless its client cancels it or disconnects. An id belongs to one
//!   request at a time.
//! - Neither a subscription nor a client that does not read delays the end of a gateway.
//! - Sessions and suspended requests are bounded, and expire when unused.
//! - Ending a subscription ends it for one client only.
//! - No part of an HTTP request is processed before its `Host` and `Origin` are checked, by the gateway or its caller.
//! - A client sees only the servers in its scope.
//! - A resource is asked for only at servers that list it, have a template for it, or alone have its scheme.
//! - A failure between the gateway and a server carries its delivery and cause in the error data.
//!
//! # Where to start
//!
//! Follow one `tools/call`: `HttpGateway::handle_checked` or `ClientSession::receive`, `RequestContext::handle`,
//! `forward_for_modern`. The hard part is a request of a legacy server in the middle of it: the module docs of `forward`
//! and `server_requests` explain it.

#![warn(missing_docs)]

mod change_notifier;
mod client_session;
mod encode;
mod error_mapping;
mod forward;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod gateway;
mod http;
mod list_cache;
mod message_queue;
mod params;
mod question;
mod request_context;
mod resource_owner;
mod result_compat;
mod server_requests;
mod stdio;
mod subscriptions;

pub use error_mapping::GatewayErrorData;
pub use gateway::{Gateway, GatewayOptions, Scope, Upstream};
pub use http::request_headers::{
    ForbiddenHeader, TIMEOUT_HEADER, check_host_and_origin, single_value,
};
pub use http::response::GatewayBody;
pub use http::{HttpGateway, HttpGatewayOptions};
pub use question::{RefusedQuestions, refused_questions};
pub use server_requests::ServerRequestRouter;
pub use stdio::{StdinStream, StdoutStream, stdio_streams};
