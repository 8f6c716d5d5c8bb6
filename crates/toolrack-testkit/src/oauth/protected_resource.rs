//! Protected resource and its metadata (RFC 9728).

use serde_json::{Value, json};

use super::exchange::{RecordedRequest, Response};
use super::{Fault, Role, Shared, authorization_server};
use crate::jsonrpc::insert;

const BASIC: &str = "mcp:basic";
const WRITE: &str = "mcp:write";
const METADATA_PATH: &str = "/.well-known/oauth-protected-resource";

pub(crate) fn handle(shared: &Shared, request: &RecordedRequest) -> Response {
    match (request.method.as_str(), request.path.as_str()) {
        ("POST", "/mcp") => call(shared, request),
        ("GET", path) if path.starts_with(METADATA_PATH) => metadata(shared, path),
        // Without resource metadata, the origin of the resource is its authorization server.
        _ if shared.has(Fault::NoDescription) => authorization_server::handle(shared, request),
        _ => Response::empty(404),
    }
}

/// Resource identifier.
pub(crate) fn resource_id(shared: &Shared) -> String {
    let origin = shared.origin(Role::Resource);
    match () {
        () if shared.has(Fault::ResourceOther) => "https://other.example/mcp".to_owned(),
        () if shared.has(Fault::ResourceOrigin) => origin,
        () => format!("{origin}/mcp"),
    }
}

/// Resource metadata, also for requests to another origin.
pub(crate) fn metadata(shared: &Shared, path: &str) -> Response {
    let at_root = path == METADATA_PATH;
    if shared.has(Fault::NoDescription) || shared.has(Fault::DescriptionAtRoot) != at_root {
        return Response::empty(404);
    }
    let server = match () {
        () if shared.has(Fault::ServerPrivate) => "https://169.254.169.254".to_owned(),
        () if shared.has(Fault::ServerPlain) => "http://auth.example".to_owned(),
        () => authorization_server::issuer_url(shared, shared.current_issuer()),
    };
    let servers = if shared.has(Fault::NoServers) { Vec::new() } else { vec![server] };
    let mut document = json!({ "resource": resource_id(shared), "authorization_servers": servers });
    let scopes = json!([BASIC, "mcp:listed"]);
    insert(&mut document, "scopes_supported", shared.has(Fault::ScopesListed).then_some(scopes));
    Response::json(200, &document)
}

fn call(shared: &Shared, request: &RecordedRequest) -> Response {
    let message: Value = serde_json::from_str(&request.body).unwrap_or_default();
    let is_tool = message.get("method") == Some(&json!("tools/call"));
    let token = request.authorization.as_deref().and_then(|header| header.strip_prefix("Bearer "));
    let scope = {
        let store = shared.store.lock();
        let grant = token.and_then(|token| store.grant(token));
        let issuer =
            if shared.has(Fault::NoDescription) { Role::Resource } else { shared.current_issuer() };
        let matches =
            grant.filter(|grant| grant.role == issuer && grant.resource == resource_id(shared));
        matches.map(|matches| matches.scope.clone())
    };
    let error_response = match scope {
        None => Some(unauthorized(shared, token)),
        Some(_) if shared.has(Fault::AlwaysUnauthorized) => Some(unauthorized(shared, token)),
        Some(_) if is_tool && shared.has(Fault::Forbidden) => Some(Response::empty(403)),
        Some(_) if is_tool && shared.has(Fault::ScopeLoop) => {
            let n_rejections = shared.store.lock().stats.rejections;
            Some(insufficient(shared, &format!("mcp:more{n_rejections}")))
        }
        Some(scope) if is_tool && shared.has(Fault::StepUp) && !has_scope(&scope, WRITE) => {
            Some(insufficient(shared, WRITE))
        }
        Some(_) => None,
    };
    let stats = &mut shared.store.lock().stats;
    match error_response {
        Some(error_response) => {
            stats.rejections += 1;
            error_response
        }
        None => {
            stats.calls += 1;
            Response::json(200, &json!({ "jsonrpc": "2.0", "id": message.get("id"), "result": {} }))
        }
    }
}

fn has_scope(scope: &str, one: &str) -> bool {
    scope.split(' ').any(|part| part == one)
}

fn unauthorized(shared: &Shared, token: Option<&str>) -> Response {
    let scope = if shared.has(Fault::NoScopeHint) { None } else { Some(BASIC) };
    let error = token.map(|_| "invalid_token");
    challenge(shared, 401, error, scope)
}

fn insufficient(shared: &Shared, scope: &str) -> Response {
    challenge(shared, 403, Some("insufficient_scope"), Some(scope))
}

/// Rejection with a challenge, after a decoy challenge of another scheme.
fn challenge(shared: &Shared, status: u16, error: Option<&str>, scope: Option<&str>) -> Response {
    let mut params = Vec::new();
    let hidden = shared.has(Fault::NoHint) || shared.has(Fault::NoDescription);
    let metadata_url = match () {
        () if shared.has(Fault::DescriptionPrivate) => {
            Some("https://169.254.169.254/prm".to_owned())
        }
        () if shared.has(Fault::DescriptionElsewhere) => {
            Some(format!("{}{METADATA_PATH}/mcp", shared.origin(Role::First)))
        }
        () if hidden || shared.has(Fault::DescriptionAtRoot) => None,
        () => Some(format!("{}{METADATA_PATH}/mcp", shared.origin(Role::Resource))),
    };
    params.extend(error.map(|error| format!("error=\"{error}\"")));
    params.extend(metadata_url.map(|metadata_url| format!("resource_metadata=\"{metadata_url}\"")));
    params.extend(scope.map(|scope| format!("scope=\"{scope}\"")));
    let value = format!("Basic realm=\"scope=decoy\", Bearer {}", params.join(", "));
    Response { headers: vec![("www-authenticate", value)], ..Response::empty(status) }
}
