//! Program `scripted-server`: an MCP server that follows a fault plan. See `--help`.

use std::process::ExitCode;

fn main() -> ExitCode {
    toolrack_testkit::scripted::run(std::env::args().skip(1).collect())
}
