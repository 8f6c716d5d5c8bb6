//! The arguments of a call: from what was typed to what is sent. Pure, except for reading files.

pub(crate) mod call_expr;
pub(crate) mod coerce;
pub(crate) mod key_value;
pub(crate) mod relaxed_json;
pub(crate) mod schema;
