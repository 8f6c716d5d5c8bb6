//! Real server programs for tests, the demo server, and what tests of several crates share.
//!
//! `scripted-server` is a complete MCP server that misbehaves exactly as its plan says; `demo-server` is the
//! friendly one a new user meets; `fixture-server` has what the conformance suites look for. The rest finds built
//! programs, marks and counts processes, reads journals and waits for facts.

mod code;
pub mod demo;
mod docker;
mod eavesdropper;
pub mod fixture;
mod http_log;
mod http_server;
mod journal;
mod kept;
mod lookup;
mod marker;
pub mod oauth;
mod outlet;
mod plan;
mod probe;
pub mod proxy;
mod quantity;
mod revision;
pub mod scripted;
mod timer;
mod wait;
mod wire;

pub use docker::DockerEngine;
pub use eavesdropper::Eavesdropper;
pub use http_log::{HttpEnding, HttpLog, HttpRequest};
pub use http_server::{HttpServer, HttpServerKind};
pub use journal::{Event, Journal, Record};
pub use kept::Kept;
pub use lookup::program;
pub use marker::{Marker, Process};
pub use probe::{children_of, open_fds, private_bytes, rss_bytes, zombies_of};
pub use wait::{eventually, eventually_async, skipped};
