//! Resources, resource templates, prompts and completion.

use serde_json::{Value, json};

use super::client::PendingRequest;
use super::tool_list::{from_cursor, planned_cursor};
use crate::jsonrpc::{Params, Response, RpcError, RpcResult, text_block};

const ECHO_PREFIX: &str = "test://echo/";
const NAMES: [&str; 4] = ["ada", "alan", "barbara", "grace"];

pub(super) fn read(
    pending: &PendingRequest,
    method: &str,
    params: &Params<'_>,
    n_updates: u64,
) -> RpcResult {
    match method {
        "resources/list" => {
            let own = vec![
                json!({ "uri": "test://readme", "name": "readme", "mimeType": "text/plain" }),
                json!({ "uri": "test://logo", "name": "logo", "mimeType": "image/gif" }),
                json!({ "uri": "test://counter", "name": "counter", "description": "Changes when touched" }),
            ];
            list(
                pending,
                params,
                "resources",
                own,
                |name| json!({ "uri": format!("test://generated/{name}"), "name": name }),
            )
        }
        "resources/templates/list" => {
            let own = vec![
                json!({ "uriTemplate": "test://echo/{text}", "name": "echo", "mimeType": "text/plain" }),
            ];
            list(
                pending,
                params,
                "resourceTemplates",
                own,
                |name| json!({ "uriTemplate": format!("test://generated/{name}/{{text}}"), "name": name }),
            )
        }
        "resources/read" => read_resource(pending, params, n_updates),
        "prompts/list" => {
            let own = vec![
                json!({ "name": "plain", "description": "A prompt without arguments" }),
                json!({ "name": "greeting", "description": "Greets somebody", "arguments": [
                    { "name": "name", "description": "Whom to greet", "required": true },
                ]}),
            ];
            list(pending, params, "prompts", own, |name| json!({ "name": name }))
        }
        "prompts/get" => get_prompt(params),
        "completion/complete" => complete(params),
        other => Err(RpcError::unknown_method(other)),
    }
}

/// A page of a list: the entries of every server, then generated ones.
fn list(
    pending: &PendingRequest,
    params: &Params<'_>,
    member: &str,
    own: Vec<Value>,
    generate: impl Fn(String) -> Value,
) -> RpcResult {
    let options = &pending.context.server.options;
    let n_generated = usize::try_from(options.n_entries).unwrap_or(usize::MAX);
    let total = own.len().saturating_add(n_generated);
    let planned = planned_cursor(pending, params);
    let from = match (&planned, params.cursor.as_deref()) {
        (Some(_), _) | (None, None) => 0,
        (None, Some(cursor)) => from_cursor(cursor, total)?,
    };
    let to = options.page_size.map_or(total, |size| from.saturating_add(size).min(total));
    let description = "d".repeat(usize::try_from(options.entry_bytes).unwrap_or_default());
    let entry = |index: usize| {
        own.get(index).cloned().unwrap_or_else(|| {
            let mut entry = generate(format!("entry-{index}"));
            put(&mut entry, "description", json!(description));
            entry
        })
    };
    let mut page = json!({ member: (from..to).map(entry).collect::<Vec<Value>>() });
    let next = planned.or_else(|| (to < total).then(|| format!("from-{to}")));
    if let Some(next) = next {
        put(&mut page, "nextCursor", json!(next));
    }
    Ok(Response::cacheable(&page))
}

fn put(object: &mut Value, member: &str, value: Value) {
    if let Value::Object(members) = object {
        members.insert(member.to_owned(), value);
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
