//! The head of an answer.

use std::mem::MaybeUninit;

use bytes::{Buf as _, Bytes, BytesMut};
use http::header::{CONTENT_TYPE, LOCATION, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderName, HeaderValue, StatusCode};

use super::Malformed;
use crate::request_headers::HTTP_SESSION_ID;
use crate::response_headers::{Content, Kind, Packing, Remarks};

const MAX_HEADERS: usize = 100;
const MAX_HEAD_BYTES: usize = 64 << 10;

/// The headers that anybody here looks at.
static KNOWN: [(&str, Known); 9] = [
    ("content-type", Known::Type),
    ("content-length", Known::Length),
    ("connection", Known::Connection),
    ("transfer-encoding", Known::Coding),
    ("content-encoding", Known::Packing),
    ("mcp-session-id", Known::Kept(HTTP_SESSION_ID)),
    ("www-authenticate", Known::Kept(WWW_AUTHENTICATE)),
    ("location", Known::Kept(LOCATION)),
    ("retry-after", Known::Kept(RETRY_AFTER)),
];

/// What a header is good for.
enum Known {
    Type,
    Length,
    Connection,
    Coding,
    Packing,
    /// For whoever asks for it.
    Kept(HeaderName),
}

/// What is known of an answer before its body.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) status: StatusCode,
    pub(crate) content: Content,
    pub(crate) remarks: Remarks,
    pub(crate) framing: Framing,
    /// Whether the connection can take another request after the body.
    pub(crate) is_reusable: bool,
}

/// What the bytes hold so far.
#[derive(Debug)]
pub(crate) enum Parsed {
    /// A head of so many bytes.
    Whole { head: Head, n_bytes: usize },
    /// A head of so many bytes that only says that the answer is still to come.
    Interim { n_bytes: usize },
    /// The beginning of a head.
    Part,
}

/// What the headers say.
#[derive(Default)]
struct Terms {
    kind: Option<Kind>,
    packing: Option<Packing>,
    remarks: Remarks,
    length: Option<u64>,
    coding: Option<Coding>,
    after: Option<After>,
}

/// How a body is written, as its last coding has it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Coding {
    Chunked,
    Other,
}

/// What the server wants with the connection after the answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum After {
    Close,
    Keep,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Version {
    Http10,
    Http11,
}

/// Reads the head of an answer from the beginning of `bytes`.
pub(crate) fn parse(bytes: &[u8]) -> Result<Parsed, Malformed> {
    let mut fields = [const { MaybeUninit::uninit() }; MAX_HEADERS];
    let mut response = httparse::Response::new(&mut []);
    let parser = httparse::ParserConfig::default();
    let parsed = parser.parse_response_with_uninit_headers(&mut response, bytes, &mut fields);
    let n_bytes = match parsed {
        Ok(httparse::Status::Complete(n_bytes)) => n_bytes,
        Ok(httparse::Status::Partial) if bytes.len() < MAX_HEAD_BYTES => return Ok(Parsed::Part),
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            return Err(Malformed("the head of the answer is too large"));
        }
        Err(_fault) => return Err(Malformed("the answer is not HTTP/1.1")),
    };
    let status = response.code.and_then(|code| StatusCode::from_u16(code).ok());
    let status = status.ok_or(Malformed("the answer has no status"))?;
    if status == StatusCode::SWITCHING_PROTOCOLS {
        return Err(Malformed("the server wants to speak something else"));
    }
    if status.is_informational() {
        return Ok(Parsed::Interim { n_bytes });
    }
    let mut terms = Terms::default();
    for field in &*response.headers {
        terms.read(field)?;
    }
    let version = if response.version == Some(1) { Version::Http11 } else { Version::Http10 };
    let framing = terms.framing(status, version);
    let is_kept = match version {
        Version::Http11 => terms.after != Some(After::Close),
        Version::Http10 => terms.after == Some(After::Keep),
    };
    // Two contradicting lengths: what follows the body cannot be trusted to be an answer.
    let is_doubtful = terms.coding.is_some() && terms.length.is_some();
    let is_reusable = is_kept && !is_doubtful && framing != Framing::UntilClose;
    let Terms { kind, packing, remarks, .. } = terms;
    let content = Content { kind: kind.unwrap_or_default(), packing: packing.unwrap_or_default() };
    Ok(Parsed::Whole { head: Head { status, content, remarks, framing, is_reusable }, n_bytes })
}

impl Terms {
    fn read(&mut self, field: &httparse::Header<'_>) -> Result<(), Malformed> {
        let is = |(name, _): &&(&str, Known)| field.name.eq_ignore_ascii_case(name);
        let Some((_, known)) = KNOWN.iter().find(is) else { return Ok(()) };
        match known {
            Known::Type => {
                // Of several the first one counts, as everywhere.
                let kind = *self.kind.get_or_insert_with(|| Kind::read(field.value));
                if kind == Kind::Other {
                    self.keep(&CONTENT_TYPE, field.value);
                }
            }
            Known::Packing => {
                self.packing.get_or_insert_with(|| Packing::read(field.value));
            }
            Known::Kept(name) => self.keep(name, field.value),
            Known::Length => {
                let length =
                    parse_length(field.value).ok_or(Malformed("an unreadable content length"))?;
                if self.length.replace(length).is_some_and(|before| before != length) {
                    return Err(Malformed("two different content lengths"));
                }
            }
            Known::Coding => {
                let is_chunked = words(field.value).last().is_some_and(|it| is_word(it, "chunked"));
                self.coding = Some(if is_chunked { Coding::Chunked } else { Coding::Other });
            }
            Known::Connection => {
                for word in words(field.value) {
                    if is_word(word, "close") {
                        self.after = Some(After::Close);
                    } else if is_word(word, "keep-alive") {
                        self.after.get_or_insert(After::Keep);
                    }
                }
            }
        }
        Ok(())
    }

    fn keep(&mut self, name: &HeaderName, value: &[u8]) {
        if let Ok(value) = HeaderValue::from_bytes(value) {
            self.remarks.add(name, value);
        }
    }

    fn framing(&self, status: StatusCode, version: Version) -> Framing {
        if matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) {
            return Framing::Empty;
        }
        match (self.coding, self.length) {
            (Some(Coding::Chunked), _) if version == Version::Http11 => Framing::chunked(),
            (Some(_), _) | (None, None) => Framing::UntilClose,
            (None, Some(0)) => Framing::Empty,
            (None, Some(n_bytes)) => Framing::Length { n_bytes },
        }
    }
}

fn is_word(word: &[u8], expected: &str) -> bool {
    word.eq_ignore_ascii_case(expected.as_bytes())
}

fn words(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii)
}

fn parse_length(value: &[u8]) -> Option<u64> {
    let is_number = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(value).ok().filter(|_| is_number)?.parse().ok()
}

// FOLDED http1/body_framing.rs
// DOC The body of an answer: where it ends, and what of it is payload.
// DOC
// DOC **Invariant:** not a byte behind the end of the body is taken.

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
                    *n_bytes -= piece_length(piece.as_ref());
                    if *n_bytes == 0 {
                        *self = Framing::Empty;
                    }
                    return Ok(piece.into());
                }
                Framing::Chunked(Chunk::Data { n_bytes }) => {
                    let piece = piece(input, *n_bytes);
                    *n_bytes -= piece_length(piece.as_ref());
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

fn piece_length(piece: Option<&Bytes>) -> u64 {
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

    use Reuse::{Kept, Lost};

    enum Reuse {
        Kept,
        Lost,
    }

    #[track_caller]
    fn check(text: &str, status: u16, framing: &Framing, reuse: Reuse) {
        let is_reusable = matches!(reuse, Kept);
        let text = text.replace('\n', "\r\n");
        let Parsed::Whole { head, n_bytes } = parse(text.as_bytes()).unwrap() else {
            panic!("not a whole head: {text}")
        };
        assert_eq!(n_bytes, text.len());
        assert_eq!((head.status.as_u16(), head.is_reusable), (status, is_reusable), "{text}");
        assert_eq!(head.framing, *framing, "{text}");
    }

    #[track_caller]
    fn refused(text: &str, expected: &str) {
        match parse(text.replace('\n', "\r\n").as_bytes()) {
            Err(Malformed(reason)) => assert!(reason.contains(expected), "{reason}: {text}"),
            Ok(parsed) => panic!("{text} was taken for {parsed:?}"),
        }
    }

    #[test]
    fn the_end_of_a_body_is_found_by_the_rules_of_http() {
        let (empty, until_close) = (&Framing::Empty, &Framing::UntilClose);
        let three = &Framing::Length { n_bytes: 3 };
        let chunked = &Framing::chunked();
        check("HTTP/1.1 200 OK\nContent-Length: 3\n\n", 200, three, Kept);
        check("HTTP/1.1 200 \ncontent-length: 3\nContent-Length: 3\n\n", 200, three, Kept);
        check("HTTP/1.1 200 OK\nContent-Length: 0\n\n", 200, empty, Kept);
        check("HTTP/1.1 204 None\nContent-Length: 3\n\n", 204, empty, Kept);
        check("HTTP/1.1 200 OK\nTransfer-Encoding: Chunked\n\n", 200, chunked, Kept);
        check("HTTP/1.1 200 OK\nTransfer-Encoding: gzip, chunked\n\n", 200, chunked, Kept);
        check("HTTP/1.1 200 OK\nTransfer-Encoding: chunked, gzip\n\n", 200, until_close, Lost);
        check("HTTP/1.1 200 OK\n\n", 200, until_close, Lost);
        check("HTTP/1.0 200 OK\nContent-Length: 3\n\n", 200, three, Lost);
        check("HTTP/1.0 200 OK\nTransfer-Encoding: chunked\n\n", 200, until_close, Lost);
        let kept = "HTTP/1.0 200 OK\nConnection: Keep-Alive\nContent-Length: 3\n\n";
        check(kept, 200, three, Kept);
        let closed = "HTTP/1.1 500 Oops\nConnection: x, Close\nContent-Length: 3\n\n";
        check(closed, 500, three, Lost);
        let both = "HTTP/1.1 200 OK\nContent-Length: 3\nTransfer-Encoding: chunked\n\n";
        check(both, 200, chunked, Lost);
    }

    #[test]
    fn what_is_not_http_is_refused() {
        refused("SSH-2.0-OpenSSH_9.2\n", "not HTTP");
        refused("HTTP/2 200\n\n", "not HTTP");
        refused("HTTP/1.1 200 OK\nContent-Length: 3\nContent-Length: 4\n\n", "two different");
        refused("HTTP/1.1 200 OK\nContent-Length: +3\n\n", "unreadable");
        refused("HTTP/1.1 200 OK\nContent-Length: 99999999999999999999\n\n", "unreadable");
        refused("HTTP/1.1 101 Switching\n\n", "something else");
        refused(&format!("HTTP/1.1 200 OK\n{}\n", "a: b\n".repeat(101)), "too large");
        refused(&format!("HTTP/1.1 200 OK\na: {}", "b".repeat(MAX_HEAD_BYTES)), "too large");
    }

    #[test]
    fn a_head_may_come_in_parts_and_after_others() {
        assert!(matches!(parse(b"HTTP/1.1 200 OK\r\nConte"), Ok(Parsed::Part)));
        assert!(matches!(parse(b""), Ok(Parsed::Part)));
        let early = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\n";
        assert!(matches!(parse(early), Ok(Parsed::Interim { n_bytes: 37 })));
    }

    #[test]
    fn headers_that_matter_are_kept() {
        let text = "HTTP/1.1 401 No\r\nDate: x\r\nWWW-Authenticate: a\r\nwww-authenticate: b\r\n\
                    Mcp-Session-Id: s\r\nContent-Type: text/event-stream\r\n\r\n";
        let Ok(Parsed::Whole { head, .. }) = parse(text.as_bytes()) else { panic!() };
        let challenges: Vec<_> = head.remarks.all(&WWW_AUTHENTICATE).collect();
        assert_eq!(challenges, ["a", "b"]);
        assert_eq!(head.remarks.get(&HTTP_SESSION_ID).unwrap(), "s");
        assert_eq!(head.remarks.get(&CONTENT_TYPE), None, "it is in the content");
        assert_eq!(head.content, Content { kind: Kind::Events, packing: Packing::None });
    }

    #[test]
    fn of_two_words_about_the_body_the_first_counts() {
        let check = |text: &str, kind, packing| {
            let text = format!("HTTP/1.1 200 OK\r\n{}\r\n", text.replace('\n', "\r\n"));
            let Ok(Parsed::Whole { head, .. }) = parse(text.as_bytes()) else { panic!("{text}") };
            assert_eq!(head.content, Content { kind, packing }, "{text}");
        };
        let (json, html) = ("Content-Type: application/json\n", "Content-Type: text/html\n");
        let (plain, gzip) = ("Content-Encoding: identity\n", "Content-Encoding: gzip\n");
        check(&format!("{json}{html}{plain}{gzip}"), Kind::Json, Packing::None);
        check(&format!("{html}{json}{gzip}{plain}"), Kind::Other, Packing::Gzip);
        check("", Kind::Other, Packing::None);
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_strange(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            drop(parse(&bytes));
            drop(parse(&[b"HTTP/1.1 200 OK\r\n".as_slice(), &bytes].concat()));
        }
    }
}

#[cfg(test)]
mod body_tests {
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
