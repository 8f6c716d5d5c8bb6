//! The line over real processes: the founding document's own tests, custody, limits and bad input.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod bad_input;
mod custody;
mod errand;
mod founding;
mod limits;
mod runtime;
mod support;
