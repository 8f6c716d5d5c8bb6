//! Integration tests: tools, workers and a Spacebot-like program with real servers, and the example agent.

#![expect(clippy::panic, clippy::unwrap_used, reason = "tests and their helpers may panic")]

mod adapter;
mod agent;
mod fixture;
#[cfg(feature = "rig-033")]
mod rig_033;
mod spacebot;
#[path = "../../examples/agent/stub_model.rs"]
mod stub_model;
mod worker;
