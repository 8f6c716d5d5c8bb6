//! Integration tests: config files in, data and diagnostics out.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test ends at the first thing that is not as it should be, in its helpers too"
)]

mod diagnostics;
mod dialects;
mod format;
mod interpolation;
mod properties;
mod published_docs;
mod random_text;
mod toolrack_toml;
