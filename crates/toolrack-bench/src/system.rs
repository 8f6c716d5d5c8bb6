//! Clock, processes and standard output.
//!
//! The workspace lints forbid these calls elsewhere; this module is the exception for the benchmarks.

use std::ffi::OsStr;
use std::fmt;
use std::time::Instant;

#[expect(
    clippy::disallowed_methods,
    reason = "a benchmark measures real time, never a paused clock"
)]
pub(crate) fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "each client runs in a process of its own")]
pub(crate) fn command(program: impl AsRef<OsStr>) -> std::process::Command {
    std::process::Command::new(program)
}

#[expect(
    clippy::disallowed_methods,
    reason = "the measured clients take a Tokio command for the server they start"
)]
pub(crate) fn tokio_command(program: impl AsRef<OsStr>) -> tokio::process::Command {
    tokio::process::Command::new(program)
}

#[expect(clippy::print_stdout, reason = "results go to stdout")]
pub(crate) fn print_line(text: impl fmt::Display) {
    println!("{text}");
}

#[expect(clippy::print_stderr, reason = "progress messages go to stderr")]
pub(crate) fn print_progress(text: fmt::Arguments<'_>) {
    eprintln!("  … {text}");
}
