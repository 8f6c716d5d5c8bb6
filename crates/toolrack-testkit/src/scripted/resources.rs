//! Resources, resource templates, prompts and completion.

use serde_json::{Value, json};

use super::client::PendingRequest;
use super::server::Server;
use crate::jsonrpc::{Params, Response, RpcError, error_code};
use crate::revision::Era;

const ECHO_PREFIX: &str = "test://echo/";
const NAMES: [&str; 4] = ["ada", "alan", "barbara", "grace"];

impl Server {
    /// Handles the read-only methods; every other one is unknown.
    pub(super) fn read_content(
        &self,
        pending: &PendingRequest,
        method: &str,
        params: &Params<'_>,
    ) -> Result<Response, RpcError> {
        match method {
            "resources/list" => Ok(cacheable(&json!({ "resources": [
                { "uri": "test://readme", "name": "readme", "mimeType": "text/plain" },
                { "uri": "test://logo", "name": "logo", "mimeType": "image/gif" },
                { "uri": "test://counter", "name": "counter", "description": "Changes when touched" },
            ]}))),
            "resources/templates/list" => Ok(cacheable(&json!({ "resourceTemplates": [
                { "uriTemplate": "test://echo/{text}", "name": "echo", "mimeType": "text/plain" },
            ]}))),
            "resources/read" => read_resource(pending, params, self.n_updates()),
            "prompts/list" => Ok(cacheable(&json!({ "prompts": [
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
}

fn cacheable(members: &Value) -> Response {
    Response::Cacheable(Response::object_members(members))
}

fn read_resource(
    pending: &PendingRequest,
    params: &Params<'_>,
    n_updates: u64,
) -> Result<Response, RpcError> {
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
        other => match other.strip_prefix(ECHO_PREFIX) {
            Some(text) => json!({ "uri": uri, "mimeType": "text/plain", "text": text }),
            None => return Err(not_found(pending, uri)),
        },
    };
    Ok(cacheable(&json!({ "contents": [item] })))
}

fn not_found(pending: &PendingRequest, uri: &str) -> RpcError {
    let code = match pending.era() {
        Era::Legacy => error_code::RESOURCE_NOT_FOUND,
        Era::Modern => error_code::INVALID_PARAMS,
    };
    let data = Some(json!({ "uri": uri }));
    RpcError { code, message: format!("no resource `{uri}`"), data }
}

fn get_prompt(params: &Params<'_>) -> Result<Response, RpcError> {
    let name = params.name.as_deref().unwrap_or_default();
    let arguments: Value = params
        .arguments
        .and_then(|arguments| serde_json::from_str(arguments.get()).ok())
        .unwrap_or_default();
    let text = match (name, arguments.get("name").and_then(Value::as_str)) {
        ("plain", _) => "Say something.".to_owned(),
        ("greeting", Some(whom)) => format!("Greet {whom}."),
        ("greeting", None) => {
            return Err(RpcError::new(
                error_code::INVALID_PARAMS,
                "the argument `name` is missing",
            ));
        }
        _ => return Err(RpcError::new(error_code::INVALID_PARAMS, format!("no prompt `{name}`"))),
    };
    let content = json!({ "type": "text", "text": text });
    let messages = json!([{ "role": "user", "content": content }]);
    Ok(Response::Complete(Response::object_members(&json!({ "messages": messages }))))
}

fn complete(params: &Params<'_>) -> Result<Response, RpcError> {
    let text = |from: &Option<Value>, key: &str| {
        from.as_ref().and_then(|from| from.get(key)?.as_str().map(str::to_owned))
    };
    let kind = text(&params.reference, "type");
    if !matches!(kind.as_deref(), Some("ref/prompt" | "ref/resource")) {
        return Err(RpcError::new(error_code::INVALID_PARAMS, "`ref` names no prompt or resource"));
    }
    let typed = text(&params.argument, "value").unwrap_or_default();
    let values: Vec<&str> = NAMES.into_iter().filter(|name| name.starts_with(&typed)).collect();
    let completion = json!({ "total": values.len(), "values": values, "hasMore": false });
    Ok(Response::Complete(Response::object_members(&json!({ "completion": completion }))))
}
