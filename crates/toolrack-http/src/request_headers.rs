//! What is said about a message beside it: the headers of the protocol.

use std::borrow::Cow;

use http::{HeaderName, HeaderValue};
use toolrack_transport::Dialect;
use toolrack_transport::Params;

use crate::mcp_headers as header;

/// The header `MCP-Protocol-Version` came with this version of the protocol.
const FIRST_WITH_VERSION_HEADER: &str = "2025-06-18";

/// The headers of one message. Most messages need no memory of their own for them.
#[derive(Clone, Default)]
pub(crate) struct Beside<'a> {
    version: Option<&'static str>,
    method: Option<Cow<'a, str>>,
    subject: Option<Cow<'a, str>>,
    arguments: Vec<(HeaderName, String)>,
    http_session_id: Option<HeaderValue>,
    last_event_id: Option<Box<[u8]>>,
}

impl<'a> Beside<'a> {
    /// Spec 2026-07-28, transports §Request Headers.
    pub(crate) fn stateless(
        version: &'static str,
        method: &'a str,
        subject: Option<&'a str>,
    ) -> Self {
        Self {
            version: Some(version),
            method: Some(header::encoded(method)),
            subject: subject.map(header::encoded),
            ..Self::default()
        }
    }

    /// What every message of a session has.
    pub(crate) fn session(dialect: Dialect, http_session_id: Option<HeaderValue>) -> Self {
        let version = match dialect {
            Dialect::Session(version) if version >= FIRST_WITH_VERSION_HEADER => Some(version),
            _ => None,
        };
        Self { version, http_session_id, ..Self::default() }
    }

    /// The same for a stream that goes on behind this event, if there was one.
    pub(crate) fn resumed(self, last_event_id: Option<&[u8]>) -> Self {
        let can_be_said = |id: &&[u8]| HeaderValue::from_bytes(id).is_ok();
        let last_event_id = last_event_id.filter(can_be_said).map(Box::from);
        Self { last_event_id, ..self }
    }

    /// Adds the arguments that are repeated in headers.
    pub(crate) fn mirror(&mut self, params: &dyn Params) {
        params.mirror(&mut |name, value| match header::param_name(name) {
            Some(name) => self.arguments.push((name, header::encoded(value).into_owned())),
            None => tracing::debug!(name, "an argument cannot be said in a header"),
        });
    }

    /// Whether it says where a stream broke off.
    pub(crate) fn resumes(&self) -> bool {
        self.last_event_id.is_some()
    }

    pub(crate) fn names_session(&self) -> bool {
        self.http_session_id.is_some()
    }

    /// Gives the name and the value of every header.
    pub(crate) fn each(&self, mut each: impl FnMut(&HeaderName, &[u8])) {
        if let Some(version) = self.version {
            each(&header::PROTOCOL_VERSION, version.as_bytes());
        }
        if let Some(method) = &self.method {
            each(&header::METHOD, method.as_bytes());
        }
        if let Some(subject) = &self.subject {
            each(&header::NAME, subject.as_bytes());
        }
        for (name, value) in &self.arguments {
            each(name, value.as_bytes());
        }
        if let Some(id) = &self.http_session_id {
            each(&header::HTTP_SESSION_ID, id.as_bytes());
        }
        if let Some(id) = &self.last_event_id {
            each(&header::LAST_EVENT_ID, id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(beside: &Beside<'_>, expected: &[&str]) {
        let mut shown = Vec::new();
        beside.each(|name, value| shown.push(format!("{name}: {}", value.escape_ascii())));
        assert_eq!(shown, expected);
    }

    #[test]
    fn the_version_is_said_where_servers_know_it() {
        let session = |dialect| Beside::session(dialect, None);
        check(&session(Dialect::Greeting), &[]);
        check(&session(Dialect::Session("2024-11-05")), &[]);
        check(&session(Dialect::Session("2025-03-26")), &[]);
        check(&session(Dialect::Session("2025-06-18")), &["mcp-protocol-version: 2025-06-18"]);
        check(&session(Dialect::Session("2025-11-25")), &["mcp-protocol-version: 2025-11-25"]);
    }

    #[test]
    fn a_stream_goes_on_where_it_broke_off() {
        let id = Some(HeaderValue::from_static("s1"));
        let beside = Beside::session(Dialect::Session("2025-03-26"), id);
        check(&beside.clone().resumed(None), &["mcp-session-id: s1"]);
        check(&beside.clone().resumed(Some(b"7")), &["mcp-session-id: s1", "last-event-id: 7"]);
        check(&beside.resumed(Some(b"a\nb")), &["mcp-session-id: s1"]);
    }

    /// What a config may set is sent beside these, so nothing may be both.
    #[test]
    fn no_config_can_set_what_is_said_here() {
        let id = Some(HeaderValue::from_static("s1"));
        let mut beside = Beside::stateless("2026-07-28", "tools/call", Some("x"));
        beside.http_session_id = id;
        beside.arguments = vec![(header::param_name("region").unwrap(), "x".to_owned())];
        let mut n_headers = 0;
        beside.resumed(Some(b"7")).each(|name, _| {
            assert!(header::is_reserved(name), "{name}");
            n_headers += 1;
        });
        assert_eq!(n_headers, 6);
    }

    #[test]
    fn parameters_are_mirrored_in_headers() {
        struct Call;
        impl Params for Call {
            fn write(&self, _id: u64, _out: &mut Vec<u8>) -> Result<(), serde_json::Error> {
                Ok(())
            }
            fn mirror(&self, tell: &mut dyn FnMut(&str, &str)) {
                tell("Region", "us west");
                tell("no name", "lost");
            }
        }
        let mut beside = Beside::stateless("2026-07-28", "tools/call", Some("käse"));
        beside.mirror(&Call);
        let expected = [
            "mcp-protocol-version: 2026-07-28",
            "mcp-method: tools/call",
            "mcp-name: =?base64?a8Okc2U=?=",
            "mcp-param-region: us west",
        ];
        check(&beside, &expected);
    }
}
