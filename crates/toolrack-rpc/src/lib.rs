//! JSON-RPC 2.0: messages kept raw, and the table of open requests.
//!
//! [`Frame`] says what a line of bytes is without decoding what it carries; [`Pending`] matches answers to
//! whoever waits for them; [`RawJson`] carries a payload from the wire to the one caller that reads it.
//!
//! **Invariant:** nothing in this crate knows the name of an MCP method, and nothing here does IO.

#![warn(missing_docs)]

mod frame;
mod id;
mod message;
mod pending;
mod raw;
mod scan;
mod write;

pub use frame::{Frame, FrameError, Lost, elements};
pub use id::RequestId;
pub use message::{JsonRpcError, JsonRpcNotification, JsonRpcRequest, JsonRpcResponse};
pub use pending::{Due, Pending, Ticket};
pub use raw::RawJson;
pub use write::{NoParams, Params, write_answer, write_notification, write_request, write_text};
