//! Integration tests against an OAuth server on loopback that misbehaves on request.

#![expect(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test stops at the first unexpected value, in its helpers too"
)]

mod fixture;
mod login;
mod refresh_processes;
mod secrets;
mod step_up;
mod token_lifetime;
mod unattended_grants;
mod untrusted_servers;
