//! Fuzz target of client messages. docs/internal/fuzzing.md says how to run it.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use serde_json::Value;

use crate::http::{PostKind, classify};
use crate::params::{ClientMessage, Contents, Incoming};

type FuzzTarget = (&'static str, fn(&[u8]));

/// Name and function of every target.
pub const TARGETS: &[FuzzTarget] = &[("gateway_request", gateway_request)];

/// A body is one message or a batch of them, and is classified as its JSON says.
fn gateway_request(data: &[u8]) {
    let [options, body @ ..] = data else { return };
    let incoming = Incoming::parse(&Bytes::copy_from_slice(body));
    let value = serde_json::from_slice::<Value>(body).ok();
    if incoming.is_batch {
        assert!(body.trim_ascii_start().starts_with(b"["));
        assert!(value.as_ref().is_none_or(|value| {
            value.as_array().is_some_and(|items| items.len() == incoming.messages.len())
        }));
    } else {
        assert_eq!(incoming.messages.len(), 1);
    }
    for message in &incoming.messages {
        check_message(message, value.as_ref().filter(|_| !incoming.is_batch));
    }
    // Only one revision has batches.
    if incoming.is_batch {
        assert_eq!(incoming.contents(None), Contents::Malformed);
    }
    let kind = classify(&headers(*options), &incoming);
    // Invalid UTF-8 in an unknown member is no `Value`, but the envelope does not look at it.
    let is_initialize = value.as_ref().is_none_or(|value| value["method"] == "initialize");
    assert!(!matches!(kind, PostKind::Initialize) || is_initialize);
    assert!(!matches!(kind, PostKind::Session(_)) || options & 4 != 0);
}

fn headers(options: u8) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let versions = ["2025-03-26", "2025-11-25", "2026-07-28"];
    if let Some(version) = versions.get(usize::from(options & 3)) {
        headers.insert("mcp-protocol-version", HeaderValue::from_static(version));
    }
    if options & 4 != 0 {
        headers.insert("mcp-session-id", HeaderValue::from_static("s1"));
    }
    headers
}

fn check_message(message: &ClientMessage, value: Option<&Value>) {
    let member = |name: &str| value.and_then(|value| value.get(name));
    let is_method = |method: &str| member("method").is_none_or(|value| value == method);
    match message {
        ClientMessage::Request(request) => {
            assert!(is_method(&request.method));
            let is_object =
                member("params").is_none_or(|params| params.is_object() || params.is_null());
            assert!(is_object || request.params.is_err());
            if let Ok(params) = &request.params {
                let (_version, _name) = (params.meta_version(), params.required_name());
                let (_uri, _inputs) = (params.required_uri(), params.to_input_responses());
            }
        }
        ClientMessage::Notification { method, .. } => assert!(is_method(method)),
        ClientMessage::Response { .. } => {
            assert!(member("method").is_none_or(Value::is_null));
        }
        ClientMessage::Malformed { error, .. } => assert!(error.code < 0),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn fuzz_targets_hold() {
        toolrack_fuzz::check_targets(super::TARGETS);
    }
}
