//! Integration tests: the manager with real server processes, HTTP servers and config files.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests and their helpers fail by panicking"
)]

mod calls;
mod config_file;
mod environment;
mod fixture;
mod founding_document;
mod http;
mod http_reconnect;
mod lazy_start;
mod lifecycle;
mod many_servers;
mod otlp;
mod real_servers;
mod shutdown;
mod tracing_span;
