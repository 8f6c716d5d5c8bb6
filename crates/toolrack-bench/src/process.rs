//! The one place where commands are made: clients, servers, and the tools that measure them.

use std::ffi::OsStr;

#[expect(clippy::disallowed_methods, reason = "the bench runs each client as a process of its own")]
pub(crate) fn command(program: impl AsRef<OsStr>) -> std::process::Command {
    std::process::Command::new(program)
}

#[expect(
    clippy::disallowed_methods,
    reason = "the peers take a tokio command for the server they start"
)]
pub(crate) fn tokio_command(program: impl AsRef<OsStr>) -> tokio::process::Command {
    tokio::process::Command::new(program)
}
