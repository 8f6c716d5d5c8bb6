//! The real client against written dialogues, over a line in memory and with a clock that stands still.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test ends at the first thing that is not as it should be, in its helpers too"
)]

mod bad_input;
mod founding;
mod network;
mod person;
mod real;
mod remote;
mod schema;
mod script;
mod show;
mod stage;
mod transcripts;
mod wire;
