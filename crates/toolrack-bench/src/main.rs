//! Side-by-side benchmarks of MCP clients.

fn main() {}
