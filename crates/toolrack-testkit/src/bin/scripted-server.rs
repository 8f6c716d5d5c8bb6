//! The program `scripted-server`: an MCP server that misbehaves exactly as its plan says. See `--help`.

use std::process::ExitCode;

fn main() -> ExitCode {
    toolrack_testkit::scripted::run(std::env::args().skip(1).collect())
}
