//! `toolrack __demo-server`: the other half of the demonstration, and no command for people.

use std::io;
use std::process::ExitCode;

/// What makes this program the demo server.
pub(crate) const ARGUMENT: &str = "__demo-server";

/// Serves until the input ends.
pub(crate) fn serve() -> ExitCode {
    match toolrack_testkit::demo::serve(io::stdin().lock(), io::stdout()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_unreadable) => ExitCode::FAILURE,
    }
}
