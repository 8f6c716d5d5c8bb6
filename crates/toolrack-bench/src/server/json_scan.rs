//! JSON scanner that finds members of an object in one pass, without decoding.
//!
//! The input is trusted, because measured clients write it; invalid JSON yields no members.

use memchr::memchr;
use memchr::memmem::Finder;

/// A JSON-RPC request or notification. Values are raw JSON.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Request<'a> {
    pub(crate) id: Option<&'a [u8]>,
    pub(crate) method: &'a [u8],
    pub(crate) params: &'a [u8],
}

impl<'a> Request<'a> {
    pub(crate) fn parse(line: &'a [u8]) -> Self {
        let mut request = Self::default();
        for (key, value) in members(line) {
            match key {
                b"id" => request.id = Some(value),
                b"method" => request.method = unquote(value),
                b"params" => request.params = value,
                _ => {}
            }
        }
        request
    }
}

/// Finds the id of a call of `echo` by substring search.
///
/// No measured client has another member named `id` in a request. Otherwise the response would carry the wrong id and
/// the run would fail visibly.
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
        id.get(..value_len(id))
    }
}

/// Raw value of a member.
pub(crate) fn member<'a>(object: &'a [u8], wanted: &[u8]) -> Option<&'a [u8]> {
    members(object).find(|(key, _)| *key == wanted).map(|(_, value)| value)
}

/// String value without its quotes; escapes stay.
pub(crate) fn unquote(value: &[u8]) -> &[u8] {
    value.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")).unwrap_or(value)
}

/// Number value, or 0.
pub(crate) fn number(value: &[u8]) -> usize {
    std::str::from_utf8(value).ok().and_then(|utf8| utf8.parse().ok()).unwrap_or(0)
}

fn members(object: &[u8]) -> Members<'_> {
    Members { rest: object.trim_ascii_start().strip_prefix(b"{").unwrap_or_default() }
}

struct Members<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Members<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let quote = memchr(b'"', self.rest)?;
        let from_key = self.rest.get(quote..)?;
        let (key, after_key) = from_key.split_at_checked(value_len(from_key))?;
        let colon = memchr(b':', after_key)?;
        let from_value = after_key.get(colon + 1..)?.trim_ascii_start();
        let (value, rest) = from_value.split_at_checked(value_len(from_value))?;
        self.rest = rest;
        Some((unquote(key), value))
    }
}

/// Length of the value at the start of `text`.
fn value_len(text: &[u8]) -> usize {
    let mut depth = 0usize;
    let mut in_string = false;
    let mut escaped = false;
    for (index, byte) in text.iter().enumerate() {
        match (in_string, byte) {
            (true, _) if escaped => escaped = false,
            (true, b'\\') => escaped = true,
            (true, b'"') => {
                in_string = false;
                if depth == 0 {
                    return index + 1;
                }
            }
            (false, b'"') => in_string = true,
            (false, b'{' | b'[') => depth += 1,
            (false, b'}' | b']' | b',' | b' ') if depth == 0 => return index,
            (false, b'}' | b']') if depth == 1 => return index + 1,
            (false, b'}' | b']') => depth -= 1,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, id: Option<&str>, method: &str, params: &str) {
        let expected = Request {
            id: id.map(str::as_bytes),
            method: method.as_bytes(),
            params: params.as_bytes(),
        };
        assert_eq!(Request::parse(line.as_bytes()), expected);
    }

    #[test]
    fn members_are_found_in_any_order() {
        check(
            r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo"}}"#,
            Some("7"),
            "tools/call",
            r#"{"name":"echo"}"#,
        );
        check(r#"{"method":"ping","id":"a\"b","jsonrpc":"2.0"}"#, Some(r#""a\"b""#), "ping", "");
        check(
            r#"{ "params" : {"id":1,"method":"no","x":[{"y":"}]"}]} , "id" : -3 , "method" : "m" }"#,
            Some("-3"),
            "m",
            r#"{"id":1,"method":"no","x":[{"y":"}]"}]}"#,
        );
    }

    #[test]
    fn notification_has_no_id() {
        check(r#"{"method":"notifications/initialized"}"#, None, "notifications/initialized", "");
    }

    #[test]
    fn non_object_has_no_members() {
        check("", None, "", "");
        check("[1,2]", None, "", "");
        check(r#"{"id"#, None, "", "");
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
        let params = br#"{"_meta":{"progressToken":0},"name":"big","arguments":{"n":64}}"#;
        let n =
            member(params, b"arguments").and_then(|arguments| member(arguments, b"n")).map(number);
        assert_eq!(n, Some(64));
        assert_eq!(member(params, b"missing"), None);
    }
}
