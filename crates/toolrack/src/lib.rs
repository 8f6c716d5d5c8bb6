//! One rack for every MCP server.

#![warn(missing_docs)]
