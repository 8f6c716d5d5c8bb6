//! Requests and responses of the OAuth server, and an HTTP client for its tests.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use serde::Serialize;
use url::Position::{AfterPort, AfterQuery, BeforeHost, BeforePath};
use url::Url;

use super::Role;
use crate::http;

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
    pub(crate) fn new(role: Role, request: http::Request) -> Self {
        let header = |name: &str| request.header(name).map(str::to_owned);
        let (authorization, version) = (header("authorization"), header("mcp-protocol-version"));
        let body = String::from_utf8_lossy(&request.body).into_owned();
        let mut pairs = http::decode(&request.query);
        if request.has_media_type("content-type", "application/x-www-form-urlencoded") {
            pairs.extend(http::decode(&body));
        }
        let http::Request { verb: method, path, .. } = request;
        Self { role, method, path, pairs, authorization, version, body }
    }

    /// Value of a query or form parameter.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.pairs.iter().find(|(pair, _)| pair == name).map(|(_, value)| value.as_str())
    }
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

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let length = self.body.len().to_string();
        let framing = [("connection", "close"), ("content-length", length.as_str())];
        let own = self.headers.iter().map(|(name, value)| (*name, value.as_str()));
        [http::head(self.status, own.chain(framing)), self.body.clone()].concat()
    }
}

const CLIENT_TIMEOUT: Duration = Duration::from_secs(20);
const MAX_HOPS: usize = 5;
const MAX_RESPONSE_BYTES: u64 = 1 << 20;

/// Gets `url`, follows redirects, and returns the last response including its head.
pub fn follow_redirects(url: &str) -> io::Result<String> {
    let mut url = url.to_owned();
    for _hop in 0..MAX_HOPS {
        let response = fetch(&url)?;
        match location(&response) {
            Some(next) => url = parse(&url)?.join(next).map_err(io::Error::other)?.into(),
            None => return Ok(response),
        }
    }
    Err(io::Error::other("too many redirects"))
}

/// Gets `url` without following redirects; returns the status and the whole response.
pub fn get(url: &str) -> io::Result<(u16, String)> {
    let response = fetch(url)?;
    let status = response.split(' ').nth(1).and_then(|code| code.parse().ok());
    Ok((status.unwrap_or_default(), response))
}

fn parse(url: &str) -> io::Result<Url> {
    let url = Url::parse(url).map_err(io::Error::other)?;
    if url.scheme() == "http" { Ok(url) } else { Err(io::Error::other("not http")) }
}

fn fetch(url: &str) -> io::Result<String> {
    let url = parse(url)?;
    let (host, target) = (&url[BeforeHost..AfterPort], &url[BeforePath..AfterQuery]);
    let port = url.port_or_known_default().unwrap_or(80);
    let mut stream = TcpStream::connect((url.host_str().unwrap_or_default(), port))?;
    stream.set_read_timeout(Some(CLIENT_TIMEOUT))?;
    let request = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut response = Vec::new();
    stream.take(MAX_RESPONSE_BYTES).read_to_end(&mut response)?;
    Ok(String::from_utf8_lossy(&response).into_owned())
}

fn location(response: &str) -> Option<&str> {
    let head = response.split("\r\n\r\n").next()?;
    let line = head.lines().find(|line| line.to_ascii_lowercase().starts_with("location:"))?;
    line.split_once(':').map(|(_, value)| value.trim())
}
