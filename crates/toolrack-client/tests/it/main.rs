//! Integration tests: transcripts over an in-memory transport with a paused clock, and real servers.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests and their helpers may panic"
)]

mod fixture;
mod format;
mod founding_api;
mod memory_transport;
mod network_faults;
mod not_a_server;
mod real_http_servers;
mod real_stdio_servers;
mod replay;
mod schema_validator;
mod scripted_user;
mod transcript;
