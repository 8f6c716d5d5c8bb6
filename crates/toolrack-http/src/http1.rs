//! HTTP/1.1 as a client reads it: pure functions from bytes to heads and bodies.

mod body_framing;
mod response_head;

pub(crate) use body_framing::{COPY_BYTES, Decoded, Framing};
pub(crate) use response_head::{Head, Parsed, parse};

/// What the server sent is not HTTP, or not what HTTP allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) &'static str);
