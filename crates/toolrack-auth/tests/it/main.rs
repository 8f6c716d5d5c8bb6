//! Logins against a real OAuth server on loopback that behaves, and that misbehaves in every way it can.

#![expect(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test ends at the first thing that is not as it should be, in its helpers too"
)]

mod crowd;
mod life;
mod login;
mod program;
mod refusal;
mod secrecy;
mod stage;
mod step;
