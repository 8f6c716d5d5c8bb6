//! Program `demo-server`: a small, correct MCP server of both eras over stdio.

use std::io;

use toolrack_testkit::demo;

fn main() -> io::Result<()> {
    demo::serve(io::stdin().lock(), io::stdout())
}
