//! Test servers and test helpers shared by the crates of this workspace.
//!
//! | module | what it holds |
//! |---|---|
//! | [`scripted`] | scripted server: a complete MCP server over stdio and HTTP that follows a fault plan; also runs the content of the fixture server |
//! | `plan` | fault plans: parser, faults, triggers, seeded mixes |
//! | [`fixture`] | content of the server that the official conformance suites expect |
//! | [`oauth`] | OAuth server: protected resource, authorization servers, identity provider |
//! | [`proxy`] | chaos proxy: a TCP proxy that impairs the network |
//! | `jsonrpc`, `message_sink`, `revision` | messages, output and protocol revisions of these servers |
//! | `http` | HTTP/1.1 of the scripted and OAuth servers: connections, requests, responses, chunks |
//! | `http_server` | starts real HTTP servers: scripted, npm, PyPI |
//! | `docker` | private Docker engine |
//! | [`harness`] | printing, clock, commands, process handles, `/proc`, random numbers, statistics; also for the benchmarks and the reliability gates |
//! | `journal`, `http_log` | what a scripted server executed, and which HTTP requests it got |
//! | `process`, `programs` | process markers, kill-on-drop guard, built programs |
//! | `wait`, `timer`, `quantity` | polling, timer thread, parsers for sizes, durations and words |
//! | `log_capture` | `tracing` subscriber that records everything |
//!
//! Invariants:
//!
//! - The crate depends on no other crate of the workspace: the servers share no code with the product.
//! - A test leaves no process: servers exit at the end of stdin, or after `--lifetime` where a plan ignores it,
//!   guards kill on drop, and [`Marker`] finds every descendant.
//! - The same plan and seed give the same faults.
//!
//! Start with [`Marker`] and [`program`] for a test of a program, [`HttpServer`] for one over HTTP, and
//! `scripted-server --help` for the fault plans.

mod docker;
pub mod fixture;
pub mod harness;
mod http;
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
pub use process::{ChildGuard, Marker, Process, children_of, open_fds, rss_bytes, zombies_of};
pub use programs::program;
pub use wait::{eventually, eventually_async, skipped};
