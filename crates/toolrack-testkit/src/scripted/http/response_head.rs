//! Heads of HTTP responses, with the wrong content types of a plan.

use std::time::Duration;

use crate::http;
use crate::plan::{ContentKind, RedirectTarget};

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
        self.text(content_type, wrong, &[("content-length", &n_bytes.to_string())])
    }

    pub(super) fn with_chunks(&self, content_type: &str, wrong: Option<ContentKind>) -> Vec<u8> {
        let framing = [("cache-control", "no-cache"), ("transfer-encoding", "chunked")];
        self.text(content_type, wrong, &framing)
    }

    /// Response with this status and body.
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
        [&self.with_length(content_type, None, body.len()), body].concat()
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

    fn text(
        &self,
        content_type: &str,
        wrong: Option<ContentKind>,
        framing: &[(&str, &str)],
    ) -> Vec<u8> {
        let content_type = match wrong {
            None => content_type,
            Some(ContentKind::None) => "",
            Some(ContentKind::Text | ContentKind::Html) => "text/plain",
        };
        let content_type =
            Some(("content-type", content_type)).filter(|(_, kind)| !kind.is_empty());
        let own = self.headers.iter().map(|(name, value)| (*name, value.as_str()));
        http::head(self.status, content_type.into_iter().chain(own).chain(framing.iter().copied()))
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
}
