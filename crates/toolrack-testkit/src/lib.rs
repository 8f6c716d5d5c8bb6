//! Real server programs for tests, the demo server, and what tests of several crates share.
//!
//! `scripted-server` is a complete MCP server that misbehaves exactly as its plan says; `demo-server` is the
//! friendly one a new user meets; `fixture-server` has what the conformance suites look for. The rest finds built
//! programs, marks and counts processes, reads journals and waits for facts.

mod child_guard;
pub mod demo;
mod docker;
mod error_code;
pub mod fixture;
mod http_log;
mod http_server;
mod journal;
mod jsonrpc;
mod log_capture;
mod message_sink;
pub mod oauth;
mod plan;
mod process_info;
mod process_marker;
mod programs;
pub mod proxy;
mod quantity;
mod revision;
pub mod scripted;
mod timer;
mod wait;

pub use child_guard::Kept;
pub use docker::DockerEngine;
pub use http_log::{HttpEnding, HttpLog, HttpRequest};
pub use http_server::{HttpServer, HttpServerKind};
pub use journal::{Event, Journal, Record};
pub use log_capture::Eavesdropper;
pub use process_info::{children_of, open_fds, private_bytes, rss_bytes, zombies_of};
pub use process_marker::{Marker, Process};
pub use programs::program;
pub use wait::{eventually, eventually_async, skipped};
