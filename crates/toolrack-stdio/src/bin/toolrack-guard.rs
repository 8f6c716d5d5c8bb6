//! The guardian as a program of its own, for hosts that cannot call `toolrack_stdio::init`.

use std::process::ExitCode;

fn main() -> ExitCode {
    toolrack_stdio::init();
    ExitCode::from(64)
}
