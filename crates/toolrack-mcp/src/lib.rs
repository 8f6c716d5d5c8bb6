//! MCP as data, for every protocol revision; no IO.
