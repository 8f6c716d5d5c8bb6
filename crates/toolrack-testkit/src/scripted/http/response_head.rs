//! The heads of HTTP replies, as text.

use std::fmt::Write;
use std::time::Duration;

use crate::plan::{Kind, Target};

const PAGE: &str =
    "<!doctype html><title>Log in</title><p>Accept the terms of this network to go on.";

/// What the head of a reply will say besides what its body needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) status: u16,
    pub(super) headers: Vec<(&'static str, String)>,
    /// The URL that was asked for, and the same under another origin.
    pub(super) here: String,
    pub(super) there: String,
}

impl Head {
    pub(super) fn new(here: String, there: String) -> Self {
        Self { status: 200, headers: Vec::new(), here, there }
    }

    /// The head of a body of known length; an empty content type is left out.
    pub(super) fn with_length(
        &self,
        content_type: &str,
        wrong: Option<Kind>,
        n_bytes: usize,
    ) -> Vec<u8> {
        self.text(content_type, wrong, &format!("content-length: {n_bytes}"))
    }

    pub(super) fn with_chunks(&self, content_type: &str, wrong: Option<Kind>) -> Vec<u8> {
        self.text(content_type, wrong, "cache-control: no-cache\r\ntransfer-encoding: chunked")
    }

    /// A web page, as a portal puts it in the place of any answer.
    pub(super) fn page(&self) -> Vec<u8> {
        let mut reply = self.with_length("text/html; charset=utf-8", None, PAGE.len());
        reply.extend_from_slice(PAGE.as_bytes());
        reply
    }

    /// A status, with the body if there is one.
    pub(super) fn bare(
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
        let mut reply = self.with_length(content_type, None, body.len());
        reply.extend_from_slice(body);
        reply
    }

    pub(super) fn redirect(&mut self, status: u16, to: Target) -> Vec<u8> {
        self.status = status;
        let location = match to {
            Target::Same => "/mcp/moved".to_owned(),
            Target::Other => self.there.clone(),
            Target::Loop => self.here.clone(),
        };
        self.headers.push(("location", location));
        self.with_length("", None, 0)
    }

    fn text(&self, content_type: &str, wrong: Option<Kind>, framing: &str) -> Vec<u8> {
        let mut text = format!("HTTP/1.1 {} {}\r\n", self.status, reason(self.status));
        let content_type = match wrong {
            None => content_type,
            Some(Kind::None) => "",
            Some(Kind::Text | Kind::Html) => "text/plain",
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

/// One chunk of a body; nothing for no bytes, since an empty chunk would be the end.
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

    fn head() -> Head {
        Head::new("http://a/mcp".to_owned(), "http://b/mcp".to_owned())
    }

    #[track_caller]
    fn check(reply: Vec<u8>, expected: &str) {
        assert_eq!(String::from_utf8_lossy(&reply), expected);
    }

    #[test]
    fn heads_say_what_the_body_is_unless_planned_otherwise() {
        let json = "application/json";
        check(
            head().with_length(json, None, 2),
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n",
        );
        check(
            head().with_length(json, Some(Kind::Text), 2),
            "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 2\r\n\r\n",
        );
        check(
            head().with_length(json, Some(Kind::None), 2),
            "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n",
        );
    }

    #[test]
    fn refusals_carry_what_belongs_to_their_status() {
        check(
            head().bare(503, Some(Duration::from_secs(2)), b""),
            "HTTP/1.1 503 Service Unavailable\r\nretry-after: 2\r\ncontent-length: 0\r\n\r\n",
        );
        check(
            head().bare(401, None, b"{}"),
            "HTTP/1.1 401 Unauthorized\r\ncontent-type: application/json\r\n\
             www-authenticate: Bearer realm=\"scripted\"\r\ncontent-length: 2\r\n\r\n{}",
        );
        check(
            head().redirect(307, Target::Other),
            "HTTP/1.1 307 Elsewhere\r\nlocation: http://b/mcp\r\ncontent-length: 0\r\n\r\n",
        );
    }

    #[test]
    fn a_chunk_of_nothing_is_nothing() {
        check(chunk(b""), "");
        check(chunk(b"0123456789abcdef!"), "11\r\n0123456789abcdef!\r\n");
    }
}
