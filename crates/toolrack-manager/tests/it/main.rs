//! The manager with real servers: children that behave, children that do not, files that change.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test ends at the first thing that is not as it should be, in its helpers too"
)]

mod calls;
mod config_file;
mod fixture;
mod http;
mod http_reconnect;
mod lazy_start;
mod lifecycle;
mod many_servers;
mod otlp;
mod real_servers;
mod shutdown;
mod tracing_span;
