//! The guardian as a separate program, for hosts that cannot call `toolrack_stdio::init`.

use std::process::ExitCode;

fn main() -> ExitCode {
    toolrack_stdio::init();
    ExitCode::from(64)
}
