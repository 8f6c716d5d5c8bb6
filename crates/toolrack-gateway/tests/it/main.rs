//! The gateway with real servers behind it and real clients before it, over pipes and over HTTP, in both eras.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test ends at the first thing that is not as it should be, in its helpers too"
)]

mod eras;
mod fixture;
mod http;
mod other_clients;
mod own_client;
mod shared_server;
mod stdio;
