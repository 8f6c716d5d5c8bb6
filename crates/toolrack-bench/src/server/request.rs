//! Requests of the benchmark servers. A call of `echo` is found by substring search, everything else is parsed.

use std::borrow::Cow;

use memchr::memchr;
use memchr::memmem::Finder;
use serde::Deserialize;
use serde_json::value::RawValue;

/// A JSON-RPC request or notification. Invalid JSON is an empty notification.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Request<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(crate) method: Cow<'a, str>,
    #[serde(default)]
    pub(crate) params: CallParams,
}

/// Parameters of `tools/call`; absent in other requests.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct CallParams {
    pub(crate) name: String,
    pub(crate) arguments: Arguments,
}

#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Arguments {
    /// Length of the text.
    pub(crate) n: usize,
    pub(crate) escapes: bool,
}

impl<'a> Request<'a> {
    pub(crate) fn parse(line: &'a [u8]) -> Self {
        serde_json::from_slice(line).unwrap_or_default()
    }

    /// The id as raw JSON; `None` for a notification.
    pub(crate) fn id(&self) -> Option<&'a [u8]> {
        self.id.map(|id| id.get().as_bytes())
    }
}

/// Finds the id of a call of `echo` by substring search, to spend as little CPU time as possible.
///
/// No measured client has another member named `id` in a request, or a quote inside of an id. Otherwise the response
/// would carry the wrong id and the run would fail visibly.
#[derive(Debug)]
pub(crate) struct EchoMatcher {
    echo: Finder<'static>,
    id: Finder<'static>,
}

impl EchoMatcher {
    const ID: &[u8] = br#""id":"#;

    pub(crate) fn new() -> Self {
        Self { echo: Finder::new(br#""name":"echo""#), id: Finder::new(Self::ID) }
    }

    pub(crate) fn echo_id<'a>(&self, line: &'a [u8]) -> Option<&'a [u8]> {
        self.echo.find(line)?;
        let id = line.get(self.id.find(line)? + Self::ID.len()..)?.trim_ascii_start();
        let end = match id.strip_prefix(b"\"") {
            Some(text) => memchr(b'"', text)? + 2,
            None => id.iter().position(|byte| matches!(byte, b',' | b'}' | b' '))?,
        };
        id.get(..end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, id: Option<&str>, method: &str, n: usize) {
        let request = Request::parse(line.as_bytes());
        let found = (request.id(), &*request.method, request.params.arguments.n);
        assert_eq!(found, (id.map(str::as_bytes), method, n), "{line}");
    }

    #[test]
    fn members_are_found_in_any_order() {
        let call = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo"}}"#;
        check(call, Some("7"), "tools/call", 0);
        check(r#"{"method":"ping","id":"a\"b","jsonrpc":"2.0"}"#, Some(r#""a\"b""#), "ping", 0);
        check(
            r#"{ "params" : {"id":1,"method":"no","x":[{"y":"}]"}]} , "id" : -3 , "method" : "m" }"#,
            Some("-3"),
            "m",
            0,
        );
    }

    #[test]
    fn notification_has_no_id() {
        check(r#"{"method":"notifications/initialized"}"#, None, "notifications/initialized", 0);
    }

    #[test]
    fn non_object_has_no_members() {
        check("", None, "", 0);
        check("[1,2]", None, "", 0);
        check(r#"{"id"#, None, "", 0);
    }

    #[test]
    fn echo_call_is_matched_by_name() {
        let echo_matcher = EchoMatcher::new();
        let echo = br#"{"id":"a,1","method":"tools/call","params":{"name":"echo"}}"#;
        assert_eq!(echo_matcher.echo_id(echo), Some(br#""a,1""#.as_slice()));
        let numbered = br#"{"params":{"name":"echo"},"id":17}"#;
        assert_eq!(echo_matcher.echo_id(numbered), Some(b"17".as_slice()));
        let slow = br#"{"id":1,"method":"tools/call","params":{"name":"slow"}}"#;
        assert_eq!(echo_matcher.echo_id(slow), None);
    }

    #[test]
    fn nested_members_are_found() {
        let params = r#"{"_meta":{"progressToken":0},"name":"big","arguments":{"n":64}}"#;
        let call = format!(r#"{{"id":1,"method":"tools/call","params":{params}}}"#);
        check(&call, Some("1"), "tools/call", 64);
        assert_eq!(Request::parse(call.as_bytes()).params.name, "big");
    }
}
