//! The headers of a modern request, checked against its body.
//!
//! Spec 2026-07-28, transports: the body is the truth, and a header that is missing or says something else makes
//! the request a bad one.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::{HeaderMap, HeaderName};
use toolrack_mcp::{Arguments, ErrorCode, Method, Mirror};
use toolrack_transport::JsonRpcError;

use crate::encode::invalid_request;
use crate::params::Params;

pub(crate) const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
pub(crate) const HTTP_SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
pub(crate) const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");
const PARAM_PREFIX: &str = "mcp-param-";

/// The header in which a modern client may say how many milliseconds its request may take in all. It holds instead
/// of what the config says of the server.
pub const TIMEOUT_HEADER: &str = "toolrack-timeout-ms";

/// The one value of a header. Several, or one that is no text, are none.
pub(crate) fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

/// How long a request may take, if its client says so.
pub(crate) fn patience(headers: &HeaderMap) -> Result<Option<Duration>, JsonRpcError> {
    let name = HeaderName::from_static(TIMEOUT_HEADER);
    if !headers.contains_key(&name) {
        return Ok(None);
    }
    let said = single(headers, &name).and_then(|it| it.parse::<NonZeroU64>().ok());
    let said = said.map(|it| Duration::from_millis(it.get()));
    let fault = || invalid_request(&format!("`{TIMEOUT_HEADER}` is no number of milliseconds"));
    said.ok_or_else(fault).map(Some)
}

/// Whether the headers say what the body says.
pub(crate) fn check(
    headers: &HeaderMap,
    method: &str,
    params: &Params<'_>,
    version: &str,
) -> Result<(), JsonRpcError> {
    agree(headers, &PROTOCOL_VERSION, version)?;
    agree(headers, &METHOD, method)?;
    let subject = match Method::parse(method) {
        Some(Method::CallTool | Method::GetPrompt) => params.name.as_deref(),
        Some(Method::ReadResource) => params.uri.as_deref(),
        _ => None,
    };
    subject.map_or(Ok(()), |subject| agree(headers, &NAME, subject))
}

/// Whether the arguments that a tool wants beside the message are there, and no others.
pub(crate) fn check_mirror(
    headers: &HeaderMap,
    mirror: &Mirror,
    params: &Params<'_>,
) -> Result<(), JsonRpcError> {
    let mut expected = BTreeMap::new();
    if let Some(arguments) = params.arguments {
        mirror.tell(Arguments::Raw(arguments), &mut |name, value| {
            expected
                .insert(format!("{PARAM_PREFIX}{}", name.to_ascii_lowercase()), value.to_owned());
        });
    }
    let stray = headers
        .keys()
        .map(HeaderName::as_str)
        .find(|name| mirror_names(mirror).any(|it| it == *name) && !expected.contains_key(*name));
    if let Some(name) = stray {
        return Err(mismatch(&format!("`{name}` is not in the body")));
    }
    for (name, value) in &expected {
        let name = HeaderName::try_from(name).map_err(|_fault| mismatch("a header cannot be"))?;
        agree(headers, &name, value)?;
    }
    Ok(())
}

fn mirror_names(mirror: &Mirror) -> impl Iterator<Item = String> + '_ {
    mirror.headers().map(|it| format!("{PARAM_PREFIX}{}", it.to_ascii_lowercase()))
}

fn agree(headers: &HeaderMap, name: &HeaderName, expected: &str) -> Result<(), JsonRpcError> {
    let said = single(headers, name);
    let said = said.ok_or_else(|| mismatch(&format!("`{name}` is missing or there twice")))?;
    match decoded(said) {
        Some(value) if value == expected => Ok(()),
        _ => Err(mismatch(&format!("`{name}` does not match the body"))),
    }
}

/// Spec 2026-07-28, transports §Value Encoding.
fn decoded(value: &str) -> Option<Cow<'_, str>> {
    let Some(inner) = value.strip_prefix("=?base64?").and_then(|it| it.strip_suffix("?=")) else {
        return Some(Cow::Borrowed(value));
    };
    String::from_utf8(BASE64_STANDARD.decode(inner).ok()?).ok().map(Cow::Owned)
}

pub(crate) fn mismatch(what: &str) -> JsonRpcError {
    JsonRpcError::new(ErrorCode::HEADER_MISMATCH.0, format!("Header mismatch: {what}"))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use serde_json::value::RawValue;

    use super::*;

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
    fn check_case(pairs: &[(&'static str, &str)], body: &str, expected: Result<(), i64>) {
        let params = Params::read(Some(body.as_bytes())).unwrap();
        let checked = check(&headers(pairs), "tools/call", &params, "2026-07-28");
        assert_eq!(checked.map_err(|it| it.code), expected, "{pairs:?} {body}");
    }

    #[test]
    fn a_client_may_say_how_long_it_waits() {
        let check = |said: &[&str], expected: Result<Option<u64>, i64>| {
            let pairs: Vec<_> = said.iter().map(|it| (TIMEOUT_HEADER, *it)).collect();
            let patience = patience(&headers(&pairs)).map_err(|it| it.code);
            assert_eq!(patience, expected.map(|it| it.map(Duration::from_millis)), "{said:?}");
        };
        check(&[], Ok(None));
        check(&["2500"], Ok(Some(2500)));
        for bad in ["", "0", "-1", "2s", "99999999999999999999"] {
            check(&[bad], Err(-32600));
        }
        check(&["1", "2"], Err(-32600));
    }

    #[test]
    fn headers_have_to_say_what_the_body_says() {
        let version = ("mcp-protocol-version", "2026-07-28");
        let method = ("mcp-method", "tools/call");
        let body = r#"{"name":"add"}"#;
        check_case(&[version, method, ("mcp-name", "add")], body, Ok(()));
        check_case(&[version, method, ("mcp-name", "=?base64?YWRk?=")], body, Ok(()));
        check_case(&[version, method, ("mcp-name", "Add")], body, Err(-32020));
        check_case(&[version, method], body, Err(-32020));
        check_case(&[version, method, ("mcp-name", "add"), ("mcp-name", "add")], body, Err(-32020));
        check_case(
            &[version, ("mcp-method", "tools/list"), ("mcp-name", "add")],
            body,
            Err(-32020),
        );
        check_case(&[method, ("mcp-name", "add")], body, Err(-32020));
        check_case(&[version, method, ("mcp-name", "=?base64?/w==?=")], body, Err(-32020));
        check_case(&[version, method], "{}", Ok(()));
    }

    #[test]
    fn arguments_beside_the_message_are_checked() {
        let schema =
            r#"{"type":"object","properties":{"r":{"type":"string","x-mcp-header":"Region"}}}"#;
        let schema = RawValue::from_string(schema.to_owned()).unwrap();
        let mirror = Mirror::of(&schema).unwrap().unwrap();
        let case = |pairs: &[(&'static str, &str)], arguments: &str, is_fine: bool| {
            let body = format!(r#"{{"arguments":{arguments}}}"#);
            let params = Params::read(Some(body.as_bytes())).unwrap();
            let checked = check_mirror(&headers(pairs), &mirror, &params);
            assert_eq!(checked.is_ok(), is_fine, "{pairs:?} {arguments}");
        };
        case(&[("mcp-param-region", "eu")], r#"{"r":"eu"}"#, true);
        case(&[("mcp-param-region", "us")], r#"{"r":"eu"}"#, false);
        case(&[], r#"{"r":"eu"}"#, false);
        case(&[], "{}", true);
        case(&[("mcp-param-region", "eu")], "{}", false);
    }
}
