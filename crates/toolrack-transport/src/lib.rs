//! The contract of a line to a server, what every kind of line shares, and a line in memory.
//!
//! A [`Line`] answers requests. What the server says unasked goes to an [`Inbox`], whose methods never
//! wait. However a line ends, `ended` comes exactly once, and nothing but error output comes after it.
//!
//! **Invariant:** an unreadable message never ends a line, and every request has exactly one outcome.

#![warn(missing_docs)]

mod backoff;
mod close_reason;
mod credentials;
mod encode;
mod error;
mod in_memory;
mod json_rpc;
mod message;
mod message_router;
mod pending_requests;
mod redact;
mod sanitize;
mod timeout;
mod transport;

pub use backoff::Backoff;
pub use close_reason::{Ending, Exit, ServerExit, said};
pub use credentials::{AtHand, AuthError, Authorization, Credentials, Rebuff};
pub use encode::{NoParams, Params, write_answer, write_notification, write_request, write_text};
pub use error::{Delivery, LineError, SpawnFault, TransportError};
pub use in_memory::{MemoryLine, MemoryPeer, pair};
pub use json_rpc::{
    JsonRpcError, JsonRpcNotification, JsonRpcRequest, JsonRpcResponse, RawJson, RequestId,
};
pub use message::{Frame, FrameError, Lost, elements};
pub use message_router::{Heard, Inbound};
pub use pending_requests::{Due, Pending, Ticket};
pub use redact::Mask;
pub use sanitize::{clean_text, is_hidden, plain_text};
pub use timeout::{Patience, after, answer_within};
pub use transport::{
    Abandon, BoxFuture, CANCELLED, Cancelled, Diagnosis, Dialect, Inbox, Line, Medium, Outgoing,
    Tally,
};
