//! MCP request headers: their names, the encoding of their values, and the set that one message carries.

use std::borrow::Cow;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::{HeaderName, HeaderValue};
use toolrack_transport::{Params, ProtocolMode};

/// Protocol version that introduced the header `MCP-Protocol-Version`.
const FIRST_WITH_VERSION_HEADER: &str = "2025-06-18";

/// MCP headers of one message. Allocates only in rare cases.
#[derive(Clone, Default)]
pub(crate) struct RequestHeaders<'a> {
    version: Option<&'static str>,
    method: Option<Cow<'a, str>>,
    name: Option<Cow<'a, str>>,
    arguments: Vec<(HeaderName, String)>,
    pub(crate) http_session_id: Option<HeaderValue>,
    pub(crate) last_event_id: Option<Box<[u8]>>,
}

impl<'a> RequestHeaders<'a> {
    /// Spec 2026-07-28, transports §Request Headers.
    pub(crate) fn for_stateless(
        version: &'static str,
        method: &'a str,
        name: Option<&'a str>,
    ) -> Self {
        Self {
            version: Some(version),
            method: Some(encode_value(method)),
            name: name.map(encode_value),
            ..Self::default()
        }
    }

    /// Headers of every message in a session.
    pub(crate) fn for_session(mode: ProtocolMode, http_session_id: Option<HeaderValue>) -> Self {
        let version = match mode {
            // Versions are dates, so they compare as text.
            ProtocolMode::Session(version) if version >= FIRST_WITH_VERSION_HEADER => Some(version),
            _ => None,
        };
        Self { version, http_session_id, ..Self::default() }
    }

    /// Adds `Last-Event-ID`, unless it cannot be a header value.
    pub(crate) fn with_last_event_id(self, last_event_id: Option<&[u8]>) -> Self {
        let is_header_value = |id: &&[u8]| HeaderValue::from_bytes(id).is_ok();
        let last_event_id = last_event_id.filter(is_header_value).map(Box::from);
        Self { last_event_id, ..self }
    }

    /// Adds the arguments that the tool marks with `x-mcp-header`.
    pub(crate) fn add_param_headers(&mut self, params: &dyn Params) {
        params.header_params(&mut |name, value| match param_name(name) {
            Some(name) => self.arguments.push((name, encode_value(value).into_owned())),
            None => tracing::debug!(name, "an argument name is not a valid header name"),
        });
    }

    /// Calls `visit` with the name and value of every header.
    pub(crate) fn for_each(&self, mut visit: impl FnMut(&HeaderName, &[u8])) {
        if let Some(version) = self.version {
            visit(&PROTOCOL_VERSION, version.as_bytes());
        }
        if let Some(method) = &self.method {
            visit(&METHOD, method.as_bytes());
        }
        if let Some(name) = &self.name {
            visit(&NAME, name.as_bytes());
        }
        for (name, value) in &self.arguments {
            visit(name, value.as_bytes());
        }
        if let Some(id) = &self.http_session_id {
            visit(&HTTP_SESSION_ID, id.as_bytes());
        }
        if let Some(id) = &self.last_event_id {
            visit(&LAST_EVENT_ID, id);
        }
    }
}

pub(crate) const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
pub(crate) const METHOD: HeaderName = HeaderName::from_static("mcp-method");
pub(crate) const NAME: HeaderName = HeaderName::from_static("mcp-name");
pub(crate) const HTTP_SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
pub(crate) const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

const SENTINEL_START: &str = "=?base64?";
const SENTINEL_END: &str = "?=";

/// Headers that the HTTP layer sets, besides those that start with `mcp-`.
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

/// Whether a config must not set this header.
pub(crate) fn is_reserved(name: &HeaderName) -> bool {
    name.as_str().starts_with("mcp-") || RESERVED.contains(&name.as_str())
}

/// Header that repeats the argument `name`, if that is a valid header name.
pub(crate) fn param_name(name: &str) -> Option<HeaderName> {
    HeaderName::try_from(format!("mcp-param-{name}")).ok()
}

/// Spec 2026-07-28, transports §Value Encoding: values other than plain ASCII go as Base64 between markers.
pub(crate) fn encode_value(value: &str) -> Cow<'_, str> {
    if needs_no_encoding(value) {
        return Cow::Borrowed(value);
    }
    let base64 = BASE64_STANDARD.encode(value);
    Cow::Owned(format!("{SENTINEL_START}{base64}{SENTINEL_END}"))
}

/// Spec 2025-11-25, transports §Session Management: visible ASCII only. Marked sensitive, so that logs do not
/// show it.
pub(crate) fn parse_session_id(value: &HeaderValue) -> Option<HeaderValue> {
    let bytes = value.as_bytes();
    if bytes.is_empty() || !bytes.iter().all(u8::is_ascii_graphic) {
        return None;
    }
    let mut value = value.clone();
    value.set_sensitive(true);
    Some(value)
}

/// An empty value is encoded too, because some proxies drop headers without a value.
fn needs_no_encoding(value: &str) -> bool {
    // A plain value that looks encoded would be decoded by the server.
    let looks_encoded = value.starts_with(SENTINEL_START) && value.ends_with(SENTINEL_END);
    let has_outer_space = value.starts_with(' ') || value.ends_with(' ');
    // No branch inside the loop, so that the compiler vectorizes it.
    let not_printable = |byte: u8| u8::from(byte < 0x20) | u8::from(byte > 0x7e);
    let is_printable = value.bytes().fold(0, |seen, byte| seen | not_printable(byte)) == 0;
    !value.is_empty() && is_printable && !has_outer_space && !looks_encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(headers: &RequestHeaders<'_>, expected: &[&str]) {
        let mut text = Vec::new();
        headers.for_each(|name, value| text.push(format!("{name}: {}", value.escape_ascii())));
        assert_eq!(text, expected);
    }

    #[test]
    fn version_header_starts_with_2025_06_18() {
        let session = |mode| RequestHeaders::for_session(mode, None);
        check(&session(ProtocolMode::Initialize), &[]);
        check(&session(ProtocolMode::Session("2024-11-05")), &[]);
        check(&session(ProtocolMode::Session("2025-03-26")), &[]);
        check(&session(ProtocolMode::Session("2025-06-18")), &["mcp-protocol-version: 2025-06-18"]);
        check(&session(ProtocolMode::Session("2025-11-25")), &["mcp-protocol-version: 2025-11-25"]);
    }

    #[test]
    fn last_event_id_header_is_sent_on_resume() {
        let id = Some(HeaderValue::from_static("s1"));
        let headers = RequestHeaders::for_session(ProtocolMode::Session("2025-03-26"), id);
        check(&headers.clone().with_last_event_id(None), &["mcp-session-id: s1"]);
        check(
            &headers.clone().with_last_event_id(Some(b"7")),
            &["mcp-session-id: s1", "last-event-id: 7"],
        );
        check(&headers.with_last_event_id(Some(b"a\nb")), &["mcp-session-id: s1"]);
    }

    /// Configured headers are sent together with these, so no name may be in both sets.
    #[test]
    fn protocol_headers_are_reserved() {
        let id = Some(HeaderValue::from_static("s1"));
        let mut headers = RequestHeaders::for_stateless("2026-07-28", "tools/call", Some("x"));
        headers.http_session_id = id;
        headers.arguments = vec![(param_name("region").unwrap(), "x".to_owned())];
        let mut n_headers = 0;
        headers.with_last_event_id(Some(b"7")).for_each(|name, _| {
            assert!(is_reserved(name), "{name}");
            n_headers += 1;
        });
        assert_eq!(n_headers, 6);
    }

    #[test]
    fn x_mcp_header_arguments_are_sent_as_headers() {
        struct Call;
        impl Params for Call {
            fn write(&self, _id: u64, _out: &mut Vec<u8>) -> Result<(), serde_json::Error> {
                Ok(())
            }
            fn header_params(&self, tell: &mut dyn FnMut(&str, &str)) {
                tell("Region", "us west");
                tell("no name", "lost");
            }
        }
        let mut headers = RequestHeaders::for_stateless("2026-07-28", "tools/call", Some("käse"));
        headers.add_param_headers(&Call);
        let expected = [
            "mcp-protocol-version: 2026-07-28",
            "mcp-method: tools/call",
            "mcp-name: =?base64?a8Okc2U=?=",
            "mcp-param-region: us west",
        ];
        check(&headers, &expected);
    }
}

#[cfg(test)]
mod encoding_tests {
    use super::*;

    #[track_caller]
    fn check(value: &str, expected: &str) {
        assert_eq!(encode_value(value), expected, "{value:?}");
    }

    #[test]
    fn non_ascii_header_values_are_base64_encoded() {
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
    fn param_header_is_named_after_the_argument() {
        assert_eq!(param_name("Region").unwrap(), "mcp-param-region");
        assert_eq!(param_name("a.b|c~").unwrap(), "mcp-param-a.b|c~");
        assert_eq!(param_name("no space"), None);
        assert_eq!(param_name("käse"), None);
    }

    #[test]
    fn config_cannot_set_reserved_headers() {
        for name in ["host", "mcp-session-id", "mcp-param-x", "content-type", "last-event-id"] {
            assert!(is_reserved(&HeaderName::from_static(name)), "{name}");
        }
        for name in ["authorization", "x-api-key", "user-agent", "cookie", "mcpx"] {
            assert!(!is_reserved(&HeaderName::from_static(name)), "{name}");
        }
    }

    #[test]
    fn session_id_is_visible_ascii_and_sensitive() {
        let id = parse_session_id(&HeaderValue::from_static("abc-~!")).unwrap();
        assert_eq!(format!("{id:?}"), "Sensitive");
        for not_printable in ["", "a b", "a\tb"] {
            assert_eq!(
                parse_session_id(&HeaderValue::from_static(not_printable)),
                None,
                "{not_printable:?}"
            );
        }
        assert_eq!(parse_session_id(&HeaderValue::from_bytes(b"\xe4").unwrap()), None);
    }
}
