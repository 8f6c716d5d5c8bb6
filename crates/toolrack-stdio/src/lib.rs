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
#[cfg(target_os = "linux")]
mod guardian;
mod io_task;
mod launch_spec;
mod line_decoder;
mod options;
mod orphan_cleanup;
mod process;
mod run_command;
mod shutdown;
mod stderr;
#[cfg(target_os = "linux")]
mod sys;
mod transport;
mod write_queue;

pub use compat::{Incoming, StdioTransport};
pub use launch_spec::{Inheritance, find_program};
pub use options::{Farewell, Guardian, Ladder, McpServerDef, StdioOptions};
pub use orphan_cleanup::{is_orphaned, new_mark, sweep};
pub use run_command::{Finished, Run, run};
pub use transport::StdioLine;

/// Makes this program able to guard the servers it starts. To be called first thing in `main`.
///
/// First thing means before a runtime is built: call it in a plain `fn main` and build the runtime behind it.
/// With `#[tokio::main]` the runtime is already there, and a guardian has no use for its threads.
///
/// If the program was started to be a guardian, this does not return: it does a guardian's work and
/// ends the process. Otherwise it returns at once, and servers started later are guarded by copies of
/// this program.
///
/// Guardians need Linux. Elsewhere this does nothing, and servers are kept by their process group alone.
pub fn init() {
    #[cfg(target_os = "linux")]
    guardian::init();
}
