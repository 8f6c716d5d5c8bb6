//! Integration tests of the facade: config files, builder, and the examples.

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests and their helpers may panic"
)]

mod config_watch;
mod examples;
mod fixture;
mod login;
mod open;
mod public_types;
mod real_servers;
