//! The daemon on real sockets, with real servers and real files.

#![expect(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test ends at the first thing that is not as it should be, in its helpers too"
)]

mod calls;
mod config;
mod events;
mod history;
mod hostile;
mod http;
mod life;
mod mcp;
mod openapi;
mod page;
mod random;
mod secrets;
mod servers;
mod stage;
