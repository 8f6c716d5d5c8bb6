//! Real server programs for tests, the demo server, and what tests of several crates share.
//!
//! `scripted-server` is a complete MCP server that misbehaves exactly as its plan says; `demo-server` is the
//! friendly one a new user meets; `fixture-server` has what the conformance suites look for. The rest finds built
//! programs, marks and counts processes, reads journals and waits for facts.

pub mod demo;
mod docker;
pub mod fixture;
mod http_log;
mod http_server;
mod journal;
mod jsonrpc;
mod log_capture;
mod message_sink;
pub mod oauth;
mod plan;
mod process;
mod programs;
pub mod proxy;
mod quantity;
mod revision;
pub mod scripted;
mod timer;
mod wait;

pub use docker::DockerEngine;
pub use http_log::{HttpLog, HttpOutcome, HttpRequest};
pub use http_server::{HttpServer, HttpServerKind};
pub use journal::{Journal, JournalEvent, JournalRecord};
pub use log_capture::LogCapture;
pub use process::{
    ChildGuard, Marker, Process, children_of, open_fds, private_bytes, rss_bytes, zombies_of,
};
pub use programs::program;
pub use wait::{eventually, eventually_async, skipped};
