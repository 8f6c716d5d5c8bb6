//! Fuzz targets of client messages and of questions to clients. docs/internal/fuzzing.md says how to run it.

use std::fmt;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;
use toolrack_transport::{JsonRpcError, RawJson, strip_hidden_json};

use crate::encode::without_hidden_text;
use crate::http::{PostKind, classify};
use crate::params::{ClientMessage, Contents, Incoming};
use crate::question::{InputRequired, InputReview, Review, review, review_url_error};

type FuzzTarget = (&'static str, fn(&[u8]));

/// Name and function of every target.
pub const TARGETS: &[FuzzTarget] = &[("gateway_request", gateway_request), ("question", question)];

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
    for (position, message) in incoming.messages.iter().enumerate() {
        let value = value.as_ref();
        let item = if incoming.is_batch { value.and_then(|all| all.get(position)) } else { value };
        check_message(message, item);
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
        ClientMessage::Response { outcome, .. } => {
            // The fast path knows a response by its ends, and leaves an invalid result to its reader.
            let is_valid = outcome.as_ref().map_or(true, |raw| raw.as_raw_value().is_ok());
            assert!(!is_valid || member("method").is_none_or(Value::is_null));
        }
        ClientMessage::Malformed { error, .. } => {
            // JSON that is no message is an invalid request, and all else a parse error.
            let expected: &[i64] = if value.is_some() { &[-32600] } else { &[-32600, -32700] };
            assert!(expected.contains(&error.code), "{error:?}");
        }
    }
}

/// No question shows another address than a web address, whichever of repeated members a client reads. The first byte
/// says how the question arrives, and whether the gateway names its servers.
fn question(data: &[u8]) {
    let [options, body @ ..] = data else { return };
    let server = (options & 1 == 0).then_some("s");
    match options >> 1 & 3 {
        0 => check_server_request(body, server),
        1 => check_result(body, server),
        _ => check_url_error(body, server),
    }
}

fn check_server_request(body: &[u8], server: Option<&str>) {
    let params = RawJson::new(body.to_vec());
    if let Ok(Review::Forward(params)) = review(ELICIT, Some(&params), server) {
        let params = params.map(RawJson::into_bytes).unwrap_or_default();
        assert!(strip_hidden_json(&params).is_none());
        check_question(parsed(&params).unwrap_or(RawValue::NULL), server);
    }
}

/// No result that a client may read as `input_required` is forwarded without a review.
fn check_result(body: &[u8], server: Option<&str>) {
    let raw = RawJson::new(body.to_vec());
    let shown = without_hidden_text(raw.clone());
    let Ok(asked) = InputRequired::read(&raw, &shown) else { return };
    let Some(asked) = asked else {
        for json in [&raw, &shown].into_iter().filter_map(|raw| raw.as_raw_value().ok()) {
            let types = values_at(json, &["resultType"]);
            let is_input_required = types.into_iter().any(|raw| is_text(raw, "input_required"));
            let has_requests = !values_at(json, &["inputRequests"]).is_empty();
            assert!(!is_input_required || !has_requests);
        }
        return;
    };
    let Ok(InputReview::Forward(result, _n_questions)) = asked.review(server) else { return };
    let result = result.as_raw_value().unwrap_or(RawValue::NULL);
    for request in values_at(result, &["inputRequests", "*"]) {
        if values_at(request, &["method"]).into_iter().any(|raw| is_text(raw, ELICIT)) {
            let params = values_at(request, &["params"]);
            for params in params {
                check_question(params, server);
            }
        }
    }
}

fn check_url_error(body: &[u8], server: Option<&str>) {
    let data = serde_json::from_slice(body).ok();
    let error = JsonRpcError { data, ..JsonRpcError::new(-32042, "open") };
    let Ok((error, n_pages)) = review_url_error(error, server) else { return };
    let data = error.data.map(|data| data.to_string()).unwrap_or_default();
    let pages = parsed(data.as_bytes()).map(|data| values_at(data, &["elicitations", "*"]));
    let pages = pages.unwrap_or_default();
    assert_eq!(u32::try_from(pages.len()), Ok(n_pages));
    for page in pages {
        check_question(page, server);
    }
}

/// A question shows only web addresses, and the name of its server. Of repeated members each counts.
fn check_question(params: &RawValue, server: Option<&str>) {
    for url in values_at(params, &["url"]) {
        let url = serde_json::from_str::<String>(url.get()).unwrap_or_default();
        assert!(url.starts_with("https://") || url.starts_with("http://"), "{url}");
    }
    let messages = values_at(params, &["message"]);
    if server.is_some() {
        assert!(
            messages.iter().all(|message| message.get().starts_with(r#""Server \"s\" asks: "#))
        );
        assert_eq!(messages.len(), 1);
    }
}

const ELICIT: &str = "elicitation/create";

fn parsed(json: &[u8]) -> Option<&RawValue> {
    serde_json::from_slice(json).ok()
}

fn is_text(raw: &RawValue, text: &str) -> bool {
    serde_json::from_str::<String>(raw.get()).is_ok_and(|found| found == text)
}

/// All values at a path of member names, of which `*` is any. Repeated members count each.
pub(crate) fn values_at<'a>(json: &'a RawValue, path: &[&str]) -> Vec<&'a RawValue> {
    let [name, rest @ ..] = path else { return vec![json] };
    let items = serde_json::from_str::<Vec<&RawValue>>(json.get()).unwrap_or_default();
    let items = items.into_iter().filter(|_| *name == "*");
    let Members(members) = serde_json::from_str(json.get()).unwrap_or_default();
    let members = members.into_iter().filter(|(key, _)| *name == "*" || key == name);
    let values = items.chain(members.map(|(_, value)| value));
    values.flat_map(|value| values_at(value, rest)).collect()
}

/// Members of an object, repeated ones included.
#[derive(Default)]
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MembersVisitor)
    }
}

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Members<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry()? {
            members.push(member);
        }
        Ok(Members(members))
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn fuzz_targets_hold() {
        toolrack_fuzz::check_targets(super::TARGETS);
    }
}
