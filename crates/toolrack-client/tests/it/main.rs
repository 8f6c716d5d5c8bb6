//! The real client against written dialogues, over a line in memory and with a clock that stands still.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test ends at the first thing that is not as it should be, in its helpers too"
)]

mod fixture;
mod format;
mod founding_api;
mod memory_transport;
mod network_faults;
mod not_a_server;
mod real_http_servers;
mod real_stdio_servers;
mod replay;
mod schema_validator;
mod scripted_user;
mod transcript;
