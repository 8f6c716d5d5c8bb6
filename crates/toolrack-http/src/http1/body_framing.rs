//! The body of an answer: where it ends, and what of it is payload.
//!
//! **Invariant:** not a byte behind the end of the body is taken.

use bytes::{Buf as _, Bytes, BytesMut};

use super::Malformed;

/// What a server may write around its chunks before we lose patience.
const MAX_LINE_BYTES: usize = 4 << 10;
const MAX_TRAILER_BYTES: usize = 16 << 10;
/// A small piece is copied, so that it does not keep a large buffer alive.
pub(crate) const COPY_BYTES: usize = 4 << 10;

/// How the end of a body is found, and how far it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Framing {
    /// It is here.
    Empty,
    /// After so many bytes.
    Length { n_bytes: u64 },
    /// After the last chunk.
    Chunked(Chunk),
    /// When the connection is closed.
    UntilClose,
}

/// Where in a chunked body we are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Chunk {
    /// Before the line that says how long the next chunk is.
    Size,
    /// In a chunk, with so many bytes to come.
    Data { n_bytes: u64 },
    /// Before the line break behind a chunk.
    Break,
    /// In the lines behind the last chunk, of which so many bytes have been.
    Trailer { n_bytes: usize },
}

/// What came out of the bytes at hand.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Decoded {
    /// Some of the body.
    Piece(Bytes),
    /// More bytes are needed.
    Nothing,
    /// The body has ended.
    End,
}

impl Framing {
    pub(crate) fn chunked() -> Self {
        Framing::Chunked(Chunk::Size)
    }

    /// How many bytes of payload are still to come, if the server has said so.
    pub(crate) fn told_bytes(&self) -> Option<u64> {
        match self {
            Framing::Empty => Some(0),
            Framing::Length { n_bytes } => Some(*n_bytes),
            Framing::Chunked(_) | Framing::UntilClose => None,
        }
    }

    /// Takes what can be taken from the beginning of `input`.
    pub(crate) fn decode(&mut self, input: &mut BytesMut) -> Result<Decoded, Malformed> {
        loop {
            match self {
                Framing::Empty => return Ok(Decoded::End),
                Framing::UntilClose => return Ok(piece(input, u64::MAX).into()),
                Framing::Length { n_bytes } => {
                    let piece = piece(input, *n_bytes);
                    *n_bytes -= length(piece.as_ref());
                    if *n_bytes == 0 {
                        *self = Framing::Empty;
                    }
                    return Ok(piece.into());
                }
                Framing::Chunked(Chunk::Data { n_bytes }) => {
                    let piece = piece(input, *n_bytes);
                    *n_bytes -= length(piece.as_ref());
                    if *n_bytes == 0 {
                        *self = Framing::Chunked(Chunk::Break);
                    }
                    return Ok(piece.into());
                }
                Framing::Chunked(Chunk::Size) => {
                    let Some(line) = line(input)? else { return Ok(Decoded::Nothing) };
                    let n_bytes = chunk_size(&line).ok_or(Malformed("an unreadable chunk size"))?;
                    let next = match n_bytes {
                        0 => Chunk::Trailer { n_bytes: 0 },
                        n_bytes => Chunk::Data { n_bytes },
                    };
                    *self = Framing::Chunked(next);
                }
                Framing::Chunked(Chunk::Break) => {
                    let Some(line) = line(input)? else { return Ok(Decoded::Nothing) };
                    if !line.is_empty() {
                        return Err(Malformed("a chunk is longer than it said"));
                    }
                    *self = Framing::chunked();
                }
                Framing::Chunked(Chunk::Trailer { n_bytes }) => {
                    let Some(line) = line(input)? else { return Ok(Decoded::Nothing) };
                    *n_bytes += line.len();
                    if line.is_empty() {
                        *self = Framing::Empty;
                    } else if *n_bytes > MAX_TRAILER_BYTES {
                        return Err(Malformed("the trailer of the answer has no end"));
                    }
                }
            }
        }
    }
}

impl From<Option<Bytes>> for Decoded {
    fn from(piece: Option<Bytes>) -> Self {
        piece.map_or(Decoded::Nothing, Decoded::Piece)
    }
}

/// At most `limit_bytes` of the input.
fn piece(input: &mut BytesMut, limit_bytes: u64) -> Option<Bytes> {
    let n_bytes = usize::try_from(limit_bytes).map_or(input.len(), |limit| limit.min(input.len()));
    if n_bytes == 0 {
        return None;
    }
    if n_bytes > COPY_BYTES {
        return Some(input.split_to(n_bytes).freeze());
    }
    let piece = input.get(..n_bytes).map(Bytes::copy_from_slice);
    input.advance(n_bytes);
    piece
}

fn length(piece: Option<&Bytes>) -> u64 {
    piece.map_or(0, |piece| u64::try_from(piece.len()).unwrap_or(u64::MAX))
}

/// The next line, without its end.
fn line(input: &mut BytesMut) -> Result<Option<Bytes>, Malformed> {
    let Some(end) = memchr::memchr(b'\n', input) else {
        let is_endless = input.len() > MAX_LINE_BYTES;
        return if is_endless {
            Err(Malformed("a line around a chunk has no end"))
        } else {
            Ok(None)
        };
    };
    let taken = input.get(..end).unwrap_or_default();
    let line = Bytes::copy_from_slice(taken.strip_suffix(b"\r").unwrap_or(taken));
    input.advance(end + 1);
    Ok(Some(line))
}

/// The number at the beginning of a chunk. What an extension says is nobody's business.
fn chunk_size(line: &[u8]) -> Option<u64> {
    let digits = line.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii_end();
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_hexdigit);
    let digits = std::str::from_utf8(digits).ok().filter(|_| is_number)?;
    u64::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Feeds `text` in parts of `step` bytes, and gives the body and what is left behind it.
    fn decoded(
        framing: &Framing,
        text: &[u8],
        step: usize,
    ) -> Result<(Vec<u8>, Vec<u8>), Malformed> {
        let (mut framing, mut input, mut body) = (framing.clone(), BytesMut::new(), Vec::new());
        let mut parts = text.chunks(step);
        loop {
            match framing.decode(&mut input)? {
                Decoded::Piece(piece) => body.extend_from_slice(&piece),
                Decoded::End => {
                    let rest = parts.fold(input.to_vec(), |rest, part| [&rest, part].concat());
                    return Ok((body, rest));
                }
                Decoded::Nothing => match parts.next() {
                    Some(part) => input.extend_from_slice(part),
                    None => return Ok((body, b"(open)".to_vec())),
                },
            }
        }
    }

    #[track_caller]
    fn check(framing: &Framing, text: &str, body: &str, rest: &str) {
        for step in [1, 2, 3, 7, 1000] {
            let (found, left) = decoded(framing, text.as_bytes(), step).unwrap();
            assert_eq!(String::from_utf8(found).unwrap(), body, "{text:?} by {step}");
            assert_eq!(String::from_utf8(left).unwrap(), rest, "{text:?} by {step}");
        }
    }

    #[test]
    fn a_body_ends_where_it_ends() {
        let five = Framing::Length { n_bytes: 5 };
        check(&five, "helloHTTP", "hello", "HTTP");
        check(&five, "hel", "hel", "(open)");
        check(&Framing::Empty, "HTTP", "", "HTTP");
        check(&Framing::UntilClose, "all of it", "all of it", "(open)");
        let chunked = Framing::chunked();
        check(&chunked, "5\r\nhello\r\n0\r\n\r\nHTTP", "hello", "HTTP");
        check(&chunked, "3;x=y\r\nhel\r\n2 \r\nlo\r\n000\r\nTrailer: x\r\n\r\n", "hello", "");
        check(&chunked, "A\nhelloworld\n0\n\n", "helloworld", "");
        check(&chunked, "5\r\nhel", "hel", "(open)");
        check(&chunked, "5\r\nhello\r\n", "hello", "(open)");
    }

    #[test]
    fn chunks_that_cannot_be_are_refused() {
        let chunked = Framing::chunked();
        let endless = "x".repeat(MAX_LINE_BYTES + 2);
        let trailer = format!("0\r\n{}", "a: b\r\n".repeat(MAX_TRAILER_BYTES));
        let texts = ["x\r\n", "\r\n", "-1\r\n", "10000000000000000\r\n", "2\r\nabc\r\n"];
        for text in texts.into_iter().chain([endless.as_str(), trailer.as_str()]) {
            assert!(decoded(&chunked, text.as_bytes(), 1000).is_err(), "{text:.20}");
        }
    }

    #[test]
    fn large_pieces_are_not_copied() {
        let mut input = BytesMut::from("x".repeat(10_000).as_str());
        let start = input.as_ptr();
        let mut framing = Framing::Length { n_bytes: 10_000 };
        let Ok(Decoded::Piece(piece)) = framing.decode(&mut input) else { panic!() };
        assert_eq!((piece.as_ptr(), piece.len()), (start, 10_000));
    }

    proptest! {
        #[test]
        fn chunks_are_put_together_again(
            chunks in proptest::collection::vec("[a-z]{1,40}", 0..20),
            step in 1_usize..60,
        ) {
            let written: Vec<String> =
                chunks.iter().map(|it| format!("{:x}\r\n{it}\r\n", it.len())).collect();
            let text = written.concat() + "0\r\n\r\nnext";
            let (body, rest) = decoded(&Framing::chunked(), text.as_bytes(), step).unwrap();
            prop_assert_eq!(String::from_utf8(body).unwrap(), chunks.concat());
            prop_assert_eq!(rest, b"next");
        }

        #[test]
        fn no_bytes_are_too_strange(
            bytes in proptest::collection::vec(any::<u8>(), 0..300),
            step in 1_usize..60,
        ) {
            drop(decoded(&Framing::chunked(), &bytes, step));
            drop(decoded(&Framing::Length { n_bytes: 77 }, &bytes, step));
        }
    }
}
