//! A line to a child process, and custody of that process and all its descendants.
//!
//! [`StdioLine`] is the line: callers write their own requests, one task reads the answers.
//! [`StdioTransport`] is the same thing with the names of the founding documents. Every server runs under a
//! guardian, a tiny process that outlives us long enough to end everything the server has started;
//! a program that embeds this crate calls [`init`] first thing in `main` to be its own guardian.
//!
//! **Invariant:** a process we started is gone, with its descendants, when closing its line returns.

#![warn(missing_docs)]

mod buffer;
mod custody;
mod definition;
mod driver;
mod environment;
mod guard;
mod launch;
mod line;
mod marker;
mod outbox;
mod plain;
mod program;
mod run;
mod splitter;
mod stderr;
mod sweep;
#[cfg(target_os = "linux")]
mod sys;
mod transport;

pub use definition::{Farewell, Guardian, Ladder, McpServerDef, StdioOptions};
pub use environment::Inheritance;
pub use guard::init;
pub use line::StdioLine;
pub use marker::{is_orphaned, new_mark};
pub use program::find_program;
pub use run::{Finished, Run, run};
pub use sweep::sweep;
pub use transport::{Incoming, StdioTransport};
