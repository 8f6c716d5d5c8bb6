//! The program `demo-server`: a small, correct MCP server of both eras, on stdin and stdout.

use std::io;

use toolrack_testkit::demo;

fn main() -> io::Result<()> {
    demo::serve(io::stdin().lock(), io::stdout())
}
