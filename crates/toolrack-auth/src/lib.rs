//! OAuth for servers over HTTP.

#![warn(missing_docs)]
