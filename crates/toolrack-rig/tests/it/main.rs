//! The adapter with real servers, and the example agent as a newcomer runs it.

#![expect(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test ends at the first thing that is not as it should be, in its helpers too"
)]

mod adapter;
mod agent;
