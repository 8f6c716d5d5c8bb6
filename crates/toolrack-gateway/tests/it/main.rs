//! The gateway with real servers and real clients, over stdio and HTTP, in both eras.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test fails at the first violated expectation, in its helpers too"
)]

mod eras;
mod fixture;
mod http;
mod other_clients;
mod own_client;
mod questions;
mod resources;
mod shared_server;
mod stdio;
