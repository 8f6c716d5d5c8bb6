//! Who sends a token request, by what it proves.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::digest::{SHA256, digest};
use ring::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
use serde_json::Value;

use super::super::http::{Request, unescape};
use super::super::{Fault, Role, Shared};
use super::name;

/// A client that has said who it is, and perhaps proven it.
#[derive(Debug)]
pub(super) struct Caller {
    pub(super) role: Role,
    pub(super) id: String,
    pub(super) is_proven: bool,
}

/// The S256 challenge of a verifier.
pub(super) fn s256(verifier: &str) -> String {
    URL_SAFE_NO_PAD.encode(digest(&SHA256, verifier.as_bytes()))
}

/// Who it is. `None` if the proof is wrong, or not the one that was agreed.
pub(super) fn caller(shared: &Shared, role: Role, request: &Request) -> Option<Caller> {
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
