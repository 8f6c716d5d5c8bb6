//! End-to-end tests of the program.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test ends at the first thing that is not as it should be, in its helpers too"
)]

mod completion;
mod credentials;
mod daemon;
mod demo;
mod fixture;
mod hostile_files;
mod http;
mod import;
mod insecure_home;
mod keys;
mod log_limits;
mod pty;
mod real_server;
mod sessions;
mod terminal;
mod unresponsive_daemon;
mod wrapped_server;
