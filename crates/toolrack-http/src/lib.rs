//! A line to a server over HTTP.

#![warn(missing_docs)]
