//! Tests of the real programs over stdio and HTTP: every tool, every fault, both eras.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test ends at the first thing that is not as it should be, in its helpers too"
)]

mod fault;
mod http_client;
mod http_fault;
mod http_legacy;
mod http_modern;
mod http_peer;
mod legacy;
mod modern;
mod peer;
mod process;
mod proxy;
mod real_server;
mod schema;
