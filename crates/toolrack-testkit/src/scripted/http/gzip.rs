//! gzip bodies: streams, and decompression bombs.

use std::io::Write;

use flate2::write::{DeflateEncoder, GzEncoder};
use flate2::{Compression, Crc};

const BLOCK_BYTES: usize = 1 << 20;

/// Body compressed chunk by chunk, so that each chunk can be decoded on arrival.
#[derive(Debug)]
pub(super) struct GzipStream {
    encoder: GzEncoder<Vec<u8>>,
}

impl GzipStream {
    pub(super) fn new() -> Self {
        Self { encoder: GzEncoder::new(Vec::new(), Compression::fast()) }
    }

    /// Compresses the next chunk.
    pub(super) fn compress(&mut self, piece: &[u8]) -> Vec<u8> {
        // Writing to memory cannot fail.
        self.encoder.write_all(piece).and_then(|()| self.encoder.flush()).unwrap_or_default();
        std::mem::take(self.encoder.get_mut())
    }

    pub(super) fn end(self) -> Vec<u8> {
        self.encoder.finish().unwrap_or_default()
    }
}

/// Produces a gzip file that decompresses to the head, `n_bytes` of spaces (rounded up to MiB), and the tail.
///
/// The block of spaces is compressed once and repeated, so a bomb of any size is cheap.
pub(super) fn bomb(head: &[u8], n_bytes: u64, tail: &[u8], mut take: impl FnMut(&[u8]) -> bool) {
    let spaces = vec![b' '; BLOCK_BYTES];
    let block = deflate(&spaces, false);
    let n_blocks = n_bytes.div_ceil(BLOCK_BYTES as u64);
    let mut crc_of_block = Crc::new();
    crc_of_block.update(&spaces);
    let mut crc = Crc::new();
    crc.update(head);
    // Magic, deflate, no flags, no time, no extra flags, unknown system.
    let mut taken = take(&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255]);
    taken = taken && take(&deflate(head, false));
    for _ in 0..n_blocks {
        if !taken {
            return;
        }
        crc.combine(&crc_of_block);
        taken = take(&block);
    }
    crc.update(tail);
    let mut end = deflate(tail, true);
    end.extend(crc.sum().to_le_bytes());
    end.extend(crc.amount().to_le_bytes());
    take(&end);
}

/// Compresses a chunk of a raw deflate stream, independent of other chunks.
fn deflate(piece: &[u8], is_last: bool) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
    // Writing to memory cannot fail, here and below.
    encoder.write_all(piece).unwrap_or_default();
    if is_last {
        return encoder.finish().unwrap_or_default();
    }
    encoder.flush().unwrap_or_default();
    std::mem::take(encoder.get_mut())
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::GzDecoder;

    use super::*;

    fn unpack(bytes: &[u8]) -> Vec<u8> {
        let mut unpacked = Vec::new();
        GzDecoder::new(bytes).read_to_end(&mut unpacked).expect("gzip");
        unpacked
    }

    #[test]
    fn gzip_stream_round_trips() {
        let mut gzip_stream = GzipStream::new();
        let mut bytes = gzip_stream.compress(b"one ");
        assert!(!bytes.is_empty());
        bytes.extend(gzip_stream.compress(b"two"));
        bytes.extend(gzip_stream.end());
        assert_eq!(unpack(&bytes), b"one two");
    }

    #[test]
    fn gzip_bomb_is_valid_and_decompresses_to_its_size() {
        let mut bytes = Vec::new();
        bomb(b"{\"a\":1", 32 << 20, b"}", |piece| {
            bytes.extend_from_slice(piece);
            true
        });
        let unpacked = unpack(&bytes);
        assert_eq!(unpacked.len(), (32 << 20) + 7);
        assert!(bytes.len() * 500 < unpacked.len(), "{} bytes", bytes.len());
        let parsed: serde_json::Value = serde_json::from_slice(&unpacked).expect("JSON");
        assert_eq!(parsed, serde_json::json!({ "a": 1 }));
    }
}
