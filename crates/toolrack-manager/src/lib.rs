//! Many servers behind one list of tools.

#![warn(missing_docs)]
