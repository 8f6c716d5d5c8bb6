//! Resources, resource templates, prompts and completion.

use serde_json::{Value, json};

use super::client::PendingRequest;
use super::tool_list::planned_cursor;
use crate::jsonrpc::{Params, Response, RpcError, RpcResult, json_string, text_block};

const ECHO_PREFIX: &str = "test://echo/";
const NAMES: [&str; 4] = ["ada", "alan", "barbara", "grace"];

pub(super) fn read(
    pending: &PendingRequest,
    method: &str,
    params: &Params<'_>,
    n_updates: u64,
) -> RpcResult {
    let mut response = read_unpaged(pending, method, params, n_updates)?;
    if let Some(cursor) = planned_cursor(pending, params) {
        response.set_member("nextCursor", &json_string(&cursor));
    }
    Ok(response)
}

fn read_unpaged(
    pending: &PendingRequest,
    method: &str,
    params: &Params<'_>,
    n_updates: u64,
) -> RpcResult {
    match method {
        "resources/list" => Ok(Response::cacheable(&json!({ "resources": [
            { "uri": "test://readme", "name": "readme", "mimeType": "text/plain" },
            { "uri": "test://logo", "name": "logo", "mimeType": "image/gif" },
            { "uri": "test://counter", "name": "counter", "description": "Changes when touched" },
        ]}))),
        "resources/templates/list" => Ok(Response::cacheable(&json!({ "resourceTemplates": [
            { "uriTemplate": "test://echo/{text}", "name": "echo", "mimeType": "text/plain" },
        ]}))),
        "resources/read" => read_resource(pending, params, n_updates),
        "prompts/list" => Ok(Response::cacheable(&json!({ "prompts": [
            { "name": "plain", "description": "A prompt without arguments" },
            { "name": "greeting", "description": "Greets somebody", "arguments": [
                { "name": "name", "description": "Whom to greet", "required": true },
            ]},
        ]}))),
        "prompts/get" => get_prompt(params),
        "completion/complete" => complete(params),
        other => Err(RpcError::unknown_method(other)),
    }
}

fn read_resource(pending: &PendingRequest, params: &Params<'_>, n_updates: u64) -> RpcResult {
    let uri = params.uri.as_deref().unwrap_or_default();
    let item = match uri {
        "test://readme" => json!({ "uri": uri, "mimeType": "text/plain", "text": "Read me." }),
        // GIF of one transparent pixel.
        "test://logo" => json!({
            "uri": uri,
            "mimeType": "image/gif",
            "blob": "R0lGODlhAQABAAAAACH5BAEKAAEALAAAAAABAAEAAAICTAEAOw==",
        }),
        "test://counter" => json!({ "uri": uri, "text": n_updates.to_string() }),
        other => {
            let Some(text) = other.strip_prefix(ECHO_PREFIX) else {
                let message = format!("no resource `{uri}`");
                return Err(RpcError::resource_not_found(pending.era(), uri, message));
            };
            json!({ "uri": uri, "mimeType": "text/plain", "text": text })
        }
    };
    Ok(Response::cacheable(&json!({ "contents": [item] })))
}

fn get_prompt(params: &Params<'_>) -> RpcResult {
    let text = match (params.name(), params.arguments().get::<Option<String>>("name")?) {
        ("plain", _) => "Say something.".to_owned(),
        ("greeting", Some(whom)) => format!("Greet {whom}."),
        ("greeting", None) => {
            return Err(RpcError::invalid_params("the argument `name` is missing"));
        }
        (name, _) => return Err(RpcError::invalid_params(format!("no prompt `{name}`"))),
    };
    Ok(Response::prompt(vec![text_block(text)]))
}

fn complete(params: &Params<'_>) -> RpcResult {
    let text = |from: &Option<Value>, key: &str| {
        from.as_ref().and_then(|from| from.get(key)?.as_str().map(str::to_owned))
    };
    let kind = text(&params.reference, "type");
    if !matches!(kind.as_deref(), Some("ref/prompt" | "ref/resource")) {
        return Err(RpcError::invalid_params("`ref` names no prompt or resource"));
    }
    let typed = text(&params.argument, "value").unwrap_or_default();
    let values: Vec<&str> = NAMES.into_iter().filter(|name| name.starts_with(&typed)).collect();
    let completion = json!({ "total": values.len(), "values": values, "hasMore": false });
    Ok(Response::complete(&json!({ "completion": completion })))
}
