//! Input that a tool needs from the client before it can answer.
//!
//! The legacy era sends requests and waits. 2026-07-28 answers `input_required` and is called again; the state of
//! the next round travels in `requestState`, with a checksum that detects any change.

use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::client::{MessageContext, PendingRequest};
use crate::jsonrpc::{Response, RpcError, insert};

/// Characters that careless clients change when they echo the state.
const HARD_TO_COPY: &str = "\"\\/ é\u{2028}\u{1f600} \t</script>";

/// Key, method and parameters of a request to the client.
pub(crate) type InputRequest = (&'static str, &'static str, Option<Value>);

/// Text of the result, from the name of the tool and the responses of the client by their keys. A response is the
/// text of a JSON object with the member `result` or `error`.
pub(crate) type ResultText = fn(&str, &[(&'static str, String)]) -> String;

/// A legacy call that waits for responses of the client.
#[derive(Debug)]
pub(super) struct AwaitingClient {
    pending: PendingRequest,
    tool: String,
    /// Ids and keys of the open requests.
    open: Vec<(u64, &'static str)>,
    responses: Vec<(&'static str, String)>,
    result_text: ResultText,
}

impl PendingRequest {
    /// Sends requests to the client, and answers the call after the last response.
    pub(crate) fn request_input(
        self,
        tool: &str,
        requests: Vec<InputRequest>,
        result_text: ResultText,
    ) {
        let server = Arc::clone(&self.context.server);
        // Held until the call is registered, because the client may respond at once.
        let mut awaiting_client = server.awaiting_client.lock();
        let send = |(key, method, params): InputRequest| {
            (server.request_client(self.sink(), method, params.as_ref()), key)
        };
        let open: Vec<(u64, &str)> = requests.into_iter().map(send).collect();
        self.register_open(open.iter().map(|(id, _)| *id).collect());
        let (tool, responses) = (tool.to_owned(), Vec::new());
        awaiting_client.push(AwaitingClient { pending: self, tool, open, responses, result_text });
    }
}

impl MessageContext {
    /// Handles a response of the client.
    pub(super) fn handle_response(
        &self,
        id: &RawValue,
        result: Option<&RawValue>,
        error: Option<&RawValue>,
    ) {
        let mut all = self.server.awaiting_client.lock();
        let matches_id = |(request_id, _): &(u64, &str)| request_id.to_string() == id.get();
        let found = all.iter_mut().enumerate().find_map(|(index, call)| {
            let at = call.open.iter().position(matches_id)?;
            Some((index, call.open.swap_remove(at).1, call))
        });
        let Some((index, key, call)) = found else { return };
        let text = match (result, error) {
            (_, Some(error)) => format!(r#"{{"error":{}}}"#, error.get()),
            (result, None) => format!(r#"{{"result":{}}}"#, result.map_or("null", RawValue::get)),
        };
        call.responses.push((key, text));
        if !call.open.is_empty() {
            return;
        }
        let done = all.swap_remove(index);
        drop(all);
        if done.pending.finish() {
            let sink = Arc::clone(&done.pending.context.sink);
            let text = (done.result_text)(&done.tool, &done.responses);
            done.pending.respond(Response::text(&text));
            sink.flush();
        }
    }
}

/// Asks a modern client for input.
pub(crate) fn input_required(requests: &[InputRequest], state: Option<String>) -> Response {
    let request = |(key, method, params): &InputRequest| {
        let mut request = json!({ "method": method });
        insert(&mut request, "params", params.clone());
        ((*key).to_owned(), request)
    };
    let requests: Map<String, Value> = requests.iter().map(request).collect();
    let mut members = json!({});
    let has_requests = !requests.is_empty() || state.is_none();
    insert(&mut members, "inputRequests", has_requests.then_some(Value::Object(requests)));
    insert(&mut members, "requestState", state.map(Value::from));
    Response::input_required(&members)
}

/// State before the round with this number.
pub(crate) fn sign_state(round: u64, tool: &str) -> String {
    let content = format!("{round}:{tool}:{HARD_TO_COPY}");
    let digest = BuildHasherDefault::<DefaultHasher>::default().hash_one(&content);
    format!("{digest:016x}:{content}")
}

/// Checks a state and returns its round.
pub(crate) fn verify_state(state: &str, tool: &str) -> Result<u64, RpcError> {
    let round = state.split(':').nth(1).and_then(|number| number.parse().ok()).unwrap_or(0);
    if sign_state(round, tool) == state {
        return Ok(round);
    }
    Err(RpcError::invalid_params("`requestState` was not echoed byte for byte"))
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
