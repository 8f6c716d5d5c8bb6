//! The program `chaos-proxy`: a TCP proxy that makes the network bad. See `--help`.

use std::process::ExitCode;

fn main() -> ExitCode {
    toolrack_testkit::proxy::run(std::env::args().skip(1).collect())
}
