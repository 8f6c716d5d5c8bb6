//! Minimal HTTP/1.1 for the OAuth server and its tests: one request per connection.

use std::fmt::Write as _;
use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use serde::Serialize;

use super::Role;

const LIMIT: Duration = Duration::from_secs(10);
const MAX_REQUEST_BYTES: usize = 1024 * 1024;

/// A parsed request.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    /// Decoded pairs of the query, then of a form body.
    pub(crate) pairs: Vec<(String, String)>,
    pub(crate) authorization: Option<String>,
    pub(crate) version: Option<String>,
    pub(crate) body: Vec<u8>,
}

/// A response.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Vec<u8>,
}

/// A request, recorded for tests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedRequest {
    /// The server that received it.
    pub role: Role,
    /// `GET` or `POST`.
    pub method: String,
    /// Path without the query.
    pub path: String,
    /// Decoded pairs of the query and of a form body.
    pub pairs: Vec<(String, String)>,
    /// The header `Authorization`.
    pub authorization: Option<String>,
    /// The header `MCP-Protocol-Version`.
    pub version: Option<String>,
    /// The body, as text.
    pub body: String,
}

impl RecordedRequest {
    pub(crate) fn new(role: Role, request: &Request) -> Self {
        Self {
            role,
            method: request.method.clone(),
            path: request.path.clone(),
            pairs: request.pairs.clone(),
            authorization: request.authorization.clone(),
            version: request.version.clone(),
            body: String::from_utf8_lossy(&request.body).into_owned(),
        }
    }

    /// Value of a query or form parameter.
    pub fn get(&self, name: &str) -> Option<&str> {
        find_pair(&self.pairs, name)
    }
}

impl Request {
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        find_pair(&self.pairs, name)
    }
}

fn find_pair<'a>(pairs: &'a [(String, String)], name: &str) -> Option<&'a str> {
    pairs.iter().find(|(pair, _)| pair == name).map(|(_, value)| value.as_str())
}

impl Response {
    pub(crate) fn json(status: u16, body: &impl Serialize) -> Self {
        let headers = vec![("content-type", "application/json".to_owned())];
        Self { status, headers, body: serde_json::to_vec(body).unwrap_or_default() }
    }

    pub(crate) fn empty(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: Vec::new() }
    }

    pub(crate) fn redirect(location: String) -> Self {
        Self { status: 302, headers: vec![("location", location)], body: Vec::new() }
    }
}

/// Reads a request. `None` if it is cut off or invalid.
pub(crate) fn read(mut stream: &TcpStream) -> io::Result<Option<Request>> {
    stream.set_read_timeout(Some(LIMIT))?;
    let mut bytes = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        if let Some(request) = parse(&bytes) {
            return Ok(Some(request));
        }
        let n_read = stream.read(&mut chunk)?;
        if n_read == 0 || bytes.len() > MAX_REQUEST_BYTES {
            return Ok(None);
        }
        bytes.extend_from_slice(chunk.get(..n_read).unwrap_or_default());
    }
}

/// Parses a request once it is complete.
fn parse(bytes: &[u8]) -> Option<Request> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut head = httparse::Request::new(&mut headers);
    let Ok(httparse::Status::Complete(length)) = head.parse(bytes) else { return None };
    let header = |name: &str| {
        let found = head.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name))?;
        Some(String::from_utf8_lossy(found.value).into_owned())
    };
    let expected = header("content-length").and_then(|value| value.parse().ok()).unwrap_or(0_usize);
    let body = bytes.get(length..length.checked_add(expected)?)?.to_vec();
    let (path, query) = head.path?.split_once('?').unwrap_or((head.path?, ""));
    let mut pairs = decode(query);
    if header("content-type")
        .is_some_and(|value| value.starts_with("application/x-www-form-urlencoded"))
    {
        pairs.extend(decode(&String::from_utf8_lossy(&body)));
    }
    Some(Request {
        method: head.method?.to_owned(),
        path: path.to_owned(),
        pairs,
        authorization: header("authorization"),
        version: header("mcp-protocol-version"),
        body,
    })
}

pub(crate) fn write(mut stream: TcpStream, response: &Response) -> io::Result<()> {
    stream.set_write_timeout(Some(LIMIT))?;
    let mut head = format!("HTTP/1.1 {} Answer\r\nconnection: close\r\n", response.status);
    for (name, value) in &response.headers {
        write!(head, "{name}: {value}\r\n").unwrap_or_default();
    }
    write!(head, "content-length: {}\r\n\r\n", response.body.len()).unwrap_or_default();
    let mut bytes = head.into_bytes();
    bytes.extend_from_slice(&response.body);
    stream.write_all(&bytes)
}

/// Decodes `a=b&c=d`.
pub(crate) fn decode(text: &str) -> Vec<(String, String)> {
    let pairs = text.split('&').filter(|part| !part.is_empty());
    pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (unescape(name), unescape(value))
        })
        .collect()
}

pub(crate) fn unescape(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'+' => bytes.push(b' '),
            b'%' => {
                let digits: String = rest.by_ref().take(2).map(char::from).collect();
                bytes.extend(u8::from_str_radix(&digits, 16));
            }
            plain => bytes.push(plain),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Percent-encodes text for a query.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                escaped.push(char::from(byte));
            }
            other => write!(escaped, "%{other:02X}").unwrap_or_default(),
        }
    }
    escaped
}

const CLIENT_TIMEOUT: Duration = Duration::from_secs(20);
const MAX_HOPS: usize = 5;

/// Gets `url`, follows redirects, and returns the last response including its head.
pub fn follow_redirects(url: &str) -> io::Result<String> {
    let mut url = url.to_owned();
    for _hop in 0..MAX_HOPS {
        let response = exchange(&url, "GET", "", "")?;
        match location(&response) {
            Some(next) => next.clone_into(&mut url),
            None => return Ok(response),
        }
    }
    Err(io::Error::other("too many redirects"))
}

/// Posts a JSON message with a bearer token; returns the status and the whole response.
pub fn post(url: &str, token: Option<&str>, body: &str) -> io::Result<(u16, String)> {
    let token = token.map(|token| format!("Authorization: {token}\r\n")).unwrap_or_default();
    let response = exchange(url, "POST", &token, body)?;
    Ok((status(&response), response))
}

/// Gets `url` without following redirects; returns the status and the whole response.
pub fn get(url: &str) -> io::Result<(u16, String)> {
    let response = exchange(url, "GET", "", "")?;
    Ok((status(&response), response))
}

fn status(response: &str) -> u16 {
    response.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or_default()
}

fn exchange(url: &str, method: &str, headers: &str, body: &str) -> io::Result<String> {
    let bare = url.strip_prefix("http://").ok_or_else(|| io::Error::other("not http"))?;
    let cut = bare.find(['/', '?']).unwrap_or(bare.len());
    let (host, target) = bare.split_at(cut);
    let mut stream = TcpStream::connect(host)?;
    stream.set_read_timeout(Some(CLIENT_TIMEOUT))?;
    let request = format!(
        "{method} {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{headers}\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes())?;
    let mut response = String::new();
    stream.read_to_string(&mut response)?;
    Ok(response)
}

fn location(response: &str) -> Option<&str> {
    let head = response.split("\r\n\r\n").next()?;
    let line = head.lines().find(|line| line.to_ascii_lowercase().starts_with("location:"))?;
    line.split_once(':').map(|(_, value)| value.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn request_parses_only_when_complete() {
        let text = "POST /token?a=1 HTTP/1.1\r\nContent-Length: 3\r\n\
                    content-type: application/x-www-form-urlencoded\r\n\r\nb=2";
        for end in 0..text.len() {
            assert!(parse(&text.as_bytes()[..end]).is_none(), "{end}");
        }
        let request = parse(text.as_bytes()).unwrap();
        assert_eq!((request.get("a"), request.get("b")), (Some("1"), Some("2")));
    }
}
