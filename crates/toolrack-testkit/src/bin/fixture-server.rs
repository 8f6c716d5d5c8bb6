//! Program `fixture-server`: the MCP server that the official conformance suites expect, over stdio.

use std::io;
use std::process::ExitCode;

use toolrack_testkit::fixture;

fn main() -> io::Result<ExitCode> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    fixture::run(&args, io::stdin().lock(), io::stdout())
}
