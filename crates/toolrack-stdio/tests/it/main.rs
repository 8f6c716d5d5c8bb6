//! The line over real processes: the founding document's own tests, custody, limits and bad input.

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
mod spawn_errors;
