//! The stdio transport with real processes: the tests of founding document 001, process trees, limits and spawn errors.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod compat;
mod fixture;
mod limits;
mod process_tree;
mod run_command;
mod runtime;
mod silent_guardian;
mod spawn_errors;
