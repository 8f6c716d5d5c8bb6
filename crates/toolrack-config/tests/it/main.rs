//! Whole files in, data and faults out.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test ends at the first thing that is not as it should be, in its helpers too"
)]

mod dialects;
mod documents;
mod faults;
mod fill;
mod laws;
mod native;
mod show;
mod wild;
