//! Config files as data.

#![warn(missing_docs)]
