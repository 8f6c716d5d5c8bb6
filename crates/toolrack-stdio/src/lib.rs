//! A line to a child process, and custody of that process and all its descendants.
//!
//! [`StdioLine`] is the line: callers write their own requests, one task reads the answers.
//! [`StdioTransport`] is the same thing with the names of the founding documents. Every server runs under a
//! guardian, a tiny process that outlives us long enough to end everything the server has started;
//! a program that embeds this crate calls [`init`] first thing in `main` to be its own guardian.
//!
//! **Invariant:** a process we started is gone, with its descendants, when closing its line returns.

#![warn(missing_docs)]

mod compat;
mod environment;
mod guardian;
mod io_task;
mod launch_spec;
mod line_decoder;
mod options;
mod orphan_cleanup;
mod pipe_io;
mod process;
mod process_tag;
mod run_command;
mod stderr;
#[cfg(target_os = "linux")]
mod sys;
mod transport;
mod which;
mod write_buffer;
mod write_queue;

pub use compat::{Incoming, StdioTransport};
pub use environment::Inheritance;
pub use guardian::init;
pub use options::{Farewell, Guardian, Ladder, McpServerDef, StdioOptions};
pub use orphan_cleanup::sweep;
pub use process_tag::{is_orphaned, new_mark};
pub use run_command::{Finished, Run, run};
pub use transport::StdioLine;
pub use which::find_program;
