//! Response headers: content type, content encoding, and the few other headers that are kept.

use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue};

/// Type and encoding of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ContentInfo {
    pub(crate) kind: BodyKind,
    pub(crate) encoding: ContentEncoding,
}

/// Headers that are kept. Most responses have none of them and allocate nothing.
#[derive(Debug, Default)]
pub(crate) struct ResponseHeaders(Option<Box<HeaderMap>>);

/// Media type of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum BodyKind {
    Json,
    EventStream,
    #[default]
    Other,
}

/// Content encoding of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum ContentEncoding {
    #[default]
    Identity,
    Gzip,
    /// Not requested in `Accept-Encoding`.
    Unsupported,
}

impl ContentInfo {
    pub(crate) fn from_headers(headers: &HeaderMap) -> Self {
        let value = |name| headers.get(name).map(HeaderValue::as_bytes);
        Self {
            kind: value(CONTENT_TYPE).map(BodyKind::from_content_type).unwrap_or_default(),
            encoding: value(CONTENT_ENCODING).map(ContentEncoding::from_header).unwrap_or_default(),
        }
    }
}

impl ResponseHeaders {
    pub(crate) fn add(&mut self, name: &HeaderName, value: HeaderValue) {
        self.0.get_or_insert_default().append(name, value);
    }

    /// First value of `name`.
    pub(crate) fn get(&self, name: &HeaderName) -> Option<&HeaderValue> {
        self.0.as_ref()?.get(name)
    }

    /// All values of `name`.
    pub(crate) fn all(&self, name: &HeaderName) -> impl Iterator<Item = &HeaderValue> {
        self.0.iter().flat_map(move |headers| headers.get_all(name))
    }
}

impl From<HeaderMap> for ResponseHeaders {
    fn from(headers: HeaderMap) -> Self {
        Self(Some(Box::new(headers)))
    }
}

impl BodyKind {
    /// Parses `Content-Type`.
    pub(crate) fn from_content_type(value: &[u8]) -> Self {
        let end = value.iter().position(|byte| *byte == b';').unwrap_or(value.len());
        let essence = value.get(..end).unwrap_or_default().trim_ascii();
        if essence.eq_ignore_ascii_case(b"application/json") {
            return BodyKind::Json;
        }
        let is_stream = essence.eq_ignore_ascii_case(b"text/event-stream");
        if is_stream { BodyKind::EventStream } else { BodyKind::Other }
    }
}

impl ContentEncoding {
    /// Parses `Content-Encoding`.
    pub(crate) fn from_header(value: &[u8]) -> Self {
        if value.eq_ignore_ascii_case(b"identity") {
            return ContentEncoding::Identity;
        }
        if value.eq_ignore_ascii_case(b"gzip") {
            ContentEncoding::Gzip
        } else {
            ContentEncoding::Unsupported
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(content_type: &str, expected: BodyKind) {
        assert_eq!(
            BodyKind::from_content_type(content_type.as_bytes()),
            expected,
            "{content_type}"
        );
    }

    #[test]
    fn content_type_parameters_are_ignored() {
        check("application/json", BodyKind::Json);
        check("Application/JSON; charset=utf-8", BodyKind::Json);
        check(" application/json ;x", BodyKind::Json);
        check("text/event-stream;charset=utf-8", BodyKind::EventStream);
        check("application/json-seq", BodyKind::Other);
        check("text/html", BodyKind::Other);
        check("", BodyKind::Other);
    }

    #[test]
    fn only_gzip_and_identity_are_supported() {
        for (value, expected) in [
            ("identity", ContentEncoding::Identity),
            ("GZIP", ContentEncoding::Gzip),
            ("br", ContentEncoding::Unsupported),
            ("gzip, br", ContentEncoding::Unsupported),
            ("", ContentEncoding::Unsupported),
        ] {
            assert_eq!(ContentEncoding::from_header(value.as_bytes()), expected, "{value}");
        }
        assert_eq!(ContentInfo::from_headers(&HeaderMap::new()), ContentInfo::default());
    }
}
