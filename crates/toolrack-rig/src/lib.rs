//! Tools of MCP servers as tools of rig agents.

#![warn(missing_docs)]
