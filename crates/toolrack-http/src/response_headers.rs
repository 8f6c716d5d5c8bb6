//! What the head of an answer says: about its body, and beyond that.

use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue};

/// What a body is, and how it is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Content {
    pub(crate) kind: Kind,
    pub(crate) packing: Packing,
}

/// Headers that somebody may ask for. Most answers have none of them, and need no memory for them.
#[derive(Debug, Default)]
pub(crate) struct Remarks(Option<Box<HeaderMap>>);

/// What kind of answer is promised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Kind {
    Json,
    Events,
    #[default]
    Other,
}

/// How it is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Packing {
    #[default]
    None,
    Gzip,
    /// Something we did not ask for.
    Unknown,
}

impl Content {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let value = |name| headers.get(name).map(HeaderValue::as_bytes);
        Self {
            kind: value(CONTENT_TYPE).map(Kind::read).unwrap_or_default(),
            packing: value(CONTENT_ENCODING).map(Packing::read).unwrap_or_default(),
        }
    }
}

impl Remarks {
    pub(crate) fn add(&mut self, name: &HeaderName, value: HeaderValue) {
        self.0.get_or_insert_default().append(name, value);
    }

    /// The first one of this name.
    pub(crate) fn get(&self, name: &HeaderName) -> Option<&HeaderValue> {
        self.0.as_ref()?.get(name)
    }

    /// All of this name.
    pub(crate) fn all(&self, name: &HeaderName) -> impl Iterator<Item = &HeaderValue> {
        self.0.iter().flat_map(move |headers| headers.get_all(name))
    }
}

impl From<HeaderMap> for Remarks {
    fn from(headers: HeaderMap) -> Self {
        Self(Some(Box::new(headers)))
    }
}

impl Kind {
    /// Takes the value of `Content-Type`.
    pub(crate) fn read(value: &[u8]) -> Self {
        let end = value.iter().position(|byte| *byte == b';').unwrap_or(value.len());
        let essence = value.get(..end).unwrap_or_default().trim_ascii();
        if essence.eq_ignore_ascii_case(b"application/json") {
            return Kind::Json;
        }
        let is_stream = essence.eq_ignore_ascii_case(b"text/event-stream");
        if is_stream { Kind::Events } else { Kind::Other }
    }
}

impl Packing {
    /// Takes the value of `Content-Encoding`.
    pub(crate) fn read(value: &[u8]) -> Self {
        if value.eq_ignore_ascii_case(b"identity") {
            return Packing::None;
        }
        if value.eq_ignore_ascii_case(b"gzip") { Packing::Gzip } else { Packing::Unknown }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(content_type: &str, expected: Kind) {
        assert_eq!(Kind::read(content_type.as_bytes()), expected, "{content_type}");
    }

    #[test]
    fn kinds_are_told_without_their_parameters() {
        check("application/json", Kind::Json);
        check("Application/JSON; charset=utf-8", Kind::Json);
        check(" application/json ;x", Kind::Json);
        check("text/event-stream;charset=utf-8", Kind::Events);
        check("application/json-seq", Kind::Other);
        check("text/html", Kind::Other);
        check("", Kind::Other);
    }

    #[test]
    fn only_what_was_asked_for_is_unpacked() {
        for (value, expected) in [
            ("identity", Packing::None),
            ("GZIP", Packing::Gzip),
            ("br", Packing::Unknown),
            ("gzip, br", Packing::Unknown),
            ("", Packing::Unknown),
        ] {
            assert_eq!(Packing::read(value.as_bytes()), expected, "{value}");
        }
        assert_eq!(Content::of(&HeaderMap::new()), Content::default());
    }
}
