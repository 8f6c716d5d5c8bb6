//! Tool `ask`, which needs input from the client before it can answer.
//!
//! The legacy era sends a request and waits. 2026-07-28 answers `input_required` and is called again; the state of
//! the next round travels in `requestState`, with a checksum that detects any change.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::client::PendingRequest;
use super::server::Server;
use super::tools;
use crate::jsonrpc::{Params, Response, RpcError, error_code};
use crate::revision::Era;

/// Characters that careless clients change when they echo the state.
const HARD_TO_COPY: &str = "\"\\/ é\u{2028}\u{1f600} \t</script>";

#[derive(Debug, Deserialize)]
struct Arguments {
    kind: String,
    /// Number of rounds for a modern client.
    #[serde(default)]
    rounds: Option<u64>,
    /// Ask even without the client capability.
    #[serde(default)]
    force: bool,
}

impl Server {
    pub(super) fn call_ask(
        self: &Arc<Self>,
        pending: PendingRequest,
        arguments: &str,
        params: &Params<'_>,
    ) {
        let response = match tools::parse_arguments::<Arguments>(arguments) {
            Err(rpc_error) => Response::Error(rpc_error),
            Ok(arguments) if pending.era() == Era::Legacy => {
                return self.ask_by_server_request(pending, &arguments);
            }
            Ok(arguments) => ask_by_rounds(&arguments, params).into(),
        };
        self.respond(pending, response);
    }

    fn ask_by_server_request(self: &Arc<Self>, pending: PendingRequest, arguments: &Arguments) {
        let Some((method, params)) = client_request_for(&arguments.kind) else {
            let text = format!("there is no way to ask for `{}`", arguments.kind);
            return self.respond(pending, Response::tool_error(&text));
        };
        let mut awaiting_client = self.awaiting_client.lock();
        let id = self.request_client(pending.sink(), method, params.as_ref());
        pending.register_open(Some(id));
        awaiting_client.push((id, pending));
    }

    /// Handles a response of the client and answers the call that waits for it.
    pub(super) fn handle_response(
        self: &Arc<Self>,
        id: &RawValue,
        result: Option<&RawValue>,
        error: Option<&RawValue>,
    ) {
        let pending = {
            let mut awaiting_client = self.awaiting_client.lock();
            let index = awaiting_client
                .iter()
                .position(|(client_request, _)| client_request.to_string() == id.get());
            index.map(|index| awaiting_client.swap_remove(index).1)
        };
        let Some(pending) = pending else { return };
        if pending.finish().is_none() {
            return;
        }
        let text = match (result, error) {
            (_, Some(error)) => format!(r#"{{"error":{}}}"#, error.get()),
            (result, None) => format!(r#"{{"result":{}}}"#, result.map_or("null", RawValue::get)),
        };
        let sink = Arc::clone(&pending.context.sink);
        self.respond(pending, Response::text(&text));
        sink.flush();
    }
}

fn ask_by_rounds(arguments: &Arguments, params: &Params<'_>) -> Result<Response, RpcError> {
    let Arguments { kind, rounds, force } = arguments;
    let rounds = rounds.unwrap_or(1);
    let question = match kind.as_str() {
        "state" => None,
        "roots" | "sampling" | "elicitation" => client_request_for(kind),
        _ => return Ok(Response::tool_error(&format!("there is no way to ask for `{kind}`"))),
    };
    if !force && question.is_some() && !params.meta.declares(kind) {
        let mut required = serde_json::Map::new();
        required.insert(kind.clone(), json!({}));
        return Err(RpcError {
            code: error_code::MISSING_CLIENT_CAPABILITY,
            message: format!("the client declares no `{kind}`"),
            data: Some(json!({ "requiredCapabilities": required })),
        });
    }
    let done = match &params.request_state {
        None => 0,
        Some(state) => verify_state(state, kind)?,
    };
    let response = params.input_responses.as_ref().and_then(|responses| responses.get("answer"));
    // A round without its response is repeated rather than rejected.
    let done = if question.is_some() && response.is_none() { done.saturating_sub(1) } else { done };
    if done >= rounds {
        return Ok(Response::text(&json!({ "result": response }).to_string()));
    }
    let mut members = json!({ "requestState": sign_state(done + 1, kind) });
    if let (Some((method, params)), Some(members)) = (question, members.as_object_mut()) {
        let mut request = json!({ "method": method });
        if let (Some(params), Some(request)) = (params, request.as_object_mut()) {
            request.insert("params".to_owned(), params);
        }
        members.insert("inputRequests".to_owned(), json!({ "answer": request }));
    }
    Ok(Response::InputRequired(Response::object_members(&members)))
}

/// Method and parameters of the request to the client.
fn client_request_for(kind: &str) -> Option<(&'static str, Option<Value>)> {
    match kind {
        "ping" => Some(("ping", None)),
        "roots" => Some(("roots/list", None)),
        "sampling" => {
            let content = json!({ "type": "text", "text": "What is the answer?" });
            let messages = json!([{ "role": "user", "content": content }]);
            Some(("sampling/createMessage", Some(json!({ "messages": messages, "maxTokens": 64 }))))
        }
        "elicitation" => {
            let properties = json!({
                "name": { "type": "string", "description": "Your name" },
                "agree": { "type": "boolean", "default": true },
            });
            let schema =
                json!({ "type": "object", "properties": properties, "required": ["name"] });
            let params = json!({ "message": "Who are you?", "requestedSchema": schema });
            Some(("elicitation/create", Some(params)))
        }
        _ => None,
    }
}

fn sign_state(round: u64, kind: &str) -> String {
    let content = format!("{round}:{kind}:{HARD_TO_COPY}");
    format!("{:016x}:{content}", digest(&content))
}

/// Checks a state and returns its round.
fn verify_state(state: &str, kind: &str) -> Result<u64, RpcError> {
    let round = state.split(':').nth(1).and_then(|number| number.parse().ok()).unwrap_or(0);
    if sign_state(round, kind) == state {
        return Ok(round);
    }
    Err(RpcError::new(error_code::INVALID_PARAMS, "`requestState` was not echoed byte for byte"))
}

/// FNV-1a.
fn digest(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_state_must_match_byte_for_byte() {
        let state = sign_state(3, "roots");
        let check = |state: &str, kind: &str, expected: Option<u64>| {
            assert_eq!(verify_state(state, kind).ok(), expected, "{state:?} for {kind}");
        };
        check(&state, "roots", Some(3));
        check(&state, "sampling", None);
        check(&state.replace('é', "e\u{301}"), "roots", None);
        check(state.trim_end_matches('>'), "roots", None);
        check(&format!("{state}\n"), "roots", None);
        check("", "roots", None);
    }
}
