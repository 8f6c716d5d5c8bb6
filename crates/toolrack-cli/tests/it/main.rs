//! End-to-end tests of the program.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test ends at the first thing that is not as it should be, in its helpers too"
)]

mod completion;
mod daemon;
mod demo;
mod import;
mod keeping;
mod real;
mod remote;
mod screen;
mod session;
mod stage;
mod terminal;
mod wrapper;
