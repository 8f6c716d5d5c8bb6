//! The real line against real sockets, with servers that do exactly what a test tells them to.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test ends at the first thing that is not as it should be, in its helpers too"
)]

mod double;
mod limits;
mod login;
mod raw;
mod redirect;
mod runtime;
mod server;
mod session;
mod stage;
mod stateless;
mod storm;
mod way;
