//! The contract of a line to a server.
