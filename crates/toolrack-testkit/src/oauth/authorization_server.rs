//! An authorization server: metadata, registration, the page that agrees at once, tokens.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::digest::{SHA256, digest};
use ring::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
use serde_json::{Value, json};

use super::http::{Reply, Request, escape, unescape};
use super::token_store::{Client, Code, Grant, Pair, Rotation};
use super::{Fault, Role, Shared, protected_resource};

const ID_JAG: &str = "urn:ietf:params:oauth:token-type:id-jag";
/// What the identity provider takes for the user's ID token, and gives for it.
const ID_TOKEN: &str = "id-token-s3cret";
const VOUCHED: &str = "vouched-s3cret";

pub(crate) fn answer(shared: &Shared, role: Role, request: &Request) -> Reply {
    let path = request.path.as_str();
    match (request.method.as_str(), path) {
        ("GET", "/.well-known/oauth-authorization-server") if !shared.has(Fault::OpenIdOnly) => {
            metadata(shared, role)
        }
        ("GET", "/.well-known/openid-configuration") => metadata(shared, role),
        ("GET", _) if path.starts_with("/.well-known/oauth-protected-resource") => {
            protected_resource::describe(shared, path)
        }
        ("POST", "/register") => register(shared, role, request),
        ("GET", "/authorize") => authorize(shared, role, request),
        ("POST", "/token") => token(shared, role, request),
        ("POST", "/idp/token") => vouch(shared, request),
        ("POST", "/revoke") => {
            shared.ledger().revoke(request.get("token").unwrap_or_default());
            Reply::plain(200)
        }
        _ => Reply::plain(404),
    }
}

/// What an authorization server calls itself.
pub(crate) fn name(shared: &Shared, role: Role) -> String {
    let origin = shared.origin(role);
    if shared.has(Fault::IssuerSlash) { format!("{origin}/") } else { origin }
}

fn metadata(shared: &Shared, role: Role) -> Reply {
    if shared.has(Fault::NoMetadata) {
        return Reply::plain(404);
    }
    if shared.has(Fault::MetadataDown) {
        return Reply::plain(500);
    }
    if shared.has(Fault::MetadataRedirect) {
        let place =
            format!("{}/.well-known/oauth-authorization-server", shared.origin(Role::Second));
        return Reply::redirect(place);
    }
    let (origin, mut issuer) = (shared.origin(role), name(shared, role));
    if shared.has(Fault::IssuerOther) {
        "https://other.example".clone_into(&mut issuer);
    }
    if shared.has(Fault::IssuerNormalized) {
        issuer.push('/');
    }
    let methods = match () {
        () if shared.has(Fault::BasicOnly) => json!(["client_secret_basic"]),
        () if shared.has(Fault::PostOnly) => json!(["client_secret_post"]),
        () if shared.has(Fault::SignedOnly) => json!(["private_key_jwt"]),
        () => json!(["none", "client_secret_basic"]),
    };
    let mut document = json!({
        "issuer": issuer,
        "authorization_endpoint": format!("{origin}/authorize"),
        "token_endpoint": format!("{origin}/token"),
        "registration_endpoint": format!("{origin}/register"),
        "revocation_endpoint": format!("{origin}/revoke"),
        "response_types_supported": ["code"],
        "code_challenge_methods_supported": ["S256"],
        "token_endpoint_auth_methods_supported": methods,
        "authorization_response_iss_parameter_supported": promises_iss(shared),
        "client_id_metadata_document_supported": shared.has(Fault::Documents),
    });
    for (fault, member, value) in [
        (Fault::NoS256, "code_challenge_methods_supported", json!(["plain"])),
        (Fault::NoPkceWord, "code_challenge_methods_supported", Value::Null),
        (Fault::TokenPlain, "token_endpoint", json!("http://auth.example/token")),
        (Fault::TokenPrivate, "token_endpoint", json!("https://169.254.169.254/token")),
        (Fault::RegistrationPrivate, "registration_endpoint", json!("https://169.254.169.254/r")),
        (Fault::PageScript, "authorization_endpoint", json!("javascript:alert(1)")),
        (Fault::NoRegistration, "registration_endpoint", Value::Null),
        (Fault::Offline, "scopes_supported", json!(["mcp:basic", "offline_access"])),
        (Fault::MetadataHuge, "padding", json!("x".repeat(2 * 1024 * 1024))),
    ] {
        if shared.has(fault) {
            set(&mut document, member, value);
        }
    }
    Reply::json(200, &document)
}

/// Sets a member of a document; `null` takes it out.
pub(crate) fn set(document: &mut Value, name: &str, value: Value) {
    let Some(members) = document.as_object_mut() else { return };
    match value {
        Value::Null => drop(members.remove(name)),
        value => drop(members.insert(name.to_owned(), value)),
    }
}

fn promises_iss(shared: &Shared) -> bool {
    [Fault::IssPromised, Fault::IssMissing, Fault::IssWrong, Fault::IssSlash]
        .into_iter()
        .any(|value| shared.has(value))
}

fn register(shared: &Shared, role: Role, request: &Request) -> Reply {
    let document: Value = serde_json::from_slice(&request.body).unwrap_or_default();
    if shared.has(Fault::RegistrationRefused) {
        return refusal("invalid_redirect_uri", None);
    }
    let redirect_uris = document.get("redirect_uris").and_then(Value::as_array).cloned();
    let redirect_uris = redirect_uris.unwrap_or_default();
    let redirect_uris: Vec<String> =
        redirect_uris.iter().filter_map(Value::as_str).map(str::to_owned).collect();
    if redirect_uris.is_empty() || document.get("application_type") != Some(&json!("native")) {
        return refusal("invalid_client_metadata", None);
    }
    let method = document.get("token_endpoint_auth_method").and_then(Value::as_str);
    let method = method.unwrap_or("client_secret_basic");
    let mut ledger = shared.ledger();
    ledger.stats.registrations += 1;
    let id = ledger.fresh("client");
    let secret = (method != "none").then(|| ledger.fresh("password"));
    let client = Client { secret: secret.clone(), redirect_uris, method: Some(method.to_owned()) };
    ledger.clients.insert((role, id.clone()), client);
    let answer = json!({
        "client_id": id,
        "client_secret": secret,
        "client_secret_expires_at": 0,
        "token_endpoint_auth_method": method,
    });
    Reply::json(201, &answer)
}

/// The page: it agrees at once and sends the browser back.
fn authorize(shared: &Shared, role: Role, request: &Request) -> Reply {
    let get = |name| request.get(name).unwrap_or_default().to_owned();
    let (client_id, redirect_uri) = (get("client_id"), get("redirect_uri"));
    let is_document = shared.has(Fault::Documents) && client_id.starts_with("https://");
    let known = {
        let ledger = shared.ledger();
        let client = ledger.clients.get(&(role, client_id.clone()));
        client.is_some_and(|client| {
            client.redirect_uris.is_empty() || client.redirect_uris.contains(&redirect_uri)
        })
    };
    let proper = get("response_type") == "code"
        && get("code_challenge_method") == "S256"
        && get("code_challenge").len() == 43;
    if !(known || is_document) || !proper {
        return Reply::plain(400);
    }
    let state = if shared.has(Fault::StateWrong) { "wrong".to_owned() } else { get("state") };
    let mut location = format!("{redirect_uri}?state={}", escape(&state));
    if let Some(iss) = iss(shared, role) {
        location = format!("{location}&iss={}", escape(&iss));
    }
    if shared.has(Fault::AccessDenied) {
        let text = "error=access_denied&error_description=the+person+said+no";
        return Reply::redirect(format!("{location}&{text}"));
    }
    let grant = Grant { role, client_id, scope: get("scope"), resource: get("resource") };
    let code = Code { grant, redirect_uri, challenge: get("code_challenge") };
    let mut ledger = shared.ledger();
    ledger.stats.logins += 1;
    let code = ledger.code(code);
    Reply::redirect(format!("{location}&code={}", escape(&code)))
}

fn iss(shared: &Shared, role: Role) -> Option<String> {
    let own = name(shared, role);
    match () {
        () if shared.has(Fault::IssWrong) => Some("https://other.example".to_owned()),
        () if shared.has(Fault::IssSlash) => Some(format!("{own}/")),
        () if shared.has(Fault::IssPromised) || shared.has(Fault::IssUnpromised) => Some(own),
        () => None,
    }
}

fn token(shared: &Shared, role: Role, request: &Request) -> Reply {
    let Some(caller) = caller(shared, role, request) else {
        return Reply { status: 401, ..refusal("invalid_client", None) };
    };
    let rotation = match () {
        () if shared.has(Fault::NoRefresh) => None,
        () if shared.has(Fault::RefreshKeeps) => Some(Rotation::Keep),
        () => Some(Rotation::Rotate),
    };
    let pair = match request.get("grant_type").unwrap_or_default() {
        "authorization_code" => exchange(shared, &caller, request, rotation),
        "refresh_token" if shared.has(Fault::RefreshDown) => return Reply::plain(503),
        "refresh_token" => {
            let token = request.get("refresh_token").unwrap_or_default();
            let rotation = rotation.unwrap_or(Rotation::Keep);
            let who = (role, caller.id.as_str());
            let mut ledger = shared.ledger();
            let fits = request.get("resource") == Some(&protected_resource::name(shared));
            let renewed = ledger.renew(token, who, shared.plan.lifetime, rotation);
            renewed.filter(|_| fits)
        }
        "client_credentials" if caller.is_proven => Some(without_person(shared, &caller, request)),
        "urn:ietf:params:oauth:grant-type:jwt-bearer"
            if caller.is_proven && request.get("assertion") == Some(VOUCHED) =>
        {
            Some(without_person(shared, &caller, request))
        }
        _ => return refusal("unsupported_grant_type", None),
    };
    match pair {
        Some(pair) => issued(shared, &pair),
        None => {
            shared.ledger().stats.invalid_grants += 1;
            let quoted = request.get("refresh_token").or(request.get("code"));
            refusal("invalid_grant", quoted.filter(|_| shared.has(Fault::Quoting)))
        }
    }
}

/// A code becomes tokens if everything about it is as it was.
fn exchange(
    shared: &Shared,
    caller: &Caller,
    request: &Request,
    rotation: Option<Rotation>,
) -> Option<Pair> {
    let mut ledger = shared.ledger();
    let code = ledger.take_code(request.get("code")?)?;
    let fits = code.grant.client_id == caller.id
        && request.get("redirect_uri") == Some(&code.redirect_uri)
        && request.get("resource") == Some(&code.grant.resource)
        && s256(request.get("code_verifier")?) == code.challenge;
    if !fits {
        return None;
    }
    ledger.stats.codes += 1;
    Some(ledger.issue(code.grant, shared.plan.lifetime, rotation))
}

fn without_person(shared: &Shared, caller: &Caller, request: &Request) -> Pair {
    let grant = Grant {
        role: caller.role,
        client_id: caller.id.clone(),
        scope: request.get("scope").unwrap_or_default().to_owned(),
        resource: protected_resource::name(shared),
    };
    let mut ledger = shared.ledger();
    ledger.stats.without_person += 1;
    ledger.issue(grant, shared.plan.lifetime, None)
}

fn issued(shared: &Shared, pair: &Pair) -> Reply {
    let kind = if shared.has(Fault::TokenType) { "mac" } else { "Bearer" };
    let answer = json!({
        "access_token": pair.access,
        "token_type": kind,
        "expires_in": shared.plan.lifetime.as_secs_f64(),
        "refresh_token": pair.refresh,
        "scope": pair.scope,
    });
    Reply::json(200, &answer)
}

/// The identity provider: an ID token for a statement that the resource's authorization server takes.
fn vouch(shared: &Shared, request: &Request) -> Reply {
    let proper = request.get("subject_token") == Some(ID_TOKEN)
        && request.get("requested_token_type") == Some(ID_JAG)
        && request.get("audience") == Some(&name(shared, shared.current()))
        && request.get("resource") == Some(&protected_resource::name(shared));
    if !proper {
        return refusal("invalid_request", None);
    }
    let kind = if shared.has(Fault::ExchangeOther) { "urn:x:other" } else { ID_JAG };
    let answer = json!({ "access_token": VOUCHED, "issued_token_type": kind, "token_type": "N_A" });
    Reply::json(200, &answer)
}

fn refusal(error: &str, quoted: Option<&str>) -> Reply {
    let description = quoted.map(|quoted| format!("{quoted} is not good"));
    Reply::json(400, &json!({ "error": error, "error_description": description }))
}

/// A client that has said who it is, and perhaps proven it.
#[derive(Debug)]
struct Caller {
    role: Role,
    id: String,
    is_proven: bool,
}

/// The S256 challenge of a verifier.
fn s256(verifier: &str) -> String {
    URL_SAFE_NO_PAD.encode(digest(&SHA256, verifier.as_bytes()))
}

/// Who it is. `None` if the proof is wrong, or not the one that was agreed.
fn caller(shared: &Shared, role: Role, request: &Request) -> Option<Caller> {
    if let Some(statement) = request.get("client_assertion") {
        let id = signer(shared, role, statement)?;
        return Some(Caller { role, id, is_proven: true });
    }
    let (id, secret, method) = claimed(request)?;
    let ledger = shared.ledger();
    if id.starts_with("https://") && shared.has(Fault::Documents) {
        return Some(Caller { role, id, is_proven: false });
    }
    let client = ledger.clients.get(&(role, id.clone()))?;
    let agreed = match () {
        () if shared.has(Fault::BasicOnly) => Some("client_secret_basic"),
        () if shared.has(Fault::PostOnly) => Some("client_secret_post"),
        () => client.method.as_deref(),
    };
    let fits = client.secret == secret && agreed.is_none_or(|agreed| agreed == method);
    fits.then(|| Caller { role, id, is_proven: client.secret.is_some() })
}

/// Id, secret and method, as the request has them. Both ways at once are wrong.
fn claimed(request: &Request) -> Option<(String, Option<String>, &'static str)> {
    let header = request
        .authorization
        .as_deref()
        .and_then(|authorization| authorization.strip_prefix("Basic "));
    let secret = request.get("client_secret").map(str::to_owned);
    match (header, secret) {
        (Some(_), Some(_)) => None,
        (Some(header), None) => {
            let pair = String::from_utf8(STANDARD.decode(header).ok()?).ok()?;
            let (id, secret) = pair.split_once(':')?;
            Some((unescape(id), Some(unescape(secret)), "client_secret_basic"))
        }
        (None, Some(secret)) => {
            Some((request.get("client_id")?.to_owned(), Some(secret), "client_secret_post"))
        }
        (None, None) => Some((request.get("client_id")?.to_owned(), None, "none")),
    }
}

/// Who has signed a statement for us.
fn signer(shared: &Shared, role: Role, statement: &str) -> Option<String> {
    let key = shared.plan.public_key.as_deref()?;
    let (text, signature) = statement.rsplit_once('.')?;
    let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
    let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, key);
    key.verify(text.as_bytes(), &signature).ok()?;
    let claims = URL_SAFE_NO_PAD.decode(text.split_once('.')?.1).ok()?;
    let claims: Value = serde_json::from_slice(&claims).ok()?;
    let claim = |name: &str| claims.get(name).and_then(Value::as_str);
    let id = claim("iss")?;
    let fits = claim("sub") == Some(id) && claim("aud") == Some(&name(shared, role));
    fits.then(|| id.to_owned())
}
