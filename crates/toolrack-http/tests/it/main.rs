//! Integration tests: the HTTP transport against scripted servers on real sockets.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test stops at the first unexpected value, in its helpers too"
)]

mod authentication;
mod connections;
mod fixture;
mod http1_framing;
mod legacy_sse;
mod limits;
mod redirects;
mod retry_pace;
mod runtime;
mod server;
mod session;
mod stateless;
