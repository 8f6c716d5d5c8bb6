//! The contract of a line to a server, what every kind of line shares, and a line in memory.
//!
//! A [`Line`] answers requests. What the server says unasked goes to an [`Inbox`], whose methods never
//! wait. However a line ends, `ended` comes exactly once, and nothing but error output comes after it.
//!
//! **Invariant:** an unreadable message never ends a line, and every request has exactly one outcome.

#![warn(missing_docs)]

mod ansi;
mod backoff;
mod close_reason;
mod credentials;
mod encode;
mod error;
mod exit_cause;
mod id;
mod in_memory;
mod invisible;
mod json_rpc;
mod message;
mod message_router;
mod pending_requests;
mod raw;
mod redact;
mod response_fast_path;
mod sanitize;
mod sanitize_text;
mod stats;
mod timeout;
mod transport;

pub use backoff::Backoff;
pub use close_reason::{Ending, Exit, ServerExit};
pub use credentials::{AtHand, AuthError, Authorization, Credentials, Rebuff};
pub use encode::{NoParams, Params, write_answer, write_notification, write_request, write_text};
pub use error::{Delivery, LineError, SpawnFault, TransportError};
pub use exit_cause::said;
pub use id::RequestId;
pub use in_memory::{MemoryLine, MemoryPeer, pair};
pub use invisible::is_hidden;
pub use json_rpc::{JsonRpcError, JsonRpcNotification, JsonRpcRequest, JsonRpcResponse};
pub use message::{Frame, FrameError, Lost, elements};
pub use message_router::{Heard, Inbound};
pub use pending_requests::{Due, Pending, Ticket};
pub use raw::RawJson;
pub use redact::Mask;
pub use sanitize::plain_text;
pub use sanitize_text::clean_text;
pub use stats::{Diagnosis, Tally};
pub use timeout::{Patience, after, answer_within};
pub use transport::{
    Abandon, BoxFuture, CANCELLED, Cancelled, Dialect, Inbox, Line, Medium, Outgoing,
};
