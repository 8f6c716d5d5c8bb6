//! Fuzz targets of HTTP: responses, SSE streams and gzip bodies. docs/internal/fuzzing.md says how to run them.

use crate::http1::fuzz::{http1_differential, http1_response};
use crate::response::fuzz::gzip;
use crate::sse::fuzz::sse;

type FuzzTarget = (&'static str, fn(&[u8]));

/// Name and function of every target.
pub const TARGETS: &[FuzzTarget] = &[
    ("http1_response", http1_response),
    ("http1_differential", http1_differential),
    ("sse", sse),
    ("gzip", gzip),
];

#[cfg(test)]
mod tests {
    #[test]
    fn fuzz_targets_hold() {
        toolrack_fuzz::check_targets(super::TARGETS);
    }
}
