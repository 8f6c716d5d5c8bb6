//! Unpacking of what came as gzip, without unpacking more than is wanted.

use std::io::{self, Write as _};

use bytes::Bytes;
use flate2::write::GzDecoder;

use crate::response::BodyFault;

/// A packed byte becomes at most about a thousand, so so many at a time overshoot a limit by half a
/// megabyte at most.
const STEP_BYTES: usize = 512;

/// Unpacks one body, piece by piece.
#[derive(Debug)]
pub(crate) struct Unpacker {
    decoder: GzDecoder<Vec<u8>>,
}

impl Default for Unpacker {
    fn default() -> Self {
        Self { decoder: GzDecoder::new(Vec::new()) }
    }
}

impl Unpacker {
    /// What the next packed piece holds, which may be nothing yet.
    pub(crate) fn unpack(&mut self, packed: &[u8], limit_bytes: usize) -> Result<Bytes, BodyFault> {
        for step in packed.chunks(STEP_BYTES) {
            self.decoder.write_all(step).map_err(broken)?;
            if self.decoder.get_ref().len() > limit_bytes {
                return Err(BodyFault::Oversize);
            }
        }
        self.decoder.flush().map_err(broken)?;
        if self.decoder.get_ref().len() > limit_bytes {
            return Err(BodyFault::Oversize);
        }
        Ok(Bytes::from(std::mem::take(self.decoder.get_mut())))
    }
}

fn broken(error: io::Error) -> BodyFault {
    BodyFault::Broken(error)
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn packed(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn every_cut_unpacks_to_the_same() {
        let text = b"{\"jsonrpc\":\"2.0\"} and more, and more, and more".repeat(20);
        let packed = packed(&text);
        for size in [1, 7, 64, packed.len()] {
            let mut unpacker = Unpacker::default();
            let mut found = Vec::new();
            for piece in packed.chunks(size) {
                found.extend_from_slice(&unpacker.unpack(piece, 1 << 20).unwrap());
            }
            assert_eq!(found, text, "{size}");
        }
    }

    #[test]
    fn a_bomb_does_not_go_off() {
        let packed = packed(&vec![0; 64 << 20]);
        assert!(packed.len() < 100 << 10);
        let mut unpacker = Unpacker::default();
        assert!(matches!(unpacker.unpack(&packed, 1 << 20), Err(BodyFault::Oversize)));
        assert!(unpacker.decoder.get_ref().len() < 3 << 20);
    }

    #[test]
    fn what_is_not_packed_is_no_answer() {
        let unpacked = Unpacker::default().unpack(b"{\"jsonrpc\":\"2.0\"}", 1 << 20);
        assert!(matches!(unpacked, Err(BodyFault::Broken(_))));
    }
}
