//! Integration tests: the adapter with real servers, and the example agent.

#![expect(clippy::panic, clippy::unwrap_used, reason = "tests and their helpers may panic")]

mod adapter;
mod agent;
