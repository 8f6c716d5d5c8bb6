//! The contract of a line to a server, what every kind of line shares, and a line in memory.
//!
//! A [`Line`] answers requests. What the server says unasked goes to an [`Inbox`], whose methods never
//! wait. However a line ends, `ended` comes exactly once, and nothing but error output comes after it.
//!
//! **Invariant:** an unreadable message never ends a line, and every request has exactly one outcome.

#![warn(missing_docs)]

mod backoff;
mod clean;
mod credentials;
mod ending;
mod error;
mod escape;
mod frame;
mod hidden;
mod id;
mod inbound;
mod line;
mod mask;
mod memory;
mod message;
mod patience;
mod pending;
mod plain;
mod raw;
mod scan;
mod tally;
mod words;
mod write;

pub use backoff::Backoff;
pub use clean::clean_text;
pub use credentials::{AtHand, AuthError, Authorization, Credentials, Rebuff};
pub use ending::{Ending, Exit, ServerExit};
pub use error::{Delivery, LineError, SpawnFault, TransportError};
pub use frame::{Frame, FrameError, Lost, elements};
pub use hidden::is_hidden;
pub use id::RequestId;
pub use inbound::{Heard, Inbound};
pub use line::{Abandon, BoxFuture, CANCELLED, Cancelled, Dialect, Inbox, Line, Medium, Outgoing};
pub use mask::Mask;
pub use memory::{MemoryLine, MemoryPeer, pair};
pub use message::{JsonRpcError, JsonRpcNotification, JsonRpcRequest, JsonRpcResponse};
pub use patience::{Patience, after, answer_within};
pub use pending::{Due, Pending, Ticket};
pub use plain::plain_text;
pub use raw::RawJson;
pub use tally::{Diagnosis, Tally};
pub use words::said;
pub use write::{NoParams, Params, write_answer, write_notification, write_request, write_text};
