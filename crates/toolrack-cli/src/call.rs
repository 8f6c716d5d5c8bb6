//! The arguments of a call: from what was typed to what is sent. Pure, except for reading files.

pub(crate) mod function;
pub(crate) mod literal;
pub(crate) mod schema;
pub(crate) mod shape;
pub(crate) mod word;
