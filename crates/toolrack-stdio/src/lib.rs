//! Stdio transport: JSON-RPC with a server in a child process, and supervision of its process tree.
//!
//! [`StdioClientTransport`] implements [`Transport`](toolrack_transport::Transport). [`StdioTransport`] offers the API of
//! founding document 001 on top of it. A server runs under a guardian, a small process that outlives us just long enough
//! to end everything that the server has started. A program that embeds this crate calls [`init`] first in `main` to serve
//! as its own guardian.
//!
//! | module | contents |
//! |---|---|
//! | `transport` | [`StdioClientTransport`]: requests, cancellation, close |
//! | `io_task` | IO task: reads stdout, flushes blocked writes, runs the deadline timer; direct pipe reads and writes |
//! | `write_queue` | write queue with backpressure and withdrawal; write buffer |
//! | `line_decoder` | splits stdout into lines, with a size limit |
//! | `stderr` | reads stderr and keeps its last lines |
//! | `compat` | [`StdioTransport`]: the API of founding document 001 |
//! | `options` | [`McpServerDef`], [`StdioOptions`], [`ShutdownTimeouts`] |
//! | `launch_spec` | resolved launch: program lookup in `PATH`, environment allowlist |
//! | `process` | starts and supervises the server process; process group without a guardian; cleanup command |
//! | `shutdown` | shutdown state machine: close stdin, SIGTERM, SIGKILL |
//! | `guardian` | the guardian process: event loop and process tree |
//! | `guardian::process` | the guardian process as its owner sees it: ending it with its tree if it does not act |
//! | `guardian::protocol` | guardian protocol, and the owner's side of it |
//! | `prepared_guardian` | [`PreparedGuardian`]: a guardian that is started ahead |
//! | `orphan_cleanup` | process tags; kills processes whose owner has crashed |
//! | `process_handle` | [`ProcessHandle`]: signals a process that this one did not start |
//! | `run_command` | runs a command to completion |
//! | `sys` | the only `unsafe` code |
//!
//! # Invariants
//!
//! - **Invariant:** when `close` returns, no process of the server is left. `cooperative_server_is_gone_when_close_returns`,
//!   `closing_ends_the_launcher_and_its_server`, `server_that_ignores_shutdown_is_killed`,
//!   `processes_outside_the_session_are_killed`, `stopped_guardian_leaves_no_process_when_close_returns`,
//!   `silent_guardian_is_killed_with_its_server`, gate G01.
//! - **Invariant:** every path of the shutdown leads to SIGKILL, repeated until no process is left.
//!   `unresponsive_server_is_killed`, `processes_left_by_the_server_are_ended`.
//! - **Invariant:** messages are sent whole and in order, and a message of which no byte was sent can be withdrawn.
//!   `sent_bytes_are_whole_messages_without_withdrawn_ones`.
//! - **Invariant:** reading never waits for writing, and no caller waits for the pipe.
//!   `blocked_stdin_does_not_delay_timeouts`, `io_task_writes_the_rest_when_the_pipe_is_full`.
//! - **Invariant:** memory is bounded regardless of the server's output, and an idle transport holds no buffer.
//!   `oversize_response_fails_only_its_call`, `stderr_memory_is_bounded`, `long_line_keeps_its_own_buffer`, gate G05.
//! - **Invariant:** a server inherits only the allowlist and the variables of its definition.
//!   `only_allowlisted_and_configured_variables_are_passed`, `server_inherits_only_the_allowlist_and_three_descriptors`.
//! - **Invariant:** a process is killed by its tag or parent only through a pidfd that was opened before either was read.
//!   No test; gate G01 runs [`kill_orphans`].
//! - **Invariant:** of the product, only this crate starts and signals servers, and `sys.rs` is the only file with `unsafe`
//!   code. Clippy's `disallowed-methods` enforces the first, `cargo xtask tidy` the second.
//!
//! # Where to start
//!
//! Read `transport.rs`, `write_queue.rs` and `io_task.rs` for the path of a message, then `guardian.rs` and `shutdown.rs`
//! for the life of a process.

#![warn(missing_docs)]

mod compat;
#[cfg(all(target_os = "linux", any(test, fuzzing)))]
#[doc(hidden)]
pub mod fuzz;
#[cfg(target_os = "linux")]
mod guardian;
mod io_task;
mod launch_spec;
mod line_decoder;
mod options;
mod orphan_cleanup;
mod prepared_guardian;
mod process;
mod process_handle;
mod run_command;
mod shutdown;
mod stderr;
#[cfg(target_os = "linux")]
mod sys;
mod transport;
mod write_queue;

pub use compat::{Incoming, StdioTransport};
pub use launch_spec::{EnvInheritance, find_program, withheld_variables};
pub use options::{CleanupCommand, Guardian, McpServerDef, ShutdownTimeouts, StdioOptions};
pub use orphan_cleanup::{is_orphaned, kill_orphans, new_process_tag};
pub use prepared_guardian::PreparedGuardian;
pub use process_handle::{ProcessHandle, process_start_time};
pub use run_command::{CommandOutput, RunOptions, run_command};
#[cfg(target_os = "linux")]
pub use sys::{return_freed_memory, trim_freed_memory};
pub use transport::StdioClientTransport;

/// Enables guardians for the servers that this program starts. Call it first in `main`.
///
/// Call it in a plain `fn main` before the runtime is built. With `#[tokio::main]` the runtime exists already, and a
/// guardian has no use for its threads.
///
/// If the program was started as guardian, this function does not return: it runs the guardian and exits the process.
/// Otherwise it returns at once, and servers that are started later run under a copy of this program as guardian.
///
/// Guardians need Linux. On other systems this does nothing, and servers are supervised by their process group alone.
pub fn init() {
    #[cfg(target_os = "linux")]
    guardian::init();
}

/// Does nothing on this system.
#[cfg(not(target_os = "linux"))]
pub fn return_freed_memory() {}

/// Elsewhere the allocator decides.
#[cfg(not(target_os = "linux"))]
pub fn trim_freed_memory() {}
