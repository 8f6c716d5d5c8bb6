//! Checks of HTTP request headers: `Host` and `Origin`, and the MCP headers that must match the body.
//!
//! Spec 2026-07-28, transports: the body is authoritative, and a header that is missing or differs makes the request
//! invalid.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::header::{HOST, ORIGIN};
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, HeaderName};
use toolrack_mcp::{Arguments, ErrorCode, Method, ParamHeaders};
use toolrack_transport::JsonRpcError;

use crate::encode::invalid_request;
use crate::params::Params;

pub(crate) const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
pub(crate) const HTTP_SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
pub(crate) const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");
const PARAM_PREFIX: &str = "mcp-param-";

/// Header with which a modern client sets the total timeout of its request in milliseconds. It replaces the configured
/// timeout of the server.
pub const TIMEOUT_HEADER: &str = "toolrack-timeout-ms";

/// Why [`check_host_and_origin`] refuses a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForbiddenHeader {
    /// `Host` does not name this machine.
    Host,
    /// The request comes from a web page of another site.
    Origin,
}

/// DNS rebinding protection: a web page can send requests to this machine under a host name of its own, and such a
/// request carries that name. Accepts only names of this machine that do not depend on DNS, in `Host` and, if present,
/// in `Origin`.
///
/// With `own_port`, both must have exactly this port and the spelling that a program hands out: `127.1`, `LOCALHOST` or
/// a padded port are refused, and so is an `https` origin. Without it, any port will do.
pub fn check_host_and_origin(head: &Parts, own_port: Option<u16>) -> Result<(), ForbiddenHeader> {
    let is_own = |authority: &str| is_own_authority(authority, own_port);
    let (headers, authority) = (&head.headers, head.uri.authority().map(Authority::as_str));
    // HTTP/2 has the host in `:authority`. A request line in absolute form has an authority besides `Host`, which takes
    // precedence, so both are checked.
    let host = if headers.contains_key(HOST) { single_value(headers, &HOST) } else { authority };
    if !host.is_some_and(is_own) || !authority.is_none_or(is_own) {
        return Err(ForbiddenHeader::Host);
    }
    if !headers.contains_key(ORIGIN) {
        return Ok(());
    }
    // Fails for `null` too, which sandboxed frames and local files send.
    match single_value(headers, &ORIGIN).and_then(|origin| origin.split_once("://")) {
        Some(("http", authority)) if is_own(authority) => Ok(()),
        Some(("https", authority)) if own_port.is_none() && is_own(authority) => Ok(()),
        _ => Err(ForbiddenHeader::Origin),
    }
}

fn is_own_authority(authority: &str, own_port: Option<u16>) -> bool {
    let names = ["localhost", "127.0.0.1", "[::1]"];
    let (name, port) = match authority.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => (name, Some(port)),
        _ => (authority, None),
    };
    match own_port {
        Some(own_port) => names.contains(&name) && port == Some(own_port.to_string().as_str()),
        None => {
            let is_valid_port = port.is_none_or(|port| port.parse::<u16>().is_ok());
            is_valid_port && names.iter().any(|own_name| name.eq_ignore_ascii_case(own_name))
        }
    }
}

/// The value of a header. `None` if it is missing, repeated or not text: which of two values counts depends on the
/// program that reads them.
pub fn single_value<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

/// The value of [`TIMEOUT_HEADER`].
pub(crate) fn request_timeout(headers: &HeaderMap) -> Result<Option<Duration>, JsonRpcError> {
    let name = HeaderName::from_static(TIMEOUT_HEADER);
    if !headers.contains_key(&name) {
        return Ok(None);
    }
    let value = single_value(headers, &name);
    let millis = value.and_then(|value| value.parse::<NonZeroU64>().ok());
    let timeout = millis.map(|millis| Duration::from_millis(millis.get()));
    let error =
        || invalid_request(&format!("`{TIMEOUT_HEADER}` is not a valid number of milliseconds"));
    timeout.ok_or_else(error).map(Some)
}

/// Checks that version, method and name in the headers match the body.
pub(crate) fn check_mcp_headers(
    headers: &HeaderMap,
    method: &str,
    params: &Params,
) -> Result<(), JsonRpcError> {
    require(headers, &PROTOCOL_VERSION, &params.required_meta_version()?)?;
    require(headers, &METHOD, method)?;
    let name = match Method::parse(method) {
        Some(Method::CallTool | Method::GetPrompt) => params.name.as_deref(),
        Some(Method::ReadResource) => params.uri.as_deref(),
        _ => None,
    };
    name.map_or(Ok(()), |name| require(headers, &NAME, name))
}

/// Checks the `Mcp-Param-*` headers: all arguments that the tool wants in headers are there, and no others.
pub(crate) fn check_param_headers(
    headers: &HeaderMap,
    param_headers: &ParamHeaders,
    params: &Params,
) -> Result<(), JsonRpcError> {
    let mut expected = BTreeMap::new();
    if let Some(arguments) = &params.arguments {
        param_headers.for_each(Arguments::Raw(arguments), &mut |name, value| {
            expected.insert(param_header_name(name), value.to_owned());
        });
    }
    let is_unexpected = |name: &&str| {
        let mut names = param_headers.headers();
        names.any(|declared| param_header_name(declared) == *name) && !expected.contains_key(*name)
    };
    if let Some(name) = headers.keys().map(HeaderName::as_str).find(is_unexpected) {
        return Err(header_mismatch(&format!("`{name}` is not in the body")));
    }
    for (name, value) in &expected {
        let invalid = |_error| header_mismatch(&format!("`{name}` is not a valid header name"));
        let name = HeaderName::try_from(name).map_err(invalid)?;
        require(headers, &name, value)?;
    }
    Ok(())
}

fn param_header_name(name: &str) -> String {
    format!("{PARAM_PREFIX}{}", name.to_ascii_lowercase())
}

fn require(headers: &HeaderMap, name: &HeaderName, expected: &str) -> Result<(), JsonRpcError> {
    let value = single_value(headers, name);
    let value =
        value.ok_or_else(|| header_mismatch(&format!("`{name}` is missing or repeated")))?;
    match decode_value(value) {
        Some(value) if value == expected => Ok(()),
        _ => Err(header_mismatch(&format!("`{name}` does not match the body"))),
    }
}

/// Spec 2026-07-28, transports §Value Encoding.
fn decode_value(value: &str) -> Option<Cow<'_, str>> {
    let encoded = value.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?="));
    let Some(encoded) = encoded else { return Some(Cow::Borrowed(value)) };
    String::from_utf8(BASE64_STANDARD.decode(encoded).ok()?).ok().map(Cow::Owned)
}

fn header_mismatch(reason: &str) -> JsonRpcError {
    JsonRpcError::new(ErrorCode::HEADER_MISMATCH.0, format!("Header mismatch: {reason}"))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use serde_json::value::RawValue;

    use super::*;

    #[track_caller]
    fn check_access(host: Option<&str>, origin: Option<&str>, expected: Result<(), ()>) {
        let mut headers = HeaderMap::new();
        let mut insert = |name, value: Option<&str>| {
            value.map(|value| headers.insert(name, HeaderValue::from_str(value).unwrap()));
        };
        insert(HOST, host);
        insert(ORIGIN, origin);
        let (mut head, ()) = http::Request::new(()).into_parts();
        head.headers = headers;
        let checked = check_host_and_origin(&head, None);
        assert_eq!(checked.map_err(drop), expected, "{host:?} {origin:?}");
    }

    #[test]
    fn only_loopback_hosts_and_origins_are_accepted() {
        check_access(Some("localhost:3000"), None, Ok(()));
        check_access(Some("LOCALHOST"), None, Ok(()));
        check_access(Some("127.0.0.1:1"), Some("http://localhost:5173"), Ok(()));
        check_access(Some("[::1]:80"), Some("https://[::1]"), Ok(()));
        check_access(Some("evil.example"), None, Err(()));
        check_access(Some("evil.example:3000"), Some("http://localhost"), Err(()));
        check_access(Some("localhost"), Some("http://evil.example"), Err(()));
        check_access(Some("localhost.evil.example"), None, Err(()));
        check_access(Some("127.0.0.1.evil.example"), None, Err(()));
        check_access(Some("localhost:evil"), None, Err(()));
        check_access(Some("localhost"), Some("null"), Err(()));
        check_access(Some("localhost"), Some("file://localhost"), Err(()));
        check_access(None, None, Err(()));
    }

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let pairs = pairs.iter().map(|(name, value)| {
            (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
        });
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(name, value);
        }
        map
    }

    #[track_caller]
    fn check(pairs: &[(&'static str, &str)], body: &str, expected: Result<(), i64>) {
        let meta = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}"#;
        let body = format!("{{{meta}{body}}}");
        let params = Params::parse(Some(body.as_bytes())).unwrap();
        let checked = check_mcp_headers(&headers(pairs), "tools/call", &params);
        assert_eq!(checked.map_err(|error| error.code), expected, "{pairs:?} {body}");
    }

    #[test]
    fn timeout_header_is_parsed() {
        let check = |values: &[&str], expected: Result<Option<u64>, i64>| {
            let pairs: Vec<_> = values.iter().map(|value| (TIMEOUT_HEADER, *value)).collect();
            let timeout = request_timeout(&headers(&pairs)).map_err(|error| error.code);
            let expected = expected.map(|millis| millis.map(Duration::from_millis));
            assert_eq!(timeout, expected, "{values:?}");
        };
        check(&[], Ok(None));
        check(&["2500"], Ok(Some(2500)));
        for invalid in ["", "0", "-1", "2s", "99999999999999999999"] {
            check(&[invalid], Err(-32600));
        }
        check(&["1", "2"], Err(-32600));
    }

    #[test]
    fn headers_must_match_the_body() {
        let version = ("mcp-protocol-version", "2026-07-28");
        let method = ("mcp-method", "tools/call");
        let body = r#","name":"add""#;
        check(&[version, method, ("mcp-name", "add")], body, Ok(()));
        check(&[version, method, ("mcp-name", "=?base64?YWRk?=")], body, Ok(()));
        check(&[version, method, ("mcp-name", "Add")], body, Err(-32020));
        check(&[version, method], body, Err(-32020));
        check(&[version, method, ("mcp-name", "add"), ("mcp-name", "add")], body, Err(-32020));
        check(&[version, ("mcp-method", "tools/list"), ("mcp-name", "add")], body, Err(-32020));
        check(&[method, ("mcp-name", "add")], body, Err(-32020));
        check(&[version, method, ("mcp-name", "=?base64?/w==?=")], body, Err(-32020));
        check(&[version, method], "", Ok(()));
    }

    #[test]
    fn param_headers_must_match_the_arguments() {
        let schema =
            r#"{"type":"object","properties":{"r":{"type":"string","x-mcp-header":"Region"}}}"#;
        let schema = RawValue::from_string(schema.to_owned()).unwrap();
        let param_headers = ParamHeaders::from_schema(&schema).unwrap().unwrap();
        let check = |pairs: &[(&'static str, &str)], arguments: &str, is_valid: bool| {
            let body = format!(r#"{{"arguments":{arguments}}}"#);
            let params = Params::parse(Some(body.as_bytes())).unwrap();
            let checked = check_param_headers(&headers(pairs), &param_headers, &params);
            assert_eq!(checked.is_ok(), is_valid, "{pairs:?} {arguments}");
        };
        check(&[("mcp-param-region", "eu")], r#"{"r":"eu"}"#, true);
        check(&[("mcp-param-region", "us")], r#"{"r":"eu"}"#, false);
        check(&[], r#"{"r":"eu"}"#, false);
        check(&[], "{}", true);
        check(&[("mcp-param-region", "eu")], "{}", false);
    }
}
