//! gzip bodies: streams, and decompression bombs.

use std::io::Write;

use flate2::write::{DeflateEncoder, GzEncoder};
use flate2::{Compression, Crc};

const BLOCK_BYTES: usize = 1 << 20;

/// Compresses the next chunk of a body, so that it can be decoded on arrival.
pub(super) fn compress(encoder: &mut GzEncoder<Vec<u8>>, piece: &[u8]) -> Vec<u8> {
    // Writing to memory cannot fail.
    encoder.write_all(piece).and_then(|()| encoder.flush()).unwrap_or_default();
    std::mem::take(encoder.get_mut())
}

/// Produces a gzip file that decompresses to the head, `n_bytes` of spaces (rounded up to MiB), and the tail.
///
/// The block of spaces is compressed once and repeated, so a bomb of any size is cheap.
pub(super) fn bomb(head: &[u8], n_bytes: u64, tail: &[u8], mut take: impl FnMut(&[u8]) -> bool) {
    let spaces = vec![b' '; BLOCK_BYTES];
    let block = flushed(deflate(&spaces));
    let n_blocks = n_bytes.div_ceil(BLOCK_BYTES as u64);
    let mut crc_of_block = Crc::new();
    crc_of_block.update(&spaces);
    let mut crc = Crc::new();
    crc.update(head);
    // Magic, deflate, no flags, no time, no extra flags, unknown system.
    let mut taken = take(&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255]);
    taken = taken && take(&flushed(deflate(head)));
    for _ in 0..n_blocks {
        if !taken {
            return;
        }
        crc.combine(&crc_of_block);
        taken = take(&block);
    }
    crc.update(tail);
    let mut end = deflate(tail).finish().unwrap_or_default();
    end.extend(crc.sum().to_le_bytes());
    end.extend(crc.amount().to_le_bytes());
    take(&end);
}

/// Encoder of a raw deflate stream that has taken a chunk. The chunk does not refer to earlier ones.
fn deflate(piece: &[u8]) -> DeflateEncoder<Vec<u8>> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
    // Writing to memory cannot fail, here and below.
    encoder.write_all(piece).unwrap_or_default();
    encoder
}

/// A chunk that another one follows.
fn flushed(mut encoder: DeflateEncoder<Vec<u8>>) -> Vec<u8> {
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
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        let mut bytes = compress(&mut encoder, b"one ");
        assert!(!bytes.is_empty());
        bytes.extend(compress(&mut encoder, b"two"));
        bytes.extend(encoder.finish().expect("the rest"));
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
