//! HTTP/1.1 response parser: head and body framing, as pure functions over bytes.
//!
//! **Invariant:** no byte after the end of the body is consumed.

use std::io;
use std::mem::MaybeUninit;

use bytes::{Buf as _, Bytes, BytesMut};
use http::header::{CONTENT_TYPE, LOCATION, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Version};

use crate::request_headers::HTTP_SESSION_ID;
use crate::response::{BodyKind, ContentEncoding, ContentInfo};

const MAX_HEADERS: usize = 100;
const MAX_HEAD_BYTES: usize = 64 << 10;
/// No body is longer, and sums with it do not overflow.
const MAX_LENGTH: u64 = i64::MAX as u64;

/// Headers that are kept for later lookup.
pub(super) static KEPT_HEADERS: [HeaderName; 4] =
    [HTTP_SESSION_ID, WWW_AUTHENTICATE, LOCATION, RETRY_AFTER];

/// Parsed response head.
#[derive(Debug)]
pub(crate) struct ResponseHead {
    pub(crate) status: StatusCode,
    pub(crate) content: ContentInfo,
    /// Most responses have none of the headers that are kept.
    pub(crate) headers: HeaderMap,
    pub(crate) framing: BodyFraming,
    /// Whether the connection can take another request after the body.
    pub(crate) is_reusable: bool,
}

/// Result of parsing the bytes so far.
#[derive(Debug)]
pub(crate) enum Parsed {
    /// A head of `n_bytes`.
    Complete { head: ResponseHead, n_bytes: usize },
    /// An informational (1xx) head of `n_bytes`; the final one follows.
    Interim { n_bytes: usize },
    /// The start of a head.
    Partial,
}

/// Values collected from the headers.
#[derive(Default)]
struct HeaderFields {
    kind: Option<BodyKind>,
    encoding: Option<ContentEncoding>,
    headers: HeaderMap,
    length: Option<u64>,
    /// Whether the last transfer coding is `chunked`, if there is one.
    is_chunked: Option<bool>,
    /// Whether `Connection` keeps the connection, if it says.
    is_kept: Option<bool>,
}

/// Parses the response head at the start of `bytes`.
pub(crate) fn parse_head(bytes: &[u8]) -> io::Result<Parsed> {
    // Uninitialized, so that a small response does not pay for zeroing a hundred entries.
    let mut fields = [const { MaybeUninit::uninit() }; MAX_HEADERS];
    let mut response = httparse::Response::new(&mut []);
    let parser = httparse::ParserConfig::default();
    let parsed = parser.parse_response_with_uninit_headers(&mut response, bytes, &mut fields);
    let n_bytes = match parsed {
        // The limit holds for a head that came in one read too.
        Ok(httparse::Status::Complete(n_bytes)) if n_bytes <= MAX_HEAD_BYTES => n_bytes,
        Ok(httparse::Status::Partial) if bytes.len() <= MAX_HEAD_BYTES => {
            return Ok(Parsed::Partial);
        }
        Ok(_) | Err(httparse::Error::TooManyHeaders) => {
            return Err(malformed("the response head is too large"));
        }
        Err(_error) => return Err(malformed("the response is not HTTP/1.1")),
    };
    let status = response.code.and_then(|code| StatusCode::from_u16(code).ok());
    let status = status.ok_or_else(|| malformed("the response has no status"))?;
    // No request asks for an upgrade, and after 101 the connection does not speak HTTP.
    if status == StatusCode::SWITCHING_PROTOCOLS {
        return Err(malformed("the server switched protocols"));
    }
    // RFC 9110 §15.2: a client must accept 1xx responses even if it did not ask for them.
    if status.is_informational() {
        return Ok(Parsed::Interim { n_bytes });
    }
    let mut fields = HeaderFields::default();
    for field in &*response.headers {
        fields.read(field)?;
    }
    let version = if response.version == Some(1) { Version::HTTP_11 } else { Version::HTTP_10 };
    let framing = fields.framing(status, version)?;
    // Only HTTP/1.1 keeps connections by default.
    let is_kept = fields.is_kept.unwrap_or(version == Version::HTTP_11);
    // RFC 9112 §6.3: both `Content-Length` and `Transfer-Encoding` may be a smuggling attempt. The body is
    // read, and the connection is not reused.
    let is_ambiguous_length = fields.is_chunked.is_some() && fields.length.is_some();
    let is_reusable = is_kept && !is_ambiguous_length && framing != BodyFraming::UntilClose;
    let HeaderFields { kind, encoding, headers, .. } = fields;
    let content =
        ContentInfo { kind: kind.unwrap_or_default(), encoding: encoding.unwrap_or_default() };
    Ok(Parsed::Complete {
        head: ResponseHead { status, content, headers, framing, is_reusable },
        n_bytes,
    })
}

impl HeaderFields {
    fn read(&mut self, field: &httparse::Header<'_>) -> io::Result<()> {
        // With names known to the compiler, most headers are told apart by their length.
        let is = |name: &str| field.name.eq_ignore_ascii_case(name);
        let mut kept = None;
        if is("content-type") {
            // The first value counts.
            let kind = *self.kind.get_or_insert_with(|| BodyKind::from_content_type(field.value));
            // Kept only for error messages, which name an unexpected type.
            kept = (kind == BodyKind::Other).then_some(&CONTENT_TYPE);
        } else if is("content-encoding") {
            self.encoding.get_or_insert_with(|| ContentEncoding::from_header(field.value));
        } else if is("content-length") {
            let length = parse_digits(field.value, 10).filter(|length| *length <= MAX_LENGTH);
            let length = length.ok_or_else(|| malformed("invalid Content-Length"))?;
            // RFC 9112 §6.3: a repeated length is harmless, a different one makes the end of
            // the body ambiguous.
            if self.length.replace(length).is_some_and(|before| before != length) {
                return Err(malformed("two different Content-Length values"));
            }
        } else if is("transfer-encoding") {
            // RFC 9112 §6.3: only the final coding decides how the body ends.
            let last = list_items(field.value).last().unwrap_or_default();
            // A coding with bytes outside of ASCII is unknown, and so is what comes before and after it.
            self.is_chunked = Some(field.value.is_ascii() && last.eq_ignore_ascii_case(b"chunked"));
        } else if is("connection") {
            for token in list_items(field.value) {
                // `close` wins over `keep-alive`, in any order.
                if token.eq_ignore_ascii_case(b"close") {
                    self.is_kept = Some(false);
                } else if field.value.is_ascii() && token.eq_ignore_ascii_case(b"keep-alive") {
                    self.is_kept.get_or_insert(true);
                }
            }
        } else {
            kept = KEPT_HEADERS.iter().find(|name| is(name.as_str()));
        }
        if let Some(name) = kept
            && let Ok(value) = HeaderValue::from_bytes(field.value)
        {
            self.headers.append(name, value);
        }
        Ok(())
    }

    fn framing(&self, status: StatusCode, version: Version) -> io::Result<BodyFraming> {
        // RFC 9112 §6.3: these have no body, even if a header declares one.
        if matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) {
            return Ok(BodyFraming::Empty);
        }
        // RFC 9112 §6.3: `Transfer-Encoding` overrides `Content-Length`; without either, the body ends with the
        // connection.
        Ok(match (self.is_chunked, self.length) {
            // RFC 9112 §6.1: in an HTTP/1.0 message the coding is faulty framing.
            (Some(_), _) if version == Version::HTTP_10 => {
                return Err(malformed("Transfer-Encoding in an HTTP/1.0 response"));
            }
            (Some(true), _) => BodyFraming::ChunkSize,
            (Some(false), _) | (None, None) => BodyFraming::UntilClose,
            (None, Some(0)) => BodyFraming::Empty,
            (None, Some(n_bytes)) => BodyFraming::Length { n_bytes },
        })
    }
}

/// The server sent something that is not valid HTTP.
fn malformed(reason: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

fn list_items(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii)
}

/// Parses a number that consists of digits only.
pub(crate) fn parse_digits(text: &[u8], radix: u32) -> Option<u64> {
    let add = |number: u64, byte: &u8| {
        number.checked_mul(radix.into())?.checked_add(char::from(*byte).to_digit(radix)?.into())
    };
    text.iter().try_fold(0, add).filter(|_| !text.is_empty())
}

/// Limits of chunk headers and trailers.
const MAX_LINE_BYTES: usize = 4 << 10;
const MAX_TRAILER_BYTES: usize = 16 << 10;
/// A chunk up to this size is copied, so that it does not keep a large buffer alive.
pub(crate) const COPY_BYTES: usize = 4 << 10;

/// How the end of a body is found, and how far away it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyFraming {
    /// The body has ended.
    Empty,
    /// Ends after `n_bytes`.
    Length { n_bytes: u64 },
    /// Chunked, before a chunk-size line.
    ChunkSize,
    /// Chunked, inside a chunk, with `n_bytes` to come.
    ChunkData { n_bytes: u64 },
    /// Chunked, before the line break after a chunk.
    ChunkEnd,
    /// Chunked, in the trailer, of which `n_bytes` have been read.
    Trailer { n_bytes: usize },
    /// Ends when the connection closes.
    UntilClose,
}

/// Result of decoding the bytes so far.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Decoded {
    /// Part of the body.
    Data(Bytes),
    /// More bytes are needed.
    NeedMore,
    /// The body has ended.
    End,
}

impl BodyFraming {
    /// Bytes of the body still to come, if the server declared a length.
    pub(crate) fn remaining_length(self) -> Option<u64> {
        match self {
            BodyFraming::Empty => Some(0),
            BodyFraming::Length { n_bytes } => Some(n_bytes),
            _ => None,
        }
    }

    /// Consumes as much of the start of `input` as possible.
    pub(crate) fn decode(&mut self, input: &mut BytesMut) -> io::Result<Decoded> {
        loop {
            match self {
                BodyFraming::Empty => return Ok(Decoded::End),
                BodyFraming::UntilClose => return Ok(take_chunk(input, &mut { u64::MAX })),
                BodyFraming::Length { n_bytes } => {
                    let chunk = take_chunk(input, n_bytes);
                    if *n_bytes == 0 {
                        *self = BodyFraming::Empty;
                    }
                    return Ok(chunk);
                }
                BodyFraming::ChunkData { n_bytes } => {
                    let chunk = take_chunk(input, n_bytes);
                    if *n_bytes == 0 {
                        *self = BodyFraming::ChunkEnd;
                    }
                    return Ok(chunk);
                }
                BodyFraming::ChunkSize => {
                    let Some(line) = take_line(input)? else { return Ok(Decoded::NeedMore) };
                    *self = match parse_chunk_size(&line) {
                        Some(0) => BodyFraming::Trailer { n_bytes: 0 },
                        Some(n_bytes) => BodyFraming::ChunkData { n_bytes },
                        None => return Err(malformed("invalid chunk size")),
                    };
                }
                BodyFraming::ChunkEnd => {
                    let Some(line) = take_line(input)? else { return Ok(Decoded::NeedMore) };
                    if !line.is_empty() {
                        return Err(malformed("a chunk is longer than its size"));
                    }
                    *self = BodyFraming::ChunkSize;
                }
                BodyFraming::Trailer { n_bytes } => {
                    let Some(line) = take_line(input)? else { return Ok(Decoded::NeedMore) };
                    // Trailers are discarded; the sum ends a trailer that never ends.
                    *n_bytes += line.len();
                    if line.is_empty() {
                        *self = BodyFraming::Empty;
                    } else if *n_bytes > MAX_TRAILER_BYTES {
                        return Err(malformed("the response trailer is too large"));
                    } else if !is_field_line(&line) {
                        return Err(malformed("invalid response trailer"));
                    }
                }
            }
        }
    }
}

/// Takes at most `n_left` bytes from the input, and subtracts what it took.
fn take_chunk(input: &mut BytesMut, n_left: &mut u64) -> Decoded {
    let n_bytes = usize::try_from(*n_left).map_or(input.len(), |limit| limit.min(input.len()));
    *n_left -= n_bytes as u64;
    if n_bytes == 0 {
        return Decoded::NeedMore;
    }
    if n_bytes > COPY_BYTES {
        return Decoded::Data(input.split_to(n_bytes).freeze());
    }
    let chunk = input.get(..n_bytes).map(Bytes::copy_from_slice);
    input.advance(n_bytes);
    Decoded::Data(chunk.unwrap_or_default())
}

/// Takes the next line of a chunked body, without its CRLF.
///
/// RFC 9112 §2.2 lets a reader accept a lone LF in the head; in chunks, readers that differ about the end of a line
/// differ about the end of the body.
fn take_line(input: &mut BytesMut) -> io::Result<Option<Bytes>> {
    let start = input.get(..input.len().min(MAX_LINE_BYTES + 2)).unwrap_or_default();
    let Some(end) = memchr::memchr(b'\n', start) else {
        let is_endless = input.len() > MAX_LINE_BYTES + 1;
        return if is_endless {
            Err(malformed("a chunk header line is too long"))
        } else {
            Ok(None)
        };
    };
    let line = start.get(..end).and_then(|line| line.strip_suffix(b"\r"));
    let line = line.filter(|line| memchr::memchr(b'\r', line).is_none());
    let line = line.ok_or_else(|| malformed("a line of a chunked body does not end with CRLF"))?;
    let line = Bytes::copy_from_slice(line);
    input.advance(end + 1);
    Ok(Some(line))
}

/// Size in a chunk-size line. Chunk extensions are ignored.
fn parse_chunk_size(line: &[u8]) -> Option<u64> {
    let size = line.split(|byte| *byte == b';').next().unwrap_or_default();
    let n_trailing = size.iter().rev().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    parse_digits(size.get(..size.len() - n_trailing)?, 16)
}

/// Whether the line is `name: value`.
fn is_field_line(line: &[u8]) -> bool {
    let Some(colon) = memchr::memchr(b':', line) else { return false };
    let (name, value) = line.split_at(colon);
    HeaderName::from_bytes(name).is_ok() && HeaderValue::from_bytes(value).is_ok()
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
    fn check(text: &str, status: u16, framing: &BodyFraming, reuse: Reuse) {
        let is_reusable = matches!(reuse, Kept);
        let text = text.replace('\n', "\r\n");
        let Parsed::Complete { head, n_bytes } = parse_head(text.as_bytes()).unwrap() else {
            panic!("not a complete head: {text}")
        };
        assert_eq!(n_bytes, text.len());
        assert_eq!((head.status.as_u16(), head.is_reusable), (status, is_reusable), "{text}");
        assert_eq!(head.framing, *framing, "{text}");
    }

    #[track_caller]
    fn check_malformed(text: &str, expected: &str) {
        match parse_head(text.replace('\n', "\r\n").as_bytes()) {
            Err(error) => assert!(error.to_string().contains(expected), "{error}: {text}"),
            Ok(parsed) => panic!("{text} was parsed as {parsed:?}"),
        }
    }

    #[test]
    fn body_length_follows_rfc_9112() {
        let (empty, until_close) = (&BodyFraming::Empty, &BodyFraming::UntilClose);
        let three = &BodyFraming::Length { n_bytes: 3 };
        let chunked = &BodyFraming::ChunkSize;
        check("HTTP/1.1 200 OK\nContent-Length: 3\n\n", 200, three, Kept);
        check("HTTP/1.1 200 \ncontent-length: 3\nContent-Length: 3\n\n", 200, three, Kept);
        check("HTTP/1.1 200 OK\nContent-Length: 0\n\n", 200, empty, Kept);
        check("HTTP/1.1 204 None\nContent-Length: 3\n\n", 204, empty, Kept);
        check("HTTP/1.1 200 OK\nTransfer-Encoding: Chunked\n\n", 200, chunked, Kept);
        check("HTTP/1.1 200 OK\nTransfer-Encoding: gzip, chunked\n\n", 200, chunked, Kept);
        check("HTTP/1.1 200 OK\nTransfer-Encoding: chunked, gzip\n\n", 200, until_close, Lost);
        check("HTTP/1.1 200 OK\n\n", 200, until_close, Lost);
        check("HTTP/1.0 200 OK\nContent-Length: 3\n\n", 200, three, Lost);
        check("HTTP/1.0 204 None\nTransfer-Encoding: chunked\n\n", 204, empty, Lost);
        let unknown = "HTTP/1.1 200 OK\nTransfer-Encoding: \u{e9}, chunked\n\n";
        check(unknown, 200, until_close, Lost);
        let kept = "HTTP/1.0 200 OK\nConnection: Keep-Alive\nContent-Length: 3\n\n";
        check(kept, 200, three, Kept);
        let closed = "HTTP/1.1 500 Oops\nConnection: x, Close\nContent-Length: 3\n\n";
        check(closed, 500, three, Lost);
        let both = "HTTP/1.1 200 OK\nContent-Length: 3\nTransfer-Encoding: chunked\n\n";
        check(both, 200, chunked, Lost);
    }

    #[test]
    fn malformed_heads_are_rejected() {
        check_malformed("SSH-2.0-OpenSSH_9.2\n", "not HTTP");
        check_malformed("HTTP/2 200\n\n", "not HTTP");
        check_malformed(
            "HTTP/1.1 200 OK\nContent-Length: 3\nContent-Length: 4\n\n",
            "two different",
        );
        check_malformed("HTTP/1.1 200 OK\nContent-Length: +3\n\n", "invalid");
        check_malformed("HTTP/1.1 200 OK\nContent-Length: 99999999999999999999\n\n", "invalid");
        check_malformed("HTTP/1.1 200 OK\nContent-Length: 18446744073709551615\n\n", "invalid");
        check_malformed("HTTP/1.0 200 OK\nTransfer-Encoding: chunked\n\n", "HTTP/1.0 response");
        check_malformed("HTTP/1.1 101 Switching\n\n", "switched protocols");
        check_malformed(&format!("HTTP/1.1 200 OK\n{}\n", "a: b\n".repeat(101)), "too large");
        check_malformed(
            &format!("HTTP/1.1 200 OK\na: {}", "b".repeat(MAX_HEAD_BYTES)),
            "too large",
        );
        check_malformed(
            &format!("HTTP/1.1 200 OK\na: {}\n\n", "b".repeat(MAX_HEAD_BYTES)),
            "too large",
        );
    }

    #[test]
    fn head_may_be_partial_or_follow_interim_heads() {
        assert!(matches!(parse_head(b"HTTP/1.1 200 OK\r\nConte"), Ok(Parsed::Partial)));
        assert!(matches!(parse_head(b""), Ok(Parsed::Partial)));
        let early = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\n";
        assert!(matches!(parse_head(early), Ok(Parsed::Interim { n_bytes: 37 })));
    }

    #[test]
    fn needed_headers_are_kept() {
        let text = "HTTP/1.1 401 No\r\nDate: x\r\nWWW-Authenticate: a\r\nwww-authenticate: b\r\n\
                    Mcp-Session-Id: s\r\nContent-Type: text/event-stream\r\n\r\n";
        let Ok(Parsed::Complete { head, .. }) = parse_head(text.as_bytes()) else { panic!() };
        let challenges: Vec<_> = head.headers.get_all(WWW_AUTHENTICATE).iter().collect();
        assert_eq!(challenges, ["a", "b"]);
        assert_eq!(head.headers.get(HTTP_SESSION_ID).unwrap(), "s");
        assert_eq!(head.headers.get(CONTENT_TYPE), None, "it is in the content");
        assert_eq!(
            head.content,
            ContentInfo { kind: BodyKind::EventStream, encoding: ContentEncoding::Identity }
        );
    }

    #[test]
    fn first_content_header_counts() {
        let check = |text: &str, kind, encoding| {
            let text = format!("HTTP/1.1 200 OK\r\n{}\r\n", text.replace('\n', "\r\n"));
            let Ok(Parsed::Complete { head, .. }) = parse_head(text.as_bytes()) else {
                panic!("{text}")
            };
            assert_eq!(head.content, ContentInfo { kind, encoding }, "{text}");
        };
        let (json, html) = ("Content-Type: application/json\n", "Content-Type: text/html\n");
        let (plain, gzip) = ("Content-Encoding: identity\n", "Content-Encoding: gzip\n");
        check(&format!("{json}{html}{plain}{gzip}"), BodyKind::Json, ContentEncoding::Identity);
        check(&format!("{html}{json}{gzip}{plain}"), BodyKind::Other, ContentEncoding::Gzip);
        check("", BodyKind::Other, ContentEncoding::Identity);
    }

    proptest! {
        #[test]
        fn framing_accepts_arbitrary_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            drop(parse_head(&bytes));
            drop(parse_head(&[b"HTTP/1.1 200 OK\r\n".as_slice(), &bytes].concat()));
        }
    }
}

#[cfg(test)]
mod body_tests {
    use proptest::prelude::*;

    use super::*;

    /// Feeds `text` in steps of `step` bytes; returns the body and the bytes left after it.
    fn decoded(framing: &BodyFraming, text: &[u8], step: usize) -> io::Result<(Vec<u8>, Vec<u8>)> {
        let (mut framing, mut input, mut body) = (*framing, BytesMut::new(), Vec::new());
        let mut parts = text.chunks(step);
        loop {
            match framing.decode(&mut input)? {
                Decoded::Data(chunk) => body.extend_from_slice(&chunk),
                Decoded::End => {
                    let rest = parts.fold(input.to_vec(), |rest, part| [&rest, part].concat());
                    return Ok((body, rest));
                }
                Decoded::NeedMore => match parts.next() {
                    Some(part) => input.extend_from_slice(part),
                    None => return Ok((body, b"(open)".to_vec())),
                },
            }
        }
    }

    #[track_caller]
    fn check(framing: &BodyFraming, text: &str, body: &str, rest: &str) {
        for step in [1, 2, 3, 7, 1000] {
            let (found, left) = decoded(framing, text.as_bytes(), step).unwrap();
            assert_eq!(String::from_utf8(found).unwrap(), body, "{text:?} by {step}");
            assert_eq!(String::from_utf8(left).unwrap(), rest, "{text:?} by {step}");
        }
    }

    #[test]
    fn body_framing_stops_at_the_end_of_the_body() {
        let five = BodyFraming::Length { n_bytes: 5 };
        check(&five, "helloHTTP", "hello", "HTTP");
        check(&five, "hel", "hel", "(open)");
        check(&BodyFraming::Empty, "HTTP", "", "HTTP");
        check(&BodyFraming::UntilClose, "all of it", "all of it", "(open)");
        let chunked = BodyFraming::ChunkSize;
        check(&chunked, "5\r\nhello\r\n0\r\n\r\nHTTP", "hello", "HTTP");
        check(&chunked, "3;x=y\r\nhel\r\n2 \r\nlo\r\n000\r\nTrailer: x\r\n\r\n", "hello", "");
        check(&chunked, "5\r\nhel", "hel", "(open)");
        check(&chunked, "5\r\nhello\r\n", "hello", "(open)");
    }

    #[test]
    fn invalid_chunks_are_rejected() {
        let chunked = BodyFraming::ChunkSize;
        let endless = "x".repeat(MAX_LINE_BYTES + 2);
        let trailer = format!("0\r\n{}", "a: b\r\n".repeat(MAX_TRAILER_BYTES));
        let texts = ["x\r\n", "\r\n", "-1\r\n", "10000000000000000\r\n", "2\r\nabc\r\n"];
        let line_ends = ["1\na\r\n", "1\r\na\n", "1;x\ry\r\n", "0\r\n\n", "0\r\na: b\n\r\n"];
        let spaces = [" 1\r\n", "1\x0b\r\n", "1 1\r\n"];
        let trailers = ["0\r\nno colon\r\n", "0\r\na : b\r\n", "0\r\n: b\r\n", "0\r\na: \0\r\n"];
        let lines = texts.into_iter().chain(line_ends).chain(spaces).chain(trailers);
        for text in lines.chain([endless.as_str(), trailer.as_str()]) {
            assert!(decoded(&chunked, text.as_bytes(), 1000).is_err(), "{text:.20}");
        }
    }

    #[test]
    fn chunk_line_limit_does_not_depend_on_the_reads() {
        for (n_bytes, is_allowed) in [(MAX_LINE_BYTES, true), (MAX_LINE_BYTES + 1, false)] {
            let text = format!("1;{}\r\na\r\n0\r\n\r\n", "x".repeat(n_bytes - 2));
            for step in [1, 1000, 100_000] {
                let found = decoded(&BodyFraming::ChunkSize, text.as_bytes(), step);
                assert_eq!(found.is_ok(), is_allowed, "{n_bytes} by {step}");
            }
        }
    }

    #[test]
    fn large_chunks_are_not_copied() {
        let mut input = BytesMut::from("x".repeat(10_000).as_str());
        let start = input.as_ptr();
        let mut framing = BodyFraming::Length { n_bytes: 10_000 };
        let Ok(Decoded::Data(chunk)) = framing.decode(&mut input) else { panic!() };
        assert_eq!((chunk.as_ptr(), chunk.len()), (start, 10_000));
    }

    proptest! {
        #[test]
        fn chunked_body_is_reassembled(
            chunks in proptest::collection::vec("[a-z]{1,40}", 0..20),
            step in 1_usize..60,
        ) {
            let written: Vec<String> =
                chunks.iter().map(|chunk| format!("{:x}\r\n{chunk}\r\n", chunk.len())).collect();
            let text = written.concat() + "0\r\n\r\nnext";
            let (body, rest) = decoded(&BodyFraming::ChunkSize, text.as_bytes(), step).unwrap();
            prop_assert_eq!(String::from_utf8(body).unwrap(), chunks.concat());
            prop_assert_eq!(rest, b"next");
        }

        #[test]
        fn framing_accepts_arbitrary_bytes(
            bytes in proptest::collection::vec(any::<u8>(), 0..300),
            step in 1_usize..60,
        ) {
            drop(decoded(&BodyFraming::ChunkSize, &bytes, step));
            drop(decoded(&BodyFraming::Length { n_bytes: 77 }, &bytes, step));
        }
    }
}
