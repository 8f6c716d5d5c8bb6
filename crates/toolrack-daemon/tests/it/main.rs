//! Integration tests of the daemon, with real sockets, servers and files.

#![expect(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails at the first unexpected value, in its helpers too"
)]

mod access_control;
mod agents;
mod calls;
mod config;
mod connections;
mod dashboard;
mod events;
mod fixture;
mod history;
mod http;
mod keys;
mod lifecycle;
mod mcp;
mod openapi;
mod schemathesis;
mod secrets;
mod servers;
