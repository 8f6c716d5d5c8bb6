//! MCP gateway: every server of a manager behind one MCP endpoint, over stdio and Streamable HTTP, in both eras.

#![warn(missing_docs)]

mod active_request;
mod change_notifier;
mod client_session;
mod encode;
mod error_mapping;
mod forward;
mod gateway;
mod http;
mod list_cache;
mod message_queue;
mod params;
mod request;
mod result_compat;
mod server_queue;
mod server_request_router;
mod stdio;
mod subscriptions;
mod suspended;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use error_mapping::{GatewayErrorCause, GatewayErrorData};
pub use gateway::{Gateway, GatewayOptions, Scope, Upstream};
pub use http::request_headers::{Access, AccessCheck, TIMEOUT_HEADER};
pub use http::response::GatewayBody;
pub use http::{HttpGateway, HttpGatewayOptions};
pub use server_request_router::ServerRequestRouter;
pub use stdio::{StdinStream, StdoutStream, stdio_streams};

/// Locks a mutex, ignoring poison. Locked values are consistent between statements, so a panic of another task cannot
/// leave them half-changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
