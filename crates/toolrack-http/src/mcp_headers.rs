//! The headers of the protocol: their names, and how a value is written that a header cannot hold.

use std::borrow::Cow;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::{HeaderName, HeaderValue};

pub(crate) const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
pub(crate) const METHOD: HeaderName = HeaderName::from_static("mcp-method");
pub(crate) const NAME: HeaderName = HeaderName::from_static("mcp-name");
pub(crate) const HTTP_SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
pub(crate) const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const PARAM_PREFIX: &str = "mcp-param-";
const RESERVED_PREFIX: &str = "mcp-";

const SENTINEL_START: &str = "=?base64?";
const SENTINEL_END: &str = "?=";

/// Headers that are ours to set, beside those of the protocol.
const RESERVED: [&str; 16] = [
    "accept",
    "accept-encoding",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "keep-alive",
    "last-event-id",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Whether a config must leave this header alone.
pub(crate) fn is_reserved(name: &HeaderName) -> bool {
    name.as_str().starts_with(RESERVED_PREFIX) || RESERVED.contains(&name.as_str())
}

/// The header that mirrors the argument `name`, if that can be the name of a header.
pub(crate) fn param_name(name: &str) -> Option<HeaderName> {
    let full = format!("{PARAM_PREFIX}{name}");
    HeaderName::try_from(full).ok()
}

/// Spec 2026-07-28, transports §Value Encoding: what is not plain ASCII goes as Base64 between markers.
pub(crate) fn encoded(value: &str) -> Cow<'_, str> {
    if is_plain(value) {
        return Cow::Borrowed(value);
    }
    let base64 = BASE64_STANDARD.encode(value);
    Cow::Owned(format!("{SENTINEL_START}{base64}{SENTINEL_END}"))
}

/// Spec 2025-11-25, transports §Session Management: visible ASCII only. Never shown to anybody.
pub(crate) fn http_session_id(value: &HeaderValue) -> Option<HeaderValue> {
    let bytes = value.as_bytes();
    if bytes.is_empty() || !bytes.iter().all(u8::is_ascii_graphic) {
        return None;
    }
    let mut value = value.clone();
    value.set_sensitive(true);
    Some(value)
}

/// An empty value is not plain, because some proxies drop headers without one.
fn is_plain(value: &str) -> bool {
    let looks_encoded = value.starts_with(SENTINEL_START) && value.ends_with(SENTINEL_END);
    let has_edge = value.starts_with(' ') || value.ends_with(' ');
    // Without a branch inside, so that the compiler looks at many bytes at once.
    let odd = |byte: u8| u8::from(byte < 0x20) | u8::from(byte > 0x7e);
    let is_printable = value.bytes().fold(0, |seen, byte| seen | odd(byte)) == 0;
    !value.is_empty() && is_printable && !has_edge && !looks_encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(value: &str, expected: &str) {
        assert_eq!(encoded(value), expected, "{value:?}");
    }

    #[test]
    fn values_that_a_header_cannot_hold_are_encoded() {
        check("us-west1", "us-west1");
        check("Hello World", "Hello World");
        check("file:///a%20b?c=d", "file:///a%20b?c=d");
        check("~!\"#", "~!\"#");
        check("", "=?base64??=");
        check(" edge", "=?base64?IGVkZ2U=?=");
        check("edge ", "=?base64?ZWRnZSA=?=");
        check("tab\there", "=?base64?dGFiCWhlcmU=?=");
        check("a\r\nb", "=?base64?YQ0KYg==?=");
        check("日本", "=?base64?5pel5pys?=");
        check("\u{7f}", "=?base64?fw==?=");
        check("=?base64?aGk=?=", "=?base64?PT9iYXNlNjQ/YUdrPT89?=");
        check("=?base64?x", "=?base64?x");
    }

    #[test]
    fn arguments_are_mirrored_under_their_names() {
        assert_eq!(param_name("Region").unwrap(), "mcp-param-region");
        assert_eq!(param_name("a.b|c~").unwrap(), "mcp-param-a.b|c~");
        assert_eq!(param_name("no space"), None);
        assert_eq!(param_name("käse"), None);
    }

    #[test]
    fn headers_of_the_protocol_are_reserved() {
        for name in ["host", "mcp-session-id", "mcp-param-x", "content-type", "last-event-id"] {
            assert!(is_reserved(&HeaderName::from_static(name)), "{name}");
        }
        for name in ["authorization", "x-api-key", "user-agent", "cookie", "mcpx"] {
            assert!(!is_reserved(&HeaderName::from_static(name)), "{name}");
        }
    }

    #[test]
    fn a_session_id_is_visible_ascii_and_stays_unseen() {
        let id = http_session_id(&HeaderValue::from_static("abc-~!")).unwrap();
        assert_eq!(format!("{id:?}"), "Sensitive");
        for odd in ["", "a b", "a\tb"] {
            assert_eq!(http_session_id(&HeaderValue::from_static(odd)), None, "{odd:?}");
        }
        assert_eq!(http_session_id(&HeaderValue::from_bytes(b"\xe4").unwrap()), None);
    }
}
