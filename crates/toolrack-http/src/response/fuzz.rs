//! Fuzz target of gzip bodies.

use std::io::{Read as _, Write as _};

use flate2::Compression;
use flate2::read::GzDecoder as Reader;
use flate2::write::{GzDecoder, GzEncoder};

use super::{DECODE_STEP_BYTES, decode_gzip, is_too_large};

/// A deflated byte expands to this many bytes at most.
const MAX_EXPANSION: usize = 1032;

/// Decoding stops at the limit, agrees with the reader of the library, and undoes encoding.
pub(crate) fn gzip(data: &[u8]) {
    let [step, limit, bytes @ ..] = data else { return };
    let (step, limit) = (usize::from(*step) + 1, usize::from(*limit) << 8);
    let mut decoder = GzDecoder::new(Vec::new());
    let (mut output, mut failure) = (Vec::new(), None);
    for chunk in bytes.chunks(step) {
        match decode_gzip(&mut decoder, chunk, limit) {
            Ok(chunk) => {
                assert!(chunk.len() <= limit);
                output.extend_from_slice(&chunk);
            }
            Err(error) => {
                failure = Some(error);
                break;
            }
        }
        assert!(decoder.get_ref().is_empty());
    }
    assert!(decoder.get_ref().len() <= limit + (DECODE_STEP_BYTES + 64) * MAX_EXPANSION);
    let mut expected = Vec::new();
    let is_whole = Reader::new(bytes).read_to_end(&mut expected).is_ok();
    if is_whole && failure.is_none() {
        assert_eq!(output, expected);
    }
    if is_whole && step >= bytes.len() && expected.len() <= limit {
        assert!(!failure.is_some_and(|error| is_too_large(&error)));
    }
    check_round_trip(bytes, step);
}

fn check_round_trip(bytes: &[u8], step: usize) {
    let mut writer = GzEncoder::new(Vec::new(), Compression::fast());
    let encoded = writer.write_all(bytes).and_then(|()| writer.finish()).unwrap_or_default();
    let mut decoder = GzDecoder::new(Vec::new());
    let chunks = encoded.chunks(step).map(|chunk| decode_gzip(&mut decoder, chunk, usize::MAX));
    let output: Result<Vec<_>, _> = chunks.collect();
    assert_eq!(output.map(|chunks| chunks.concat()).ok().as_deref(), Some(bytes));
}
