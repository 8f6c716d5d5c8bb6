//! Heads of HTTP responses.

use std::fmt::Write;
use std::time::Duration;

use crate::plan::{ContentKind, RedirectTarget};

const PAGE: &str =
    "<!doctype html><title>Log in</title><p>Accept the terms of this network to go on.";

/// Status and headers of a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ResponseHead {
    pub(super) status: u16,
    pub(super) headers: Vec<(&'static str, String)>,
    /// The requested URL, and the same on another origin.
    pub(super) url: String,
    pub(super) other_origin_url: String,
}

impl ResponseHead {
    pub(super) fn new(url: String, other_origin_url: String) -> Self {
        Self { status: 200, headers: Vec::new(), url, other_origin_url }
    }

    /// Head with a content length; an empty content type is left out.
    pub(super) fn with_length(
        &self,
        content_type: &str,
        wrong: Option<ContentKind>,
        n_bytes: usize,
    ) -> Vec<u8> {
        self.text(content_type, wrong, &format!("content-length: {n_bytes}"))
    }

    pub(super) fn with_chunks(&self, content_type: &str, wrong: Option<ContentKind>) -> Vec<u8> {
        self.text(content_type, wrong, "cache-control: no-cache\r\ntransfer-encoding: chunked")
    }

    /// HTML page, like that of a captive portal.
    pub(super) fn page(&self) -> Vec<u8> {
        let mut response = self.with_length("text/html; charset=utf-8", None, PAGE.len());
        response.extend_from_slice(PAGE.as_bytes());
        response
    }

    /// Status with an optional body.
    pub(super) fn with_status(
        &mut self,
        status: u16,
        retry_after: Option<Duration>,
        body: &[u8],
    ) -> Vec<u8> {
        self.status = status;
        if let Some(wait) = retry_after {
            self.headers.push(("retry-after", wait.as_secs().to_string()));
        }
        if status == 401 {
            self.headers.push(("www-authenticate", "Bearer realm=\"scripted\"".to_owned()));
        }
        let content_type = if body.is_empty() { "" } else { "application/json" };
        let mut response = self.with_length(content_type, None, body.len());
        response.extend_from_slice(body);
        response
    }

    pub(super) fn redirect(&mut self, status: u16, to: RedirectTarget) -> Vec<u8> {
        self.status = status;
        let location = match to {
            RedirectTarget::Same => "/mcp/moved".to_owned(),
            RedirectTarget::Other => self.other_origin_url.clone(),
            RedirectTarget::Loop => self.url.clone(),
        };
        self.headers.push(("location", location));
        self.with_length("", None, 0)
    }

    fn text(&self, content_type: &str, wrong: Option<ContentKind>, framing: &str) -> Vec<u8> {
        let mut text = format!("HTTP/1.1 {} {}\r\n", self.status, reason(self.status));
        let content_type = match wrong {
            None => content_type,
            Some(ContentKind::None) => "",
            Some(ContentKind::Text | ContentKind::Html) => "text/plain",
        };
        if !content_type.is_empty() {
            // Writing to a string cannot fail, here and below.
            write!(text, "content-type: {content_type}\r\n").unwrap_or_default();
        }
        for (name, value) in &self.headers {
            write!(text, "{name}: {value}\r\n").unwrap_or_default();
        }
        write!(text, "{framing}\r\n\r\n").unwrap_or_default();
        text.into_bytes()
    }
}

/// Encodes one chunk; empty input gives nothing, since an empty chunk ends the body.
pub(super) fn chunk(bytes: &[u8]) -> Vec<u8> {
    if bytes.is_empty() {
        return Vec::new();
    }
    let size = format!("{:x}\r\n", bytes.len());
    [size.as_bytes(), bytes, b"\r\n"].concat()
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        202 => "Accepted",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        415 => "Unsupported Media Type",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        503 => "Service Unavailable",
        300..=399 => "Elsewhere",
        _ => "Planned",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head() -> ResponseHead {
        ResponseHead::new("http://a/mcp".to_owned(), "http://b/mcp".to_owned())
    }

    #[track_caller]
    fn check(response: Vec<u8>, expected: &str) {
        assert_eq!(String::from_utf8_lossy(&response), expected);
    }

    #[test]
    fn response_head_has_the_content_type_unless_planned_otherwise() {
        let json = "application/json";
        check(
            head().with_length(json, None, 2),
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n",
        );
        check(
            head().with_length(json, Some(ContentKind::Text), 2),
            "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 2\r\n\r\n",
        );
        check(
            head().with_length(json, Some(ContentKind::None), 2),
            "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n",
        );
    }

    #[test]
    fn error_statuses_have_their_headers() {
        check(
            head().with_status(503, Some(Duration::from_secs(2)), b""),
            "HTTP/1.1 503 Service Unavailable\r\nretry-after: 2\r\ncontent-length: 0\r\n\r\n",
        );
        check(
            head().with_status(401, None, b"{}"),
            "HTTP/1.1 401 Unauthorized\r\ncontent-type: application/json\r\n\
             www-authenticate: Bearer realm=\"scripted\"\r\ncontent-length: 2\r\n\r\n{}",
        );
        check(
            head().redirect(307, RedirectTarget::Other),
            "HTTP/1.1 307 Elsewhere\r\nlocation: http://b/mcp\r\ncontent-length: 0\r\n\r\n",
        );
    }

    #[test]
    fn empty_chunk_encodes_to_nothing() {
        check(chunk(b""), "");
        check(chunk(b"0123456789abcdef!"), "11\r\n0123456789abcdef!\r\n");
    }
}
