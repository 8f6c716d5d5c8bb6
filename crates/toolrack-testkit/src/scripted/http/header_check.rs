//! Header checks of 2026-07-28: headers must match the body.
//!
//! **Invariant:** the body decides. A header that is missing, repeated or different is a mismatch.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::http::Request;
use crate::jsonrpc::{Incoming, Params, RpcError, error_code};
use crate::scripted::header_tools;

const VERSION: &str = "mcp-protocol-version";

/// Compares the headers of a request with its body.
pub(super) fn check(request: &Request, message: &Incoming<'_>) -> Result<(), RpcError> {
    let (Some(method), Some(_)) = (&message.method, message.id) else { return Ok(()) };
    // A legacy client gets a version error, which tells more than missing headers.
    if method == "initialize" {
        return Ok(());
    }
    // Invalid params are rejected later.
    let Ok(params) = Params::parse(message.params) else { return Ok(()) };
    if let Some(version) = &params.meta.protocol_version {
        compare(request, VERSION, Some(version))?;
    } else if request.header(VERSION).is_none() {
        return Err(mismatch(VERSION, "is missing"));
    }
    compare(request, "mcp-method", Some(method))?;
    let name = match method.as_ref() {
        "tools/call" | "prompts/get" => params.name.as_deref(),
        "resources/read" => params.uri.as_deref(),
        _ => return Ok(()),
    };
    compare(request, "mcp-name", name)?;
    if method != "tools/call" {
        return Ok(());
    }
    let arguments = params.arguments().0;
    for (header, path) in header_tools::mirrored_headers(name.unwrap_or_default()) {
        let value = path.iter().try_fold(&arguments, |value, key| value.get(key));
        let expected = match value {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) => Some(text.clone()),
            Some(other) => Some(other.to_string()),
        };
        compare(request, &format!("mcp-param-{header}"), expected.as_deref())?;
    }
    Ok(())
}

fn compare(request: &Request, header: &str, expected: Option<&str>) -> Result<(), RpcError> {
    if request.count(header) > 1 {
        return Err(mismatch(header, "is repeated"));
    }
    let given = request.header(header).map(decode);
    match (given, expected) {
        (None, None) => Ok(()),
        (Some(Some(given)), Some(expected)) if given == expected => Ok(()),
        (None, Some(_)) => Err(mismatch(header, "is missing")),
        (Some(_), None) => Err(mismatch(header, "says what the body does not")),
        (Some(_), Some(_)) => Err(mismatch(header, "differs from the body")),
    }
}

fn mismatch(header: &str, how: &str) -> RpcError {
    RpcError::new(error_code::HEADER_MISMATCH, format!("the header `{header}` {how}"))
}

/// Header value as text, decoded from the base64 sentinel; `None` if that is invalid.
fn decode(value: &str) -> Option<String> {
    let inside = value.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?="));
    let Some(inside) = inside else { return Some(value.to_owned()) };
    String::from_utf8(STANDARD.decode(inside).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_call(headers: &[(&str, &str)], params: &str, expected: Option<&str>) {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let request = Request { headers: headers.collect(), ..Request::default() };
        let text = format!(r#"{{"id":1,"method":"tools/call","params":{params}}}"#);
        let message: Incoming<'_> = serde_json::from_str(&text).expect("a message");
        let rpc_error = check(&request, &message).err();
        assert_eq!(rpc_error.as_ref().map(|rpc_error| rpc_error.message.as_str()), expected);
        assert!(rpc_error.is_none_or(|rpc_error| rpc_error.code == -32020));
    }

    const ECHO: &str =
        r#"{"name":"echo","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}"#;
    const V: (&str, &str) = (VERSION, "2026-07-28");
    const M: (&str, &str) = ("mcp-method", "tools/call");

    #[test]
    fn headers_must_match_the_body() {
        check_call(&[V, M, ("mcp-name", "echo")], ECHO, None);
        check_call(&[V, M, ("mcp-name", "=?base64?ZWNobw==?=")], ECHO, None);
        check_call(&[V, M], ECHO, Some("the header `mcp-name` is missing"));
        check_call(&[V, ("mcp-name", "echo")], ECHO, Some("the header `mcp-method` is missing"));
        check_call(
            &[V, M, ("mcp-name", "Echo")],
            ECHO,
            Some("the header `mcp-name` differs from the body"),
        );
        check_call(&[V, V, M], ECHO, Some("the header `mcp-protocol-version` is repeated"));
        check_call(
            &[(VERSION, "2025-11-25"), M],
            ECHO,
            Some("the header `mcp-protocol-version` differs from the body"),
        );
        check_call(&[M], "{}", Some("the header `mcp-protocol-version` is missing"));
    }

    #[test]
    fn annotated_arguments_are_mirrored() {
        let check = |arguments: &str, headers: &[(&str, &str)], expected: Option<&str>| {
            let meta = r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}"#;
            let params = format!(r#"{{"name":"routed","arguments":{arguments},"_meta":{meta}}}"#);
            check_call(&[&[V, M, ("mcp-name", "routed")], headers].concat(), &params, expected);
        };
        check("{}", &[], None);
        check(r#"{"region":null,"note":"x"}"#, &[], None);
        check(
            r#"{"region":"eu west","count":3,"dry_run":false,"target":{"zone":"z"}}"#,
            &[
                ("mcp-param-region", "eu west"),
                ("mcp-param-count", "3"),
                ("mcp-param-dry-run", "false"),
                ("mcp-param-zone", "z"),
            ],
            None,
        );
        check(r#"{"region":"é"}"#, &[("mcp-param-region", "=?base64?w6k=?=")], None);
        check(r#"{"region":"a"}"#, &[], Some("the header `mcp-param-region` is missing"));
        check(
            "{}",
            &[("mcp-param-region", "a")],
            Some("the header `mcp-param-region` says what the body does not"),
        );
    }
}
