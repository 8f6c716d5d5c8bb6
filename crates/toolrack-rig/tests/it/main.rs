//! The adapter with real servers, and the example agent as a newcomer runs it.

#![expect(
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests and their helpers may panic"
)]

mod adapter;
mod agent;
