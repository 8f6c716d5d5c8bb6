//! The client that the official conformance suites drive.

fn main() {}
