//! Authorization server: metadata, registration, authorization page, tokens and client authentication.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::digest::{SHA256, digest};
use ring::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::exchange::{RecordedRequest, Response};
use super::token_store::{AuthorizationCode, Client, Grant, Rotation, TokenPair};
use super::{Fault, Role, Shared, protected_resource};
use crate::http::{escape, unescape};

const ID_JAG: &str = "urn:ietf:params:oauth:token-type:id-jag";
const JWT_BEARER: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
/// The ID token that the identity provider accepts, and the assertion that it issues for it.
const ID_TOKEN: &str = "id-token-s3cret";
const ID_JAG_TOKEN: &str = "vouched-s3cret";

pub(crate) fn handle(shared: &Shared, request: &RecordedRequest) -> Response {
    let path = request.path.as_str();
    match (request.method.as_str(), path) {
        ("GET", "/.well-known/oauth-authorization-server") if !shared.has(Fault::OpenIdOnly) => {
            metadata(shared, request.role)
        }
        ("GET", "/.well-known/openid-configuration") => metadata(shared, request.role),
        ("GET", _) if path.starts_with("/.well-known/oauth-protected-resource") => {
            protected_resource::metadata(shared, path)
        }
        ("POST", "/register") => register(shared, request),
        ("GET", "/authorize") => authorize(shared, request),
        ("POST", "/token") => token(shared, request),
        ("POST", "/idp/token") => exchange_id_token(shared, request),
        ("POST", "/revoke") => {
            shared.store.lock().revoke(request.get("token").unwrap_or_default());
            Response::empty(200)
        }
        _ => Response::empty(404),
    }
}

/// Issuer of an authorization server.
pub(crate) fn issuer_url(shared: &Shared, role: Role) -> String {
    let origin = shared.origin(role);
    if shared.has(Fault::IssuerSlash) { format!("{origin}/") } else { origin }
}

fn metadata(shared: &Shared, role: Role) -> Response {
    if shared.has(Fault::NoMetadata) {
        return Response::empty(404);
    }
    if shared.has(Fault::MetadataDown) {
        return Response::empty(500);
    }
    if shared.has(Fault::MetadataRedirect) {
        let location =
            format!("{}/.well-known/oauth-authorization-server", shared.origin(Role::Second));
        return Response::redirect(location);
    }
    let (origin, mut issuer) = (shared.origin(role), issuer_url(shared, role));
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
    let promises_iss = [Fault::IssPromised, Fault::IssMissing, Fault::IssWrong, Fault::IssSlash]
        .into_iter()
        .any(|fault| shared.has(fault));
    let mut document = json!({
        "issuer": issuer,
        "authorization_endpoint": format!("{origin}/authorize"),
        "token_endpoint": format!("{origin}/token"),
        "registration_endpoint": format!("{origin}/register"),
        "revocation_endpoint": format!("{origin}/revoke"),
        "response_types_supported": ["code"],
        "code_challenge_methods_supported": ["S256"],
        "token_endpoint_auth_methods_supported": methods,
        "authorization_response_iss_parameter_supported": promises_iss,
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
    Response::json(200, &document)
}

/// Sets a member of a document; `null` removes it.
fn set(document: &mut Value, name: &str, value: Value) {
    let Some(members) = document.as_object_mut() else { return };
    match value {
        Value::Null => drop(members.remove(name)),
        value => drop(members.insert(name.to_owned(), value)),
    }
}

fn register(shared: &Shared, request: &RecordedRequest) -> Response {
    let document: Value = serde_json::from_str(&request.body).unwrap_or_default();
    if shared.has(Fault::RegistrationRefused) {
        return error_response("invalid_redirect_uri", None);
    }
    let redirect_uris = document.get("redirect_uris").map(Vec::<String>::deserialize);
    let redirect_uris = redirect_uris.and_then(Result::ok).unwrap_or_default();
    if redirect_uris.is_empty() || document.get("application_type") != Some(&json!("native")) {
        return error_response("invalid_client_metadata", None);
    }
    let method = document.get("token_endpoint_auth_method").and_then(Value::as_str);
    let method = method.unwrap_or("client_secret_basic");
    let mut store = shared.store.lock();
    store.stats.registrations += 1;
    let id = store.unique_value("client");
    let secret = (method != "none").then(|| store.unique_value("password"));
    let client = Client { secret: secret.clone(), redirect_uris, method: Some(method.to_owned()) };
    store.clients.insert((request.role, id.clone()), client);
    let body = json!({
        "client_id": id,
        "client_secret": secret,
        "client_secret_expires_at": 0,
        "token_endpoint_auth_method": method,
    });
    Response::json(201, &body)
}

/// Authorization page: consents at once and redirects back.
fn authorize(shared: &Shared, request: &RecordedRequest) -> Response {
    let get = |name| request.get(name).unwrap_or_default().to_owned();
    let role = request.role;
    let (client_id, redirect_uri) = (get("client_id"), get("redirect_uri"));
    let is_document = shared.has(Fault::Documents) && client_id.starts_with("https://");
    let known = {
        let store = shared.store.lock();
        let client = store.clients.get(&(role, client_id.clone()));
        client.is_some_and(|client| {
            client.redirect_uris.is_empty() || client.redirect_uris.contains(&redirect_uri)
        })
    };
    let is_valid = get("response_type") == "code"
        && get("code_challenge_method") == "S256"
        && get("code_challenge").len() == 43;
    if !(known || is_document) || !is_valid {
        return Response::empty(400);
    }
    let state = if shared.has(Fault::StateWrong) { "wrong".to_owned() } else { get("state") };
    let mut location = format!("{redirect_uri}?state={}", escape(&state));
    if let Some(iss) = iss(shared, role) {
        location = format!("{location}&iss={}", escape(&iss));
    }
    if shared.has(Fault::AccessDenied) {
        let text = "error=access_denied&error_description=the+person+said+no";
        return Response::redirect(format!("{location}&{text}"));
    }
    let grant = Grant { role, client_id, scope: get("scope"), resource: get("resource") };
    let code = AuthorizationCode { grant, redirect_uri, challenge: get("code_challenge") };
    let mut store = shared.store.lock();
    store.stats.logins += 1;
    let code = store.insert_code(code);
    Response::redirect(format!("{location}&code={}", escape(&code)))
}

fn iss(shared: &Shared, role: Role) -> Option<String> {
    let own = issuer_url(shared, role);
    match () {
        () if shared.has(Fault::IssWrong) => Some("https://other.example".to_owned()),
        () if shared.has(Fault::IssSlash) => Some(format!("{own}/")),
        () if shared.has(Fault::IssPromised) || shared.has(Fault::IssUnpromised) => Some(own),
        () => None,
    }
}

fn token(shared: &Shared, request: &RecordedRequest) -> Response {
    let Some(caller) = identify_client(shared, request) else {
        return Response { status: 401, ..error_response("invalid_client", None) };
    };
    let rotation = match () {
        () if shared.has(Fault::NoRefresh) => Rotation::None,
        () if shared.has(Fault::RefreshKeeps) => Rotation::Keep,
        () => Rotation::Rotate,
    };
    let pair = match request.get("grant_type").unwrap_or_default() {
        "authorization_code" => exchange(shared, &caller, request, rotation),
        "refresh_token" if shared.has(Fault::RefreshDown) => return Response::empty(503),
        "refresh_token" => {
            let token = request.get("refresh_token").unwrap_or_default();
            let who = (request.role, caller.id.as_str());
            let mut store = shared.store.lock();
            let matches = request.get("resource") == Some(&protected_resource::resource_id(shared));
            let renewed = store.refresh_login(token, who, shared.plan.lifetime, rotation);
            renewed.filter(|_| matches)
        }
        grant
            if caller.is_authenticated
                && (grant == "client_credentials"
                    || grant == JWT_BEARER && request.get("assertion") == Some(ID_JAG_TOKEN)) =>
        {
            Some(issue_without_user(shared, &caller, request))
        }
        _ => return error_response("unsupported_grant_type", None),
    };
    let Some(pair) = pair else {
        shared.store.lock().stats.invalid_grants += 1;
        let quoted = request.get("refresh_token").or(request.get("code"));
        return error_response("invalid_grant", quoted.filter(|_| shared.has(Fault::Quoting)));
    };
    let body = json!({
        "access_token": pair.access,
        "token_type": if shared.has(Fault::TokenType) { "mac" } else { "Bearer" },
        "expires_in": shared.plan.lifetime.as_secs_f64(),
        "refresh_token": pair.refresh,
        "scope": pair.scope,
    });
    Response::json(200, &body)
}

/// Exchanges a code for tokens if client, redirect URI, resource and PKCE verifier match.
fn exchange(
    shared: &Shared,
    caller: &ClientIdentity,
    request: &RecordedRequest,
    rotation: Rotation,
) -> Option<TokenPair> {
    let mut store = shared.store.lock();
    let code = store.codes.remove(request.get("code")?)?;
    let matches = code.grant.client_id == caller.id
        && request.get("redirect_uri") == Some(&code.redirect_uri)
        && request.get("resource") == Some(&code.grant.resource)
        && s256(request.get("code_verifier")?) == code.challenge;
    if !matches {
        return None;
    }
    store.stats.codes += 1;
    Some(store.issue(code.grant, shared.plan.lifetime, rotation))
}

fn issue_without_user(
    shared: &Shared,
    caller: &ClientIdentity,
    request: &RecordedRequest,
) -> TokenPair {
    let grant = Grant {
        role: request.role,
        client_id: caller.id.clone(),
        scope: request.get("scope").unwrap_or_default().to_owned(),
        resource: protected_resource::resource_id(shared),
    };
    let mut store = shared.store.lock();
    store.stats.non_interactive += 1;
    store.issue(grant, shared.plan.lifetime, Rotation::None)
}

/// Identity provider: exchanges an ID token for an identity assertion (ID-JAG).
fn exchange_id_token(shared: &Shared, request: &RecordedRequest) -> Response {
    let is_valid = request.get("subject_token") == Some(ID_TOKEN)
        && request.get("requested_token_type") == Some(ID_JAG)
        && request.get("audience") == Some(&issuer_url(shared, shared.current_issuer()))
        && request.get("resource") == Some(&protected_resource::resource_id(shared));
    if !is_valid {
        return error_response("invalid_request", None);
    }
    let kind = if shared.has(Fault::ExchangeOther) { "urn:x:other" } else { ID_JAG };
    let body =
        json!({ "access_token": ID_JAG_TOKEN, "issued_token_type": kind, "token_type": "N_A" });
    Response::json(200, &body)
}

fn error_response(error: &str, quoted: Option<&str>) -> Response {
    let description = quoted.map(|quoted| format!("{quoted} is not good"));
    Response::json(400, &json!({ "error": error, "error_description": description }))
}

/// An identified client, possibly authenticated.
#[derive(Debug)]
struct ClientIdentity {
    id: String,
    is_authenticated: bool,
}

/// The S256 challenge of a verifier.
fn s256(verifier: &str) -> String {
    URL_SAFE_NO_PAD.encode(digest(&SHA256, verifier.as_bytes()))
}

/// Identifies the client. `None` if its credentials are wrong, or not of the registered method.
fn identify_client(shared: &Shared, request: &RecordedRequest) -> Option<ClientIdentity> {
    let role = request.role;
    if let Some(assertion) = request.get("client_assertion") {
        let id = verify_assertion(shared, role, assertion)?;
        return Some(ClientIdentity { id, is_authenticated: true });
    }
    let (id, secret, method) = presented_credentials(request)?;
    let store = shared.store.lock();
    if id.starts_with("https://") && shared.has(Fault::Documents) {
        return Some(ClientIdentity { id, is_authenticated: false });
    }
    let client = store.clients.get(&(role, id.clone()))?;
    let agreed = match () {
        () if shared.has(Fault::BasicOnly) => Some("client_secret_basic"),
        () if shared.has(Fault::PostOnly) => Some("client_secret_post"),
        () => client.method.as_deref(),
    };
    let matches = client.secret == secret && agreed.is_none_or(|agreed| agreed == method);
    matches.then(|| ClientIdentity { id, is_authenticated: client.secret.is_some() })
}

/// Id, secret and method in the request. `None` if it uses both methods at once.
fn presented_credentials(
    request: &RecordedRequest,
) -> Option<(String, Option<String>, &'static str)> {
    let header = request.authorization.as_deref().and_then(|header| header.strip_prefix("Basic "));
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

/// Verifies a client assertion and returns the client id.
fn verify_assertion(shared: &Shared, role: Role, assertion: &str) -> Option<String> {
    let key = shared.plan.public_key.as_deref()?;
    let (text, signature) = assertion.rsplit_once('.')?;
    let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
    let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, key);
    key.verify(text.as_bytes(), &signature).ok()?;
    let claims = URL_SAFE_NO_PAD.decode(text.split_once('.')?.1).ok()?;
    let claims: Value = serde_json::from_slice(&claims).ok()?;
    let claim = |name: &str| claims.get(name).and_then(Value::as_str);
    let id = claim("iss")?;
    let matches = claim("sub") == Some(id) && claim("aud") == Some(&issuer_url(shared, role));
    matches.then(|| id.to_owned())
}
