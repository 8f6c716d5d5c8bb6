//! HTTP/1.1 of the test servers: connections, requests, responses, chunks and percent-encoding.
//!
//! **Invariant:** a request is bounded: 64 KiB of head, 64 MiB of body.

use std::fmt::Write as _;
use std::io::{self, BufRead, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use url::form_urlencoded;

/// Further connections of a listener are closed at once.
const MAX_CONNECTIONS: usize = 4096;
/// A compressor alone takes several hundred KiB of stack in a debug build.
const STACK_BYTES: usize = 2 * 1024 * 1024;
const MAX_HEAD_BYTES: usize = 64 * 1024;
const MAX_BODY_BYTES: usize = 64 * 1024 * 1024;
const MAX_HEADERS: usize = 100;

/// A parsed request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) verb: String,
    pub(crate) path: String,
    pub(crate) query: String,
    /// Names in lower case, in wire order.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Request {
    /// Value of a header, the first if it is repeated.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn count(&self, name: &str) -> usize {
        self.headers.iter().filter(|(header, _)| header == name).count()
    }

    /// Whether a media type list contains this type.
    pub(crate) fn has_media_type(&self, header: &str, media_type: &str) -> bool {
        self.header(header).is_some_and(|value| {
            value.split(',').any(|part| {
                part.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case(media_type)
            })
        })
    }
}

/// Serves each connection on a thread of its own, until `is_ending`.
pub(crate) fn accept_each(
    listener: &TcpListener,
    is_ending: &AtomicBool,
    serve: impl Fn(TcpStream) + Send + Sync + 'static,
) {
    // Every thread holds a reference, so their count is that of the connections.
    let serve = Arc::new(serve);
    for stream in listener.incoming().flatten() {
        if is_ending.load(Ordering::Acquire) {
            return;
        }
        if Arc::strong_count(&serve) <= MAX_CONNECTIONS {
            let serve = Arc::clone(&serve);
            let thread = thread::Builder::new().stack_size(STACK_BYTES);
            // A connection without a thread is closed.
            drop(thread.spawn(move || serve(stream)));
        }
    }
}

/// Reads the next request; `None` at the end of the connection.
pub(crate) fn read(
    input: &mut impl BufRead,
    output: &mut impl Write,
) -> io::Result<Option<Request>> {
    let Some(head) = read_head(input)? else { return Ok(None) };
    let mut request = parse_head(&head)?;
    if request.header("expect").is_some_and(|expect| expect.eq_ignore_ascii_case("100-continue")) {
        output.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
    }
    request.body = read_body(input, &request)?;
    Ok(Some(request))
}

fn read_head(input: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut head = Vec::new();
    loop {
        let before = head.len();
        let limit = (MAX_HEAD_BYTES - before) as u64;
        let read = input.by_ref().take(limit).read_until(b'\n', &mut head)?;
        if read == 0 && before == 0 {
            return Ok(None);
        }
        let line = head.get(before..).unwrap_or_default();
        if line == b"\r\n" && before == 0 {
            // Some clients send an empty line after a body.
            head.clear();
        } else if line == b"\r\n" || line == b"\n" {
            return Ok(Some(head));
        } else if !line.ends_with(b"\n") {
            return Err(bad("the head of the request has no end"));
        }
    }
}

fn parse_head(head: &[u8]) -> io::Result<Request> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut parsed = httparse::Request::new(&mut headers);
    parsed.parse(head).map_err(|error| bad(&error.to_string()))?;
    let target = parsed.path.unwrap_or_default();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let headers = parsed.headers.iter().map(|header| {
        let value = String::from_utf8_lossy(header.value).trim().to_owned();
        (header.name.to_ascii_lowercase(), value)
    });
    Ok(Request {
        verb: parsed.method.unwrap_or_default().to_owned(),
        path: path.to_owned(),
        query: query.to_owned(),
        headers: headers.collect(),
        body: Vec::new(),
    })
}

fn read_body(input: &mut impl BufRead, request: &Request) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    if request
        .header("transfer-encoding")
        .is_some_and(|encoding| encoding.eq_ignore_ascii_case("chunked"))
    {
        while let n_bytes @ 1.. = read_chunk_size(input)? {
            read_exactly(input, n_bytes, &mut body)?;
            read_line(input)?;
        }
        // Trailers are ignored.
        while !read_line(input)?.trim_ascii().is_empty() {}
        return Ok(body);
    }
    let length = request.header("content-length").map(str::parse).transpose();
    let n_bytes: usize = length.map_err(|_not_digits| bad("no content length"))?.unwrap_or(0);
    read_exactly(input, n_bytes, &mut body)?;
    Ok(body)
}

fn read_chunk_size(input: &mut impl BufRead) -> io::Result<usize> {
    let line = read_line(input)?;
    let digits = String::from_utf8_lossy(&line);
    let digits = digits.split(';').next().unwrap_or_default().trim();
    usize::from_str_radix(digits, 16).map_err(|_not_hex| bad("no chunk size"))
}

fn read_line(input: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    input.by_ref().take(MAX_HEAD_BYTES as u64).read_until(b'\n', &mut line)?;
    if line.ends_with(b"\n") { Ok(line) } else { Err(bad("the body ends in the middle")) }
}

fn read_exactly(input: &mut impl BufRead, n_bytes: usize, body: &mut Vec<u8>) -> io::Result<()> {
    if body.len() + n_bytes > MAX_BODY_BYTES {
        return Err(bad("the body is too long"));
    }
    let read = input.by_ref().take(n_bytes as u64).read_to_end(body)?;
    if read == n_bytes { Ok(()) } else { Err(bad("the body ends in the middle")) }
}

fn bad(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// Status line and headers of a response.
pub(crate) fn head<'a>(
    status: u16,
    headers: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Vec<u8> {
    let reason = if status < 400 { "OK" } else { "Error" };
    let mut text = format!("HTTP/1.1 {status} {reason}\r\n");
    for (name, value) in headers {
        // Writing to a string cannot fail.
        write!(text, "{name}: {value}\r\n").unwrap_or_default();
    }
    text.push_str("\r\n");
    text.into_bytes()
}

/// Encodes one chunk; empty input gives nothing, since an empty chunk ends the body.
pub(crate) fn chunk(bytes: &[u8]) -> Vec<u8> {
    if bytes.is_empty() {
        return Vec::new();
    }
    let size = format!("{:x}\r\n", bytes.len());
    [size.as_bytes(), bytes, b"\r\n"].concat()
}

/// Decodes `a=b&c=d`.
pub(crate) fn decode(text: &str) -> Vec<(String, String)> {
    form_urlencoded::parse(text.as_bytes()).into_owned().collect()
}

/// Decodes one percent-encoded value.
pub(crate) fn unescape(text: &str) -> String {
    decode(text).into_iter().map(|(value, _)| value).next().unwrap_or_default()
}

/// Percent-encodes text for a query.
pub(crate) fn escape(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> io::Result<Option<Request>> {
        read(&mut text.as_bytes(), &mut io::sink())
    }

    #[test]
    fn bodies_are_read_by_length_or_in_chunks() {
        let check = |head: &str, body: &str, expected: Option<&str>| {
            let request = read_text(&format!("POST /mcp?a=1 HTTP/1.1\r\n{head}\r\n\r\n{body}"));
            let read = request
                .ok()
                .flatten()
                .map(|request| String::from_utf8_lossy(&request.body).into_owned());
            assert_eq!(read.as_deref(), expected, "{head}");
        };
        check("Content-Length: 4", "{}{}more", Some("{}{}"));
        check("content-length:2", "{}", Some("{}"));
        check("Transfer-Encoding: chunked", "2\r\n{}\r\n3;x=y\r\nabc\r\n0\r\n\r\n", Some("{}abc"));
        check("Host: a", "", Some(""));
        check("Content-Length: 9", "{}", None);
        check("Content-Length: x", "{}", None);
        check("Transfer-Encoding: chunked", "2\r\n{}\r\n", None);
        check("Content-Length: 99999999999", "", None);
    }

    #[test]
    fn request_head_is_parsed() {
        let text = "GET /mcp?session=a&b=c HTTP/1.1\r\nAccept: text/EVENT-stream;q=1, x/y\r\nX: 1\r\nx: 2\r\n\r\n";
        let request = read_text(text).expect("a request").expect("not the end");
        let seen = (request.verb.as_str(), request.path.as_str(), request.query.as_str());
        assert_eq!(seen, ("GET", "/mcp", "session=a&b=c"));
        assert_eq!((request.header("x"), request.count("x")), (Some("1"), 2));
        assert!(
            request.has_media_type("accept", "text/event-stream")
                && request.has_media_type("accept", "x/y")
        );
        assert!(!request.has_media_type("accept", "application/json"));
        assert_eq!(read_text("").expect("the end"), None);
        assert!(read_text("GET /").is_err() && read_text("nonsense\r\n\r\n").is_err());
    }

    #[test]
    fn request_is_read_only_when_complete() {
        let text = "POST /token?a=1 HTTP/1.1\r\nContent-Length: 3\r\n\r\nb=2";
        for end in 0..text.len() {
            assert!(!matches!(read_text(&text[..end]), Ok(Some(_))), "{end}");
        }
        assert!(matches!(read_text(text), Ok(Some(_))));
    }

    #[test]
    fn percent_encoding_round_trips() {
        for text in ["", "a b+c", "https://h/ü?x=1&y=%2", "😀"] {
            assert_eq!(unescape(&escape(text)), text);
        }
        let expected = [("a", "1 2"), ("b", ""), ("c", "=")];
        let found = decode("a=1+2&b&&c=%3D");
        assert_eq!(found, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    #[test]
    fn empty_chunk_encodes_to_nothing() {
        assert_eq!(chunk(b""), b"");
        assert_eq!(chunk(b"0123456789abcdef!"), b"11\r\n0123456789abcdef!\r\n");
    }
}
