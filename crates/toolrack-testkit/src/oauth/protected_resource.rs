//! The protected endpoint and its description of itself.

use serde_json::{Value, json};

use super::http::{Reply, Request};
use super::{Fault, Role, Shared, authorization_server};

const BASIC: &str = "mcp:basic";
const WRITE: &str = "mcp:write";
const DESCRIPTION: &str = "/.well-known/oauth-protected-resource";

pub(crate) fn answer(shared: &Shared, request: &Request) -> Reply {
    match (request.method.as_str(), request.path.as_str()) {
        ("POST", "/mcp") => call(shared, request),
        ("GET", path) if path.starts_with(DESCRIPTION) => describe(shared, path),
        // Without a description, the origin of the resource is its authorization server.
        _ if shared.has(Fault::NoDescription) => {
            authorization_server::answer(shared, Role::Resource, request)
        }
        _ => Reply::plain(404),
    }
}

/// What the resource is called, by itself.
pub(crate) fn name(shared: &Shared) -> String {
    let origin = shared.origin(Role::Resource);
    match () {
        () if shared.has(Fault::ResourceOther) => "https://other.example/mcp".to_owned(),
        () if shared.has(Fault::ResourceOrigin) => origin,
        () => format!("{origin}/mcp"),
    }
}

/// The description, also when another origin serves it.
pub(crate) fn describe(shared: &Shared, path: &str) -> Reply {
    let at_root = path == DESCRIPTION;
    if shared.has(Fault::NoDescription) || shared.has(Fault::DescriptionAtRoot) != at_root {
        return Reply::plain(404);
    }
    if shared.has(Fault::DescriptionGarbage) {
        return Reply { status: 200, headers: Vec::new(), body: b"<html>".to_vec() };
    }
    let server = match () {
        () if shared.has(Fault::ServerPrivate) => "https://169.254.169.254".to_owned(),
        () if shared.has(Fault::ServerPlain) => "http://auth.example".to_owned(),
        () => authorization_server::name(shared, shared.current()),
    };
    let mut document = json!({ "resource": name(shared), "authorization_servers": [server] });
    if shared.has(Fault::NoServers) {
        authorization_server::set(&mut document, "authorization_servers", json!([]));
    }
    if shared.has(Fault::ScopesListed) {
        authorization_server::set(&mut document, "scopes_supported", json!([BASIC, "mcp:listed"]));
    }
    Reply::json(200, &document)
}

fn call(shared: &Shared, request: &Request) -> Reply {
    let message: Value = serde_json::from_slice(&request.body).unwrap_or_default();
    let is_tool = message.get("method") == Some(&json!("tools/call"));
    let token = request
        .authorization
        .as_deref()
        .and_then(|authorization| authorization.strip_prefix("Bearer "));
    let scope = {
        let ledger = shared.ledger();
        let grant = token.and_then(|token| ledger.grant(token));
        let issuer =
            if shared.has(Fault::NoDescription) { Role::Resource } else { shared.current() };
        let fits = grant.filter(|grant| grant.role == issuer && grant.resource == name(shared));
        fits.map(|fits| fits.scope.clone())
    };
    let refusal = match scope {
        None => Some(unauthorized(shared, token)),
        Some(_) if shared.has(Fault::AlwaysUnauthorized) => Some(unauthorized(shared, token)),
        Some(_) if is_tool && shared.has(Fault::Forbidden) => Some(Reply::plain(403)),
        Some(_) if is_tool && shared.has(Fault::ScopeLoop) => {
            let n_rebuffs = shared.ledger().stats.rebuffs;
            Some(insufficient(shared, &format!("mcp:more{n_rebuffs}")))
        }
        Some(scope) if is_tool && shared.has(Fault::StepUp) && !names(&scope, WRITE) => {
            Some(insufficient(shared, WRITE))
        }
        Some(_) => None,
    };
    let stats = &mut shared.ledger().stats;
    match refusal {
        Some(refusal) => {
            stats.rebuffs += 1;
            refusal
        }
        None => {
            stats.calls += 1;
            Reply::json(200, &json!({ "jsonrpc": "2.0", "id": message.get("id"), "result": {} }))
        }
    }
}

fn names(scope: &str, one: &str) -> bool {
    scope.split(' ').any(|part| part == one)
}

fn unauthorized(shared: &Shared, token: Option<&str>) -> Reply {
    let scope = if shared.has(Fault::NoScopeHint) { None } else { Some(BASIC) };
    let error = token.map(|_| "invalid_token");
    challenge(shared, 401, error, scope)
}

fn insufficient(shared: &Shared, scope: &str) -> Reply {
    challenge(shared, 403, Some("insufficient_scope"), Some(scope))
}

/// The refusal, with a decoy before the challenge that counts.
fn challenge(shared: &Shared, status: u16, error: Option<&str>, scope: Option<&str>) -> Reply {
    let mut params = Vec::new();
    let hidden = shared.has(Fault::NoHint) || shared.has(Fault::NoDescription);
    let place = match () {
        () if shared.has(Fault::DescriptionPrivate) => {
            Some("https://169.254.169.254/prm".to_owned())
        }
        () if shared.has(Fault::DescriptionElsewhere) => {
            Some(format!("{}{DESCRIPTION}/mcp", shared.origin(Role::First)))
        }
        () if hidden || shared.has(Fault::DescriptionAtRoot) => None,
        () => Some(format!("{}{DESCRIPTION}/mcp", shared.origin(Role::Resource))),
    };
    params.extend(error.map(|error| format!("error=\"{error}\"")));
    params.extend(place.map(|place| format!("resource_metadata=\"{place}\"")));
    params.extend(scope.map(|scope| format!("scope=\"{scope}\"")));
    let value = format!("Basic realm=\"scope=decoy\", Bearer {}", params.join(", "));
    Reply { headers: vec![("www-authenticate", value)], ..Reply::plain(status) }
}
