//! Program `chaos-proxy`: a TCP proxy that impairs the network. See `--help`.

use std::process::ExitCode;

fn main() -> ExitCode {
    toolrack_testkit::proxy::run(std::env::args().skip(1).collect())
}
