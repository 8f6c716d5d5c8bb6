//! The service with a real disk and real servers.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test ends at the first thing that is not as it should be, in its helpers too"
)]

mod change;
mod leak;
mod mc;
mod stage;
mod trouble;
