//! Hostile HTTP responses: endless heads, bombs, loops and drops.
//!
//! **Invariant:** a response ends when the client has gone, at its size, or at its time limit.

use std::thread;
use std::time::Duration;

use crate::http::{self, Request};
use crate::jsonrpc::Incoming;
use crate::plan::Reply;

/// Bytes per write.
const PIECE_BYTES: usize = 64 << 10;

/// Pause after each byte of a slow response, and the bytes that it sends at most.
const SLOW_PAUSE: Duration = Duration::from_millis(20);
const SLOW_BYTES: u64 = 1_000;

/// Writes a response of about this size to `write`, which returns whether the client still reads.
pub(super) fn write(
    reply: Reply,
    bytes: u64,
    request: &Request,
    write: &mut dyn FnMut(&[u8]) -> bool,
) {
    let size = usize::try_from(bytes).unwrap_or(usize::MAX);
    let with_header = |name: &str| {
        let value = "h".repeat(size);
        complete(200, &[("content-type", "application/json"), (name, &value)], &result(request))
    };
    match reply {
        Reply::Headers => {
            if write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n") {
                write_pieces(b"x-padding: padding of a head without an end\r\n", bytes, write);
            }
        }
        Reply::Header => {
            write(&with_header("x-padding"));
        }
        Reply::Cookie => {
            write(&with_header("set-cookie"));
        }
        Reply::Session => {
            write(&with_header("mcp-session-id"));
        }
        Reply::Challenge => {
            let challenge = format!("Bearer realm=\"{}\", scope=\"a\", ", "r".repeat(size));
            let challenges = challenge.repeat(2);
            write(&complete(401, &[("www-authenticate", challenges.trim_end_matches(", "))], b""));
        }
        Reply::Redirect => {
            let location = format!("{}?{}", request.path, "q".repeat(size));
            write(&complete(307, &[("location", &location)], b""));
        }
        Reply::Gzip => {
            let head = [
                ("content-type", "application/json"),
                ("content-encoding", "gzip"),
                ("transfer-encoding", "chunked"),
            ];
            if write(&http::head(200, head)) && write(&http::chunk(&gzip_start())) {
                let n_pieces = bytes / GZIP_PIECE_EXPANDED + 1;
                let piece = http::chunk(&gzip_piece());
                (0..n_pieces).all(|_| write(&piece));
            }
        }
        Reply::Event => {
            if write(&event_stream())
                && write(&http::chunk(b"data: {\"jsonrpc\":\"2.0\",\"method\":\""))
            {
                write_pieces(&http::chunk(&[b'e'; 4096]), bytes, write);
            }
        }
        Reply::Retry => {
            let events = http::chunk(b"retry: 0\nid: 1\ndata:\n\n");
            write(&[event_stream(), events, b"0\r\n\r\n".to_vec()].concat());
        }
        Reply::Drop => {}
        Reply::Slow => {
            let response = complete(200, &[("content-type", "application/json")], &result(request));
            response.iter().take(usize::try_from(SLOW_BYTES).unwrap_or_default()).all(|byte| {
                thread::sleep(SLOW_PAUSE);
                write(&[*byte])
            });
        }
        Reply::Junk => write_pieces(b"\x00\xffHTTP/9.9 -1\r \nnonsense", bytes, write),
    }
}

/// A result that answers any request of a client.
fn result(request: &Request) -> Vec<u8> {
    let message: Option<Incoming<'_>> = serde_json::from_slice(&request.body).ok();
    let id = message.and_then(|message| message.id).map_or("null", |id| id.get());
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"result":{{"resultType":"complete","protocolVersion":"2025-11-25","supportedVersions":["2026-07-28"],"capabilities":{{"tools":{{}}}},"serverInfo":{{"name":"hostile","version":"1"}},"ttlMs":0,"cacheScope":"public","tools":[],"content":[]}}}}"#
    )
    .into_bytes()
}

fn complete(status: u16, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let length = body.len().to_string();
    let headers = headers.iter().copied().chain([("content-length", length.as_str())]);
    [http::head(status, headers), body.to_vec()].concat()
}

fn event_stream() -> Vec<u8> {
    http::head(200, [("content-type", "text/event-stream"), ("transfer-encoding", "chunked")])
}

/// Repeats a unit until this many bytes are written.
fn write_pieces(unit: &[u8], bytes: u64, write: &mut dyn FnMut(&[u8]) -> bool) {
    let piece = unit.repeat(PIECE_BYTES / unit.len() + 1);
    let n_pieces = bytes / piece.len() as u64 + 1;
    (0..n_pieces).all(|_| write(&piece));
}

/// Text that one piece of the bomb expands to: 8 matches of 258 bytes in 13 bytes.
const MATCHES_PER_PIECE: u64 = 8 * 512;
const GZIP_PIECE_EXPANDED: u64 = MATCHES_PER_PIECE * 258;

/// Head of a gzip stream, and the start of one block with fixed codes (RFC 1951, 3.2.6): the literal `a`, padded to a
/// whole byte by literals of 9 bits.
fn gzip_start() -> Vec<u8> {
    let head = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
    let mut bits = BitWriter::default();
    // Not the final block; fixed codes.
    bits.push(0, 1);
    bits.push(0b01, 2);
    // `a` has 8 bits and `\u{ff}` 9; with 5 of the latter the length is a multiple of 8.
    bits.push_code(0x30 + u32::from(b'a'), 8);
    for _ in 0..5 {
        bits.push_code(0x190 + 0xff - 144, 9);
    }
    [head.as_slice(), &bits.bytes].concat()
}

/// Matches of length 258 (code 285) at distance 1 (code 0).
fn gzip_piece() -> Vec<u8> {
    let mut bits = BitWriter::default();
    for _ in 0..MATCHES_PER_PIECE {
        bits.push_code(0b1100_0101, 8);
        bits.push_code(0, 5);
    }
    bits.bytes
}

/// Bits of a DEFLATE stream, lowest first.
#[derive(Debug, Default)]
struct BitWriter {
    bytes: Vec<u8>,
    n_bits: usize,
}

impl BitWriter {
    fn push(&mut self, value: u32, n_bits: u32) {
        for at in 0..n_bits {
            if self.n_bits.is_multiple_of(8) {
                self.bytes.push(0);
            }
            let bit = u8::from(value >> at & 1 == 1);
            if let Some(last) = self.bytes.last_mut() {
                *last |= bit << (self.n_bits % 8);
            }
            self.n_bits += 1;
        }
    }

    /// Huffman codes start with their highest bit.
    fn push_code(&mut self, code: u32, n_bits: u32) {
        self.push(code.reverse_bits() >> (u32::BITS - n_bits), n_bits);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(reply: Reply, bytes: u64) -> Vec<u8> {
        let mut all = Vec::new();
        let request = Request { body: br#"{"id":7}"#.to_vec(), ..Request::default() };
        write(reply, bytes, &request, &mut |piece| {
            all.extend_from_slice(piece);
            true
        });
        all
    }

    #[test]
    fn responses_have_their_size_and_the_id_of_the_request() {
        for reply in [Reply::Headers, Reply::Header, Reply::Cookie, Reply::Session, Reply::Event] {
            let length = written(reply, 100_000).len();
            assert!((100_000..300_000).contains(&length), "{reply:?}: {length}");
        }
        let text = String::from_utf8_lossy(&written(Reply::Session, 3)).into_owned();
        assert!(text.contains("mcp-session-id: hhh\r\n") && text.contains(r#""id":7,"#), "{text}");
    }

    #[test]
    fn writing_stops_when_the_client_has_gone() {
        let mut n_writes = 0;
        write(Reply::Junk, 1 << 40, &Request::default(), &mut |_| {
            n_writes += 1;
            n_writes < 3
        });
        assert_eq!(n_writes, 3);
    }

    /// The header is 3 bits, a literal 8, and five literals 45: 56 bits. Every 8 matches are 13 bytes.
    #[test]
    fn bomb_is_made_of_whole_bytes() {
        assert_eq!(gzip_start().len(), 10 + 7);
        assert_eq!(gzip_piece().len() as u64, MATCHES_PER_PIECE / 8 * 13);
    }
}
