//! Minimal HTTP client that sends exactly the given bytes.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

/// Longer than any request of a test.
pub(crate) const TIMEOUT: Duration = Duration::from_mins(1);

/// A complete response.
#[derive(Debug, Clone)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Response {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("not JSON: {self:?}"))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

/// Sends bytes over TCP and reads until the peer closes.
pub(crate) fn send(addr: SocketAddr, bytes: &[u8]) -> io::Result<Response> {
    let stream = TcpStream::connect(addr)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    exchange(stream, bytes)
}

/// The same over a Unix socket.
pub(crate) fn send_unix(path: &Path, bytes: &[u8]) -> io::Result<Response> {
    let stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    exchange(stream, bytes)
}

fn exchange(mut stream: impl Read + Write, bytes: &[u8]) -> io::Result<Response> {
    // A server that refuses a request may close before it has read everything.
    let sent = stream.write_all(bytes);
    let mut response = Vec::new();
    match stream.read_to_end(&mut response) {
        Err(error) if response.is_empty() => return Err(error),
        _ => {}
    }
    if response.is_empty() {
        sent?;
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(parse(&response))
}

fn parse(bytes: &[u8]) -> Response {
    let text = String::from_utf8_lossy(bytes).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default();
    let is_chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    let body = if is_chunked { decode_chunks(body) } else { body.to_owned() };
    Response { status, head: head.to_owned(), body }
}

fn decode_chunks(mut rest: &str) -> String {
    let mut body = String::new();
    while let Some((size, tail)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size.trim(), 16).unwrap_or_default();
        if size == 0 || tail.len() < size {
            break;
        }
        body.push_str(&tail[..size]);
        rest = tail[size..].trim_start_matches("\r\n");
    }
    body
}

/// Encodes a request with `Connection: close`.
pub(crate) fn encode_request(
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Vec<u8> {
    let mut text = format!("{method} {path} HTTP/1.1\r\n");
    for (name, value) in headers {
        text.extend([name, ": ", value, "\r\n"]);
    }
    if !body.is_empty() {
        text.extend(["content-length: ", &body.len().to_string(), "\r\n"]);
    }
    text.push_str("connection: close\r\n\r\n");
    text.push_str(body);
    text.into_bytes()
}
