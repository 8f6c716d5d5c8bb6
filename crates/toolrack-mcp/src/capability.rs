//! What each side says it can do.

pub(crate) mod client;
pub(crate) mod server;
