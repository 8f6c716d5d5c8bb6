//! What can be told of a request from its method and arguments alone.

use serde_json::Value;
use serde_json::value::RawValue;

use crate::plan::Moment;
use crate::revision::Speaks;

/// The moments of the plan that a request is.
pub(super) fn moments_of(method: &str, speaks: Speaks) -> &'static [Moment] {
    let known = is_known(method, speaks);
    match method {
        "initialize" => &[Moment::Initialize],
        "server/discover" if known => &[Moment::Discover],
        "server/discover" => &[Moment::Discover, Moment::Unknown],
        "tools/list" => &[Moment::List],
        "tools/call" => &[Moment::Call],
        "subscriptions/listen" if known => &[Moment::Listen],
        _ if known => &[],
        _ => &[Moment::Unknown],
    }
}

/// Whether a server that speaks these eras knows the method.
pub(super) fn is_known(method: &str, speaks: Speaks) -> bool {
    match method {
        "initialize"
        | "ping"
        | "logging/setLevel"
        | "resources/subscribe"
        | "resources/unsubscribe" => speaks.legacy(),
        "server/discover" | "subscriptions/listen" => speaks.modern(),
        "tools/list"
        | "tools/call"
        | "resources/list"
        | "resources/templates/list"
        | "resources/read"
        | "prompts/list"
        | "prompts/get"
        | "completion/complete" => true,
        _ => false,
    }
}

/// The argument `nonce` of a call, by which a journal knows it.
pub(super) fn nonce_of(arguments: Option<&RawValue>) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Nonce {
        nonce: Option<Value>,
    }
    match serde_json::from_str::<Nonce>(arguments?.get()).ok()?.nonce? {
        Value::String(text) => Some(text),
        other => Some(other.to_string()),
    }
}
