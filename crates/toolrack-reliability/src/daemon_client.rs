//! HTTP client for the daemon's Unix socket, one request at a time.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use toolrack_testkit::harness::now;

/// Size limits for the head and the body of a response.
const HEAD_BYTES: u64 = 64 << 10;
const BODY_BYTES: u64 = 64 << 20;

/// An open connection.
#[derive(Debug)]
pub(crate) struct DaemonClient {
    stream: BufReader<UnixStream>,
}

/// A response.
#[derive(Debug, PartialEq)]
pub(crate) struct ApiResponse {
    pub(crate) status: u16,
    /// `null` if the body is not JSON.
    pub(crate) body: Value,
}

impl DaemonClient {
    /// `call_timeout` applies to each read and each write.
    pub(crate) fn open(socket: &Path, call_timeout: Duration) -> io::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(call_timeout))?;
        stream.set_write_timeout(Some(call_timeout))?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    pub(crate) fn get(&mut self, path: &str) -> io::Result<ApiResponse> {
        self.request("GET", path, "")
    }

    /// Calls a tool.
    pub(crate) fn call(
        &mut self,
        server: &str,
        tool: &str,
        arguments: &Value,
    ) -> io::Result<ApiResponse> {
        let call = serde_json::json!({ "server": server, "tool": tool, "arguments": arguments });
        self.request("POST", "/api/calls", &call.to_string())
    }

    pub(crate) fn request(
        &mut self,
        method: &str,
        path: &str,
        body: &str,
    ) -> io::Result<ApiResponse> {
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: daemon\r\ncontent-type: application/json\r\n\
             content-length: {length}\r\n\r\n{body}"
        );
        self.stream.get_mut().write_all(request.as_bytes())?;
        let mut head = String::new();
        let mut source = self.stream.by_ref().take(HEAD_BYTES);
        while !head.ends_with("\r\n\r\n") {
            if source.read_line(&mut head)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        let (status, length) = read_head(&head).ok_or(io::ErrorKind::InvalidData)?;
        if length > BODY_BYTES {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let mut body = Vec::new();
        if self.stream.by_ref().take(length).read_to_end(&mut body)? as u64 != length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(ApiResponse { status, body: serde_json::from_slice(&body).unwrap_or_default() })
    }
}

impl ApiResponse {
    /// Returns the body of a 2xx response, or an error.
    pub(crate) fn success_body(self) -> io::Result<Value> {
        match self.status {
            200..300 => Ok(self.body),
            status => Err(io::Error::other(format!("{status} {}", self.body))),
        }
    }
}

/// Sends a request on a connection of its own, with further header lines, and reads the response without keeping it,
/// until its end or the limit. Returns the status.
pub(crate) fn discard_response(
    socket: &Path,
    (method, path, headers): (&str, &str, &str),
    body: &str,
    limit: Duration,
) -> io::Result<u16> {
    let deadline = now() + limit;
    let mut stream = UnixStream::connect(socket)?;
    stream.set_write_timeout(Some(limit))?;
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: daemon\r\nconnection: close\r\n\
         content-type: application/json\r\n{headers}content-length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())?;
    let mut stream = BufReader::with_capacity(256 << 10, stream);
    let mut status_line = String::new();
    loop {
        let left = deadline.saturating_duration_since(now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.get_ref().set_read_timeout(Some(left))?;
        if status_line.is_empty() {
            stream.by_ref().take(HEAD_BYTES).read_line(&mut status_line)?;
            continue;
        }
        let n_bytes = stream.fill_buf()?.len();
        if n_bytes == 0 {
            let status = status_line.split(' ').nth(1).and_then(|status| status.parse().ok());
            return status.ok_or(io::ErrorKind::InvalidData.into());
        }
        stream.consume(n_bytes);
    }
}

/// Parses the status and the content length.
fn read_head(head: &str) -> Option<(u16, u64)> {
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let mut lengths = head.lines().filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim())
    });
    let length = lengths.next_back().map_or(Some(0), |value| value.parse().ok())?;
    Some((status, length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(head: &str, expected: Option<(u16, u64)>) {
        assert_eq!(read_head(head), expected, "{head}");
    }

    #[test]
    fn response_head_is_parsed() {
        check("HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n", Some((200, 12)));
        check("HTTP/1.1 204 No Content\r\n\r\n", Some((204, 0)));
        check("HTTP/1.1 200 OK\r\ncontent-length: many\r\n\r\n", None);
        check("nonsense", None);
    }

    #[test]
    fn only_2xx_is_a_success() {
        let of = |status| ApiResponse { status, body: Value::Bool(true) }.success_body().ok();
        assert_eq!([of(200), of(201)], [Some(true.into()), Some(true.into())]);
        assert_eq!([of(199), of(409), of(503)], [None, None, None]);
    }
}
