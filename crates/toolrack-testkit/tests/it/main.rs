//! Drives the real programs over pipes: every tool, every fault, both eras.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test ends at the first thing that is not as it should be, in its helpers too"
)]

mod demo;
mod fault;
mod legacy;
mod modern;
mod peer;
mod process;
mod schema;
