//! The manager with real servers: children that behave, children that do not, files that change.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test ends at the first thing that is not as it should be, in its helpers too"
)]

mod call;
mod ending;
mod file;
mod lazy;
mod life;
mod loss;
mod many;
mod otlp;
mod real;
mod remote;
mod span;
mod stage;
